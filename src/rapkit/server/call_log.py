"""Log and count every call that ended or was suspended."""

import logging

from rapkit.protocol import Invocation
from rapkit.server.invocation import StoredCall
from rapkit.server.metrics import Ended, ToolsetMetrics

log = logging.getLogger("rapkit.calls")


def record_call(metrics: ToolsetMetrics, call: StoredCall, outcome: Ended, seconds: float) -> None:
    """Log and count that a call has come so far."""
    message = call.message
    operation = message.operation if isinstance(message, Invocation) else None
    metrics.call(operation, outcome, seconds)
    if not log.isEnabledFor(logging.INFO):
        return
    log.info(
        "call %s",
        "suspended" if outcome == "suspended" else "finished",
        extra={
            "operation": operation,
            "thread_id": message.group_id,
            "call_id": message.id,
            "caller": call.caller,
            "outcome": outcome,
            "seconds": round(seconds, 4),
        },
    )
