"""The audit log: one line when a call is made, when its server accepted it or never will, and when it is answered (RUN-10).

Also when the user is asked something, when a schedule speaks, and when a thread stops until a client resumes it.

Who wants arguments and answers finds them in the journal; here they would be in every log.
"""

import logging

from pydantic_core import from_json

from rapkit.kernel.effects import Invoke, Step
from rapkit.kernel.entries import Answered, AuthorizationAsked, ChoiceAsked, ParkedEntry, WokenUp
from rapkit.kernel.thread import Thread
from rapkit.protocol.content import is_error_text

log = logging.getLogger("rapkit.audit")


def log_step(before: Thread, step: Step) -> None:
    """What a step that is stored means for calls."""
    if not log.isEnabledFor(logging.INFO):
        return
    for effect in step.effects:
        if isinstance(effect, Invoke):
            call = step.thread.pending[effect.call_id]
            _write("invoked", step.thread.id, effect.call_id, call.operation, server=call.server)
    for entry in step.entries:
        match entry:
            case Answered():
                pending = before.pending.get(entry.call_id)
                operation = entry.name if pending is None else pending.operation
                outcome = "error" if is_error_text(entry.text) else "ok"
                _write("answered", step.thread.id, entry.call_id, operation, outcome=outcome, by=entry.by)
            case ChoiceAsked(call_id) | AuthorizationAsked(call_id):
                log.info("the user is asked", extra={"thread_id": step.thread.id, "call_id": call_id})
            case WokenUp(schedule, due):
                log.info("scheduled", extra={"thread_id": step.thread.id, "schedule": schedule, "due": due})
            case ParkedEntry(reason):
                log.warning("parked: %s", reason, extra={"thread_id": step.thread.id})


def log_dispatch(thread_id: str, call_id: str, body: bytes, problem: str | None) -> None:
    """An invocation, as it lies in the outbox, has come to its end there."""
    if not log.isEnabledFor(logging.INFO):
        return
    server, _, message = body.split(b"\n", 2)
    operation = from_json(message)["operation"]
    if problem is None:
        _write("acknowledged", thread_id, call_id, operation, server=server.decode())
    else:
        _write("undelivered", thread_id, call_id, operation, server=server.decode(), problem=problem)


def _write(what: str, thread_id: str, call_id: str, operation: str, **more: str) -> None:
    log.info(what, extra={"thread_id": thread_id, "call_id": call_id, "operation": operation, **more})
