"""Runs threads that have something to do: one slice at a time each, many of them at once (RUN-1, RUN-2)."""

from collections.abc import Callable

from rapkit.mailbox import AcceptResult, Claim, NewMail
from rapkit.runtime.services import AgentServices
from rapkit.runtime.slice import Slice
from rapkit.runtime.toolsets import THREAD
from rapkit.work.poller import Poller


class ThreadRunner:
    """Claims due threads and runs a slice of each."""

    def __init__(self, premises: AgentServices, on_slice: Callable[[str], None] = lambda _thread_id: None) -> None:
        self._premises = premises
        self._on_slice = on_slice
        self._slices: dict[str, Slice] = {}
        self.pump = Poller(premises.store, THREAD, premises.plan.capacity.threads, self._claim, self._slice)

    @property
    def running(self) -> int:
        """How many slices run now."""
        return len(self._slices)

    @property
    def healthy(self) -> bool:
        """Whether threads can be claimed."""
        return self.pump.healthy

    async def run(self) -> None:
        """Go on until cancelled."""
        await self.pump.run()

    async def drain(self, patience: float) -> None:
        """Let slices end; those that cannot are given back."""
        await self.pump.drain(patience)

    async def accept(self, letter: NewMail) -> AcceptResult:
        """Put a letter into a thread's mail; the thread runs at once if nothing else is due for it and there is room."""
        store = self._premises.store
        if not self.pump.reserve():
            return await store.accept(letter)
        try:
            reception, claim = await store.accept_claimed(letter, self._premises.worker)
            if claim is not None:
                self.pump.hand(claim)
        finally:
            self.pump.release()
        return reception

    def interrupt(self, thread_id: str) -> None:
        """If the model is being asked for this thread here, let it be: there is something more urgent in its mail."""
        if (running := self._slices.get(thread_id)) is not None:
            running.interrupt()

    async def _claim(self, limit: int) -> list[Claim]:
        here = self._premises
        return await here.store.claim(here.worker, THREAD, limit, here.plan.capacity.mail)

    async def _slice(self, claim: Claim) -> None:
        thread_id = claim.box.id
        self._on_slice(thread_id)
        running = self._slices[thread_id] = Slice(self._premises, claim)
        try:
            with self._premises.metrics.slice(claim):
                await running.run()
        finally:
            if self._slices.get(thread_id) is running:
                del self._slices[thread_id]
