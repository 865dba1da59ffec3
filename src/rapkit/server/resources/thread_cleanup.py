"""Clean up after closed threads: run close hooks, delete state and workspaces.

The box of a thread is idle but for a timer. `/close_thread` stops it together with the thread's calls; if no notice says that the thread is
closed, the timer ends it. Either way the worker that claims it then cleans up, and forgets it last of all: wherever the server dies, the
next one cleans up again. So a hook can be run twice, if the server is lost after it ran. A call of the same thread that comes later,
whatever the reason, finds nothing and begins anew (CLO-11).
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from rapkit.errors import StoreError
from rapkit.mailbox import Claim, Commit, NewMail, Timer
from rapkit.server.invocation import thread_kind
from rapkit.server.resources.close_hooks import ClosedThread, run_close_hook
from rapkit.server.resources.workspaces import Workspaces, delete
from rapkit.work.poller import Poller

if TYPE_CHECKING:
    from pathlib import Path

    from rapkit.server.claimed_box import ClaimedBox
    from rapkit.server.services import ToolsetServices

STATE: Final = "state"
"""The kind of record a thread's state is kept in, one for each key."""

USED: Final = ""
"""The record among them that says when the thread was last at work: no key of a state is empty."""

_TTL = "ttl"
_IN_USE = "in use"
_MOST_AT_ONCE = 16
_DAY = 24 * 3600.0
_LONGEST_SILENCE = 3600.0
_SHORTEST_SILENCE = 1.0
_PATIENCE_WITH_HANDLERS = 10.0
_PATIENCE_WITH_HOOKS = 60.0
_MOST_ATTEMPTS = 4
_PAUSE = 2.0
_LONGEST_PAUSE = 3600.0

log = logging.getLogger("rapkit.threads")


class ThreadCleanup:
    """Cleans up after the closed threads of a toolset.

    `quiet` returns when no handler of a thread runs here any more; `in_use` gives the threads that are in some handler's hands here;
    `forgotten` is told when a thread is over and cleaned up.
    """

    def __init__(
        self,
        services: "ToolsetServices",
        workspaces: Workspaces,
        quiet: Callable[[str], Awaitable[None]],
        in_use: Callable[[], set[str]],
        forgotten: Callable[[str], None],
    ) -> None:
        self._services = services
        self._workspaces = workspaces
        self._quiet = quiet
        self._in_use = in_use
        self._forgotten = forgotten
        self._keep = services.config.durations.keep_threads
        self._say_every = min(_LONGEST_SILENCE, max(_SHORTEST_SILENCE, self._keep / 4))
        self._cleaning: set[str] = set()
        self._close_hooks_ran: dict[str, float] = {}
        self._poller = Poller(
            services.store, thread_kind(services.config.toolset), _MOST_AT_ONCE, self._claim, self.handle
        )

    @property
    def healthy(self) -> bool:
        """Whether the boxes of threads can be fetched."""
        return self._poller.healthy

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._poller.run())
            group.create_task(self.record_in_use())
            group.create_task(self._delete_stale_daily())

    async def drain(self, patience: float) -> None:
        """Let what was begun end; what does not is done again after the next start."""
        await self._poller.drain(patience)

    async def _claim(self, limit: int) -> list[Claim]:
        config = self._services.config
        return await self._services.store.claim(
            self._services.worker, thread_kind(config.toolset), limit, config.limits.mail
        )

    async def handle(self, claim: Claim) -> None:
        """Clean up after the thread if it is over, else schedule the next look."""
        claimed_box = self._services.claimed_box(claim, "")
        try:
            if not claim.box.stopped and (until := await self._kept_until(claim)) > claim.now:
                consumed = [mail.seq for mail in claim.mail]
                await claimed_box.commit_with_retry(Commit(consumed=consumed, timers=[Timer(_TTL, until)]))
                return
            await self._clean_up(claim, claimed_box)
        except Exception as error:
            log.error("cannot clean up after a thread, and will try again: %s", error, exc_info=error)
            pause = min(_PAUSE * 2.0 ** min(claim.attempts, 20), _LONGEST_PAUSE)
            await claimed_box.commit_with_retry(Commit(again_at=claim.now + pause, charge=True))

    async def _kept_until(self, claim: Claim) -> float:
        if claim.mail or claim.box.id in self._in_use():
            return claim.now + max(self._keep, _SHORTEST_SILENCE)
        records = await self._services.store.records(claim.box.id, STATE)
        used = next((json.loads(record.body) for record in records if record.key == USED), claim.box.created_at)
        return max(used, claim.box.created_at) + self._keep

    async def _clean_up(self, claim: Claim, claimed_box: "ClaimedBox") -> None:
        key = claim.box.id
        if key in self._cleaning:
            # A repeated notice took the box from us while we are at it. Its mail and its timer do not matter any more.
            seen = [mail.seq for mail in claim.mail]
            await claimed_box.commit_with_retry(
                Commit(consumed=seen, timers=[Timer(_TTL, None)], again_at=claim.now + _PAUSE)
            )
            return
        self._cleaning.add(key)
        try:
            if claim.box.stopped:  # and with it the handlers
                await self._wait_for_handlers(key)
            await self._run_close_hooks(claim)
            gone = await self._discard(claim)
            if await claimed_box.commit_with_retry(Commit(forget_for=0)):
                self._close_hooks_ran.pop(key, None)
                self._forgotten(key)
        finally:
            self._cleaning.discard(key)
        if gone is not None:
            await self._delete(gone)

    async def _wait_for_handlers(self, key: str) -> None:
        try:
            async with self._services.clock.timeout(_PATIENCE_WITH_HANDLERS):
                await self._quiet(key)
        except TimeoutError:
            log.warning("a thread is cleaned up although a handler of it that was told to end still runs")

    async def _run_close_hooks(self, claim: Claim) -> None:
        key, life = claim.box.id, claim.box.created_at
        hooks = self._services.config.close_hooks
        if not hooks or self._close_hooks_ran.get(key) == life:
            return
        about = json.loads(claim.box.state)
        if claim.attempts > _MOST_ATTEMPTS:
            log.error(
                "the server was lost %d times while it cleaned up after a thread: what is to be run when one is closed is left out",
                claim.attempts - 1,
                extra={"thread_id": about["thread_id"]},
            )
            return
        records = await self._services.store.records(key, STATE)
        thread = ClosedThread(
            thread_id=about["thread_id"],
            caller=about["caller"],
            workspace=await self._services.thread_pool.run(partial(self._workspaces.existing, key)),
            state=MappingProxyType({record.key: json.loads(record.body) for record in records if record.key != USED}),
        )
        for hook in hooks:
            await run_close_hook(hook, thread, self._services.thread_pool, self._services.clock, _PATIENCE_WITH_HOOKS)
        self._close_hooks_ran[key] = life

    async def _discard(self, claim: Claim) -> "Path | None":
        try:
            return await self._services.thread_pool.run(partial(self._workspaces.discard, claim.box.id))
        except OSError as error:
            if claim.attempts < _MOST_ATTEMPTS:
                raise
            # Nothing would be gained by keeping the box: `delete_stale` finds what has none.
            log.error("the workspace of a thread cannot be removed and stays for now: %s", error)
            return None

    async def _delete(self, folder: "Path") -> None:
        try:
            await self._services.thread_pool.run(partial(delete, folder))
        except OSError as error:
            log.error("%s cannot be deleted; it is tried again once a day, or delete it yourself: %s", folder, error)

    async def delete_stale(self) -> None:
        """Delete the folders of threads that are over, and of unknown threads that were not touched for long.

        They are left behind when a server is lost: after it has forgotten a thread, or before it could make a new one known.
        """
        run = self._services.thread_pool.run
        try:
            for folder in await run(self._workspaces.discarded):
                await self._delete(folder)
            long_ago = self._services.clock.now() - self._keep
            for key in await run(partial(self._workspaces.untouched_since, long_ago)):
                if not await self._services.store.known(key) and (
                    gone := await run(partial(self._workspaces.discard, key))
                ):
                    await self._delete(gone)
        except (StoreError, OSError) as error:
            log.error("cannot look for workspaces that were left behind: %s", error)

    async def _delete_stale_daily(self) -> None:
        while True:
            await self.delete_stale()
            await self._services.clock.sleep(_DAY)

    async def record_in_use(self) -> None:
        """Record which threads are in use by this process, which alone knows."""
        while True:
            await self._services.clock.sleep(self._say_every)
            try:
                for key in self._in_use():
                    await self._services.store.accept(NewMail(key, _IN_USE, b""))
            except StoreError as error:
                log.error("cannot say which threads are in use: %s", error)
