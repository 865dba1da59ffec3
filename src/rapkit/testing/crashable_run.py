"""One run of a crashable process, which can end at any store operation or POST.

A process that is killed writes nothing more and sends nothing more. Ours cannot be killed, so from the moment of its death whatever it
tries is refused: it may go through all the motions of cleaning up, and none of it has any effect.
"""

import asyncio
import contextlib
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Protocol, cast

from rapkit.delivery.http_client import Fetcher, HttpResponse, Poster
from rapkit.errors import DeliveryError, Fenced
from rapkit.mailbox import OUTBOX, Store
from rapkit.testing.activity import Activity

_LOOK_AGAIN_AFTER = 5.0
_IN_THE_BACKGROUND = frozenset(("claim", "take", "held", "settle", "wait"))
"""Operations that only background tasks use: they would retry, and log errors."""
_LOOKING = frozenset(
    (
        "backlog",
        "box",
        "boxes",
        "entries",
        "held",
        "known",
        "next_due",
        "outbox",
        "recent",
        "records",
        "remembers",
        "waiting",
    )
)
"""What changes nothing: whether its answer was heard is all the same."""


class TwoWayTransport(Poster, Fetcher, Protocol):
    """Sends POSTs and GETs."""


class CrashableRun:
    """A run of the server, and what it uses: the store, and the transport to its callers.

    `workers` are the names under which it holds what it claimed; `topics` is what it waits for; `operations` counts what it has done.
    """

    def __init__(self, store: Store, activity: Activity) -> None:
        self.over = False
        self.workers: set[str] = set()
        self.topics: set[str] = {OUTBOX}
        self.operations: Counter[str] = Counter()
        self._real = store
        self._activity = activity
        self._under_way = 0
        self._left: int | None = None
        self._unheard = False
        self._then: Callable[[], None] = lambda: None

    @property
    def store(self) -> Store:
        """The store, as long as the run lasts. Closing it closes nothing: the next run goes on with it."""
        return cast("Store", _CrashableStore(self))

    @contextlib.asynccontextmanager
    async def transport(self, poster: Poster) -> AsyncIterator[Poster]:
        """The transport for POSTs, as long as the run lasts."""
        yield _CrashablePoster(self, poster)

    @contextlib.asynccontextmanager
    async def both_ways(self, transport: TwoWayTransport) -> AsyncIterator[TwoWayTransport]:
        """The transport for POSTs and GETs, as long as the run lasts."""
        yield _CrashableTransport(self, transport)

    def end_after(self, operations: int, then: Callable[[], None] = lambda: None, *, unheard: bool = False) -> None:
        """End by itself: so many more operations are done in the store, and the next one is not. `then` is called at that moment.

        If it is `unheard`, the next one is done, and its answer does not come; only what can change something counts.
        """
        self._left = operations
        self._then = then
        self._unheard = unheard

    async def end(self) -> None:
        """End now. What the store was asked for already happens, and its result is lost."""
        self.over = True
        while self._under_way:
            await asyncio.sleep(0)

    async def do(self, name: str, *arguments: Any, **options: Any) -> Any:
        """One operation of the store; `Fenced` if it, or its answer, comes after the end."""
        if name == "close":
            return None
        await self._check(name)
        if name == "wait":
            topic, *_ = arguments
            self.topics.add(topic)
            # Not as long as was asked for: what is due later is due by another clock, and setting that one notifies the store.
            await self._real.wait(topic, _LOOK_AGAIN_AFTER)
            return None
        if name == "renew":
            self.workers.add(arguments[0])
        last = self._is_last(name)
        if last and not self._unheard:
            self._end()
            await self._check(name)
        self._under_way += 1
        try:
            result = await getattr(self._real, name)(*arguments, **options)
        finally:
            self._under_way -= 1
            self._activity.note()
            if last:
                self._end()
        await self._check(name)
        self.operations[name] += 1
        return result

    def _is_last(self, name: str) -> bool:
        """Whether the run is to end with this operation."""
        if self._left is None or (self._unheard and name in _LOOKING):
            return False
        self._left -= 1
        return self._left == -1

    def _end(self) -> None:
        if not self.over:
            self.over = True
            self._then()

    async def _check(self, name: str) -> None:
        if not self.over:
            return
        if name in _IN_THE_BACKGROUND:
            await asyncio.Event().wait()  # until it is cancelled with all the rest
        # Of all that can go wrong with a store this is what it amounts to: others have taken over.
        raise Fenced("The test has this server be dead.")


class _CrashableStore:
    def __init__(self, crashable_run: CrashableRun) -> None:
        self._crashable_run = crashable_run

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._crashable_run._real, name)
        if not inspect.iscoroutinefunction(method):
            return method

        async def operation(*arguments: Any, **options: Any) -> Any:
            return await self._crashable_run.do(name, *arguments, **options)

        return operation


class _CrashablePoster:
    def __init__(self, crashable_run: CrashableRun, poster: Poster) -> None:
        self._crashable_run = crashable_run
        self._poster = poster

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> HttpResponse:
        """POST, unless we are dead."""
        self._check()
        return await self._poster.post(url, body, headers)

    def _check(self) -> None:
        if self._crashable_run.over:
            raise DeliveryError("The test has this server be dead.")


class _CrashableTransport(_CrashablePoster):
    def __init__(self, crashable_run: CrashableRun, transport: TwoWayTransport) -> None:
        super().__init__(crashable_run, transport)
        self._transport = transport

    async def get(self, url: str, headers: Mapping[str, str], *, limit: int) -> tuple[int, bytes]:
        """GET, unless we are dead."""
        self._check()
        return await self._transport.get(url, headers, limit=limit)
