"""Cancel a pending call."""

from rapkit.kernel.effects import TellCancelled
from rapkit.kernel.events import refuse_early
from rapkit.kernel.step_builder import StepBuilder
from rapkit.kernel.thread import Pending


def cancel_pending(draft: StepBuilder, call_id: str) -> Pending:
    """Stop waiting for a call: it is not sent if it has not left, and every server is told. Its result will be ignored (CAN-4)."""
    call = draft.take_pending(call_id)
    if call.awaits == "tool":
        draft.do(TellCancelled(call_id))
    refuse_early(draft, call_id, call.early)
    return call
