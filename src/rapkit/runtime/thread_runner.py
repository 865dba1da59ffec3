"""Claim threads that are due and run their slices: one at a time per thread, many threads at once (RUN-1, RUN-2)."""

from collections.abc import Callable

from rapkit.mailbox import AcceptResult, Claim, NewMail
from rapkit.runtime.services import AgentServices
from rapkit.runtime.slice import Slice
from rapkit.runtime.toolsets import THREAD
from rapkit.work.poller import Poller


class ThreadRunner:
    """Claims due threads and runs a slice of each."""

    def __init__(self, services: AgentServices, on_slice: Callable[[str], None] = lambda _thread_id: None) -> None:
        self._services = services
        self._on_slice = on_slice
        self._slices: dict[str, Slice] = {}
        self.poller = Poller(services.store, THREAD, services.config.capacity.threads, self._claim, self._slice)

    @property
    def running(self) -> int:
        """How many slices run now."""
        return len(self._slices)

    @property
    def healthy(self) -> bool:
        """Whether threads can be claimed."""
        return self.poller.healthy

    async def run(self) -> None:
        """Go on until cancelled."""
        await self.poller.run()

    async def drain(self, patience: float) -> None:
        """Let slices end; those that cannot are given back."""
        await self.poller.drain(patience)

    async def accept(self, new_mail: NewMail) -> AcceptResult:
        """Put mail into a thread's box; the thread runs at once if nothing else is due for it and there is room."""
        store = self._services.store
        if not self.poller.reserve():
            return await store.accept(new_mail)
        try:
            accept_result, claim = await store.accept_claimed(new_mail, self._services.worker)
            if claim is not None:
                self.poller.submit(claim)
        finally:
            self.poller.release()
        return accept_result

    def interrupt(self, thread_id: str) -> None:
        """If the model is being asked for this thread here, let it be: there is something more urgent in its mail."""
        if (running := self._slices.get(thread_id)) is not None:
            running.interrupt()

    async def _claim(self, limit: int) -> list[Claim]:
        here = self._services
        return await here.store.claim(here.worker, THREAD, limit, here.config.capacity.mail)

    async def _slice(self, claim: Claim) -> None:
        thread_id = claim.box.id
        self._on_slice(thread_id)
        running = self._slices[thread_id] = Slice(self._services, claim)
        try:
            with self._services.metrics.slice(claim):
                await running.run()
        finally:
            if self._slices.get(thread_id) is running:
                del self._slices[thread_id]
