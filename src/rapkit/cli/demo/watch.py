"""Wait for expected events of the demo."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from rapkit.cli.demo.conversation import Conversation, Entry
from rapkit.cli.demo.demo_state import DemoState
from rapkit.cli.demo.failure import DemoFailed
from rapkit.cli.demo.participants import Participants
from rapkit.printable import printable

T = TypeVar("T")

_TO_READ_A_LINE = 2.0
_AT_REST = 20.0  # without a worker and without a call: nothing will come of it
_ENOUGH = 42.0  # after this no more time to read is given


class Watch:
    """Observes what goes on and keeps the demo's state up to date. Nothing is waited for longer than `patience` seconds.

    `stopped` raises if a signal has told the demo to end.
    """

    def __init__(
        self,
        demo_state: DemoState,
        participants: Participants,
        thread: Conversation,
        stopped: Callable[[], None],
        patience: float,
    ) -> None:
        self._demo_state = demo_state
        self._participants = participants
        self._thread = thread
        self._stopped = stopped
        self._patience = patience

    def until_entry(self, what: str, kind: str, **fields: Any) -> Entry:
        """The first line of the journal of this kind with these fields, as soon as it is there."""
        return self.until(what, lambda: self._thread.first(kind, **fields))

    def until(self, what: str, happened: Callable[[], T | None]) -> T:
        """What `happened` finds, as soon as it finds something. `DemoFailed` says that `what` was expected, and what was seen instead."""
        deadline = time.monotonic() + self._patience
        while not (found := happened()):
            self.look()
            if why := self._hopeless() or ("that takes too long" if time.monotonic() > deadline else ""):
                raise DemoFailed(f"Expected: {what}. But {why}. {self._seen()}", self._participants.tails())
        return found

    def let_read(self, seconds: float) -> None:
        """Until the chapter has been there for so long, and what was said last for a moment."""
        demo_state = self._demo_state
        while demo_state.shown.paced and demo_state.elapsed < _ENOUGH:
            if time.monotonic() - demo_state.chapter_began >= seconds and demo_state.quiet_for >= _TO_READ_A_LINE:
                return
            self.look()

    def look(self) -> None:
        """The world goes on for a moment."""
        self._stopped()
        for process in self._participants.processes:
            process.check_that_it_runs()
        self._demo_state.doing = self._participants.doing()
        self._demo_state.thread = self._thread.seen()
        for pid, comes in self._participants.workers.changes():
            self._demo_state.say("worker", "worker", f"pid {pid} {'is started' if comes else 'has ended'}")
        if self._participants.runtime.state == "alive":
            self._thread.read()
        time.sleep(0.05)

    def _hopeless(self) -> str:
        """Why nothing will happen any more, if that can be known."""
        now = self._thread.now
        if now.get("status") == "parked":
            return f"the thread was parked: {str(now['reason']).rstrip('.')}"
        at_rest = now.get("status") in ("idle", "waiting") and not now["pending_calls"]
        if (
            at_rest
            and self._participants.runtime.state == "alive"
            and self._participants.workers.quiet_for() > _AT_REST
        ):
            return "the agent is at rest"
        return ""

    def _seen(self) -> str:
        now = self._thread.now
        pending = ", ".join(call["name"] for call in now.get("pending_calls", ())) or "none"
        said = [entry["text"] for entry in self._thread.all("assistant") if entry["text"]]
        words = f' The model said last: "{printable(said[-1])}"' if said else ""
        status, workers = now.get("status", "not there"), len(self._participants.workers.now)
        return f"The thread is {status}, pending calls: {pending}, workers alive: {workers}.{words}"
