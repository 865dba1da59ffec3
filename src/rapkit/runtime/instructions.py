"""What the model is told before the conversation."""

from rapkit.kernel.thread import Thread
from rapkit.runtime.plan import Plan

_CALLS = (
    "Tools answer when they are done, which may take seconds or days. You may be told that a call is still running: "
    "its result comes later, by itself. A tool call with an argument `kind` was not made by you: it shows you an event "
    "of a subscription (interrupt) or a result that came late (result), and names the original call."
)
_FOR_EVENT = (
    "This conversation was branched off for the one event at its end. What was said before belongs to another conversation that goes on "
    "without you: deal with this event alone, and do not carry out again what was asked for there."
)


def instructions_for(plan: Plan, thread: Thread) -> str:
    """The agent's own instructions, what a model has to know about calls that take long, and what this thread is for."""
    parts = [plan.instructions, _CALLS]
    if thread.for_event:
        parts.append(_FOR_EVENT)
    return "\n\n".join(part for part in parts if part)
