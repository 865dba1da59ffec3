"""Build the instructions that precede the conversation."""

from datetime import UTC, datetime
from functools import lru_cache

from rapkit.kernel.catalog import Catalog
from rapkit.kernel.thread import Thread
from rapkit.runtime.config import AgentConfig

_A_DAY = 86400
_CALLS = (
    "Tools answer when they are done, which may take seconds or days. You may be told that a call is still running: "
    "its result comes later, by itself. A tool call with an argument `kind` was not made by you: it shows you an event "
    "of a subscription (interrupt), a result that came late (result), or what another thread tells you (report, message), "
    "and names the original call or the thread. Events of a subscription come until you cancel it: cancel one that you no "
    "longer need with cancel_subscription, at the latest before this thread ends."
)
_FOR_EVENT = (
    "This conversation was branched off for the one event at its end. What was said before belongs to another conversation that goes on "
    "without you: deal with this event alone, and do not carry out again what was asked for there."
)
_FOR_TASK = (
    "This conversation is a child thread: it was branched off for the one task that is named where it begins, {task!r}. What was said "
    "before that belongs to the parent thread, which goes on without you: do not carry out what was asked or planned there. Nobody reads "
    "what you say here; tell the parent thread with report_to_parent, with `done` when nothing is left to do."
)
_MISSING = (
    "The tools of these servers are missing, because the servers could not be asked what they offer. Their tools are offered to you as "
    "soon as they can be. If you need one of them, tell the user which server is missing and why; do not claim to have used it."
)
_FOUND = "The tools of {servers} were missing earlier in this conversation. They are offered to you now."


@lru_cache(maxsize=4)
def _today(day: int) -> str:
    return f"Today is {datetime.fromtimestamp(day * _A_DAY, UTC):%A, %Y-%m-%d} (UTC)."


def instructions_for(config: AgentConfig, thread: Thread, catalog: Catalog, now: float) -> str:
    """The agent's own instructions, and what a model has to know besides.

    That is: about calls that take long, what day it is, what this thread is for, and which tools are missing.
    """
    parts = [config.instructions, _CALLS, _today(int(now // _A_DAY))]
    if thread.for_event:
        parts.append(_FOR_EVENT)
    if thread.task:
        parts.append(_FOR_TASK.format(task=thread.task))
    if catalog.missing:
        lines = (f"- {server}: {reason.splitlines()[0]}" for server, reason in catalog.missing.items())
        parts.append("\n".join([_MISSING, *lines]))
    if found := [server for server in thread.found_toolsets if server not in catalog.missing]:
        parts.append(_FOUND.format(servers=", ".join(found)))
    return "\n\n".join(part for part in parts if part)
