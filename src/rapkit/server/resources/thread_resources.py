"""The resources of a thread: its workspace and its state, kept until the thread is closed.

All of it hangs on one box for each thread. The box is there from the moment a handler asks for the workspace, or with the commit that
brings the first change of the state; if the author wants to hear of closed threads, from the start of the thread's first call. See
`thread_cleanup.py` for how it ends.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakSet

from rapkit.errors import StoreError
from rapkit.mailbox import Fact, NewBox
from rapkit.server.invocation import StoredCall, thread_kind
from rapkit.server.resources.thread_cleanup import STATE, USED, ThreadCleanup
from rapkit.server.resources.thread_state import ThreadState
from rapkit.server.resources.workspaces import Workspaces

if TYPE_CHECKING:
    from rapkit.server.services import ToolsetServices

_MOST_REMEMBERED = 10_000

log = logging.getLogger("rapkit.threads")


def thread_box(call: StoredCall) -> NewBox:
    """The box of the thread that called. `stop` finds it as it finds the thread's calls."""
    about = {"thread_id": call.message.group_id, "caller": call.caller}
    key = call.thread_key
    return NewBox(id=key, kind=thread_kind(call.toolset), state=json.dumps(about).encode(), parent=key)


class Changes(NamedTuple):
    """What is to be committed with a call, or with an event."""

    spawn: Sequence[NewBox] = ()
    facts: Sequence[Fact] = ()


class ThreadResources:
    """What one run of a handler sees of its thread's resources."""

    __slots__ = ("__weakref__", "_call", "_changed", "_key", "_known", "_loop", "_resources", "_state", "_uses_folder")

    def __init__(self, resources: "Resources", call: StoredCall) -> None:
        self._resources = resources
        self._call = call
        self._key: str | None = None
        self._state: ThreadState | None = None
        self._changed: dict[str, bytes | None] | None = None
        self._known = False
        self._uses_folder = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def key(self) -> str:
        """The key of the thread."""
        if self._key is None:
            self._key = self._call.thread_key
        return self._key

    async def load(self) -> None:
        """Read the state: before the handler runs, because it cannot wait for it."""
        self._loop = asyncio.get_running_loop()
        records = await self._resources.services.store.records(self.key, STATE)
        self._state = ThreadState(record for record in records if record.key != USED)
        if records:
            self._known = True
            self._resources.begin_use(self)

    @property
    def state(self) -> ThreadState:
        """The state as it was loaded, and as the handler has changed it since."""
        assert self._state is not None, "whoever has a context has loaded it"
        return self._state

    def workspace(self) -> Path:
        """The folder, made if need be. From any thread."""
        if not self._uses_folder:
            self._uses_folder = True
            self._register_soon()
        return self._resources.workspaces.folder(self.key)

    def _register_soon(self) -> None:
        # Not only when the call ends: if the thread is closed, or the server lost, while it runs, the folder is cleaned up all the same.
        assert self._loop is not None, "whoever has a context has loaded it"
        with contextlib.suppress(RuntimeError):  # the server has stopped, and this function goes on in its thread
            self._loop.call_soon_threadsafe(self._resources.register, self)

    def settle(self) -> None:
        """Look what the handler has changed. Raises what `ThreadState` does if that cannot be kept, so that the call can fail with it."""
        self._changed = None if self._state is None else self._state.take()

    def changes(self, *, kept: bool) -> Changes:
        """What is to be committed; of what was done to the state nothing, unless it is `kept`.

        It is what the last `settle` saw. If there was none since the last time, this settles, and raises what that does.
        """
        if kept and self._changed is None:
            self.settle()
        changed = (self._changed if kept else None) or {}
        self._changed = None
        registers = self._uses_folder or changed or self._resources.has_hooks
        if not registers and not self._known:
            return Changes()
        facts = [Fact(self.key, STATE, key, body) for key, body in changed.items()]
        # With every call, because then it is exact on however many servers, and it costs one row.
        facts.append(Fact(self.key, STATE, USED, json.dumps(self._resources.services.clock.now()).encode()))
        return Changes([self.to_box()] if registers else [], facts)

    def to_box(self) -> NewBox:
        """The box of the thread."""
        return thread_box(self._call)


async def _at_once(_thread: str) -> None:
    """There is nothing to wait for."""


class Resources:
    """The resources of all threads of a toolset: given to calls, and cleaned up.

    `workspaces` is the folder they are in, or None for a temporary one. `quiet` returns when no handler of a thread runs here any more.
    """

    def __init__(
        self,
        services: "ToolsetServices",
        workspaces: Path | None,
        quiet: Callable[[str], Awaitable[None]] = _at_once,
    ) -> None:
        self.services = services
        self.workspaces = Workspaces(workspaces)
        self.has_hooks = bool(services.config.close_hooks)
        # Weak, because it only keeps a handler that is still at work from being taken for an abandoned thread.
        self._in_use: WeakSet[ThreadResources] = WeakSet()
        self._registered: dict[str, None] = {}
        self._registering: set[asyncio.Task[None]] = set()
        self.cleanup = ThreadCleanup(services, self.workspaces, quiet, self._keys_in_use, self._forgotten)

    def thread_resources(self, call: StoredCall) -> ThreadResources:
        """What a handler that is about to run for this call sees of its thread's resources."""
        thread_resources = ThreadResources(self, call)
        if self.has_hooks:
            self.register(thread_resources)
        return thread_resources

    def begin_use(self, thread_resources: ThreadResources) -> None:
        """As long as these resources are referenced, their thread is not forgotten."""
        self._in_use.add(thread_resources)

    def register(self, thread_resources: ThreadResources) -> None:
        """Make the box of a thread whose handler runs, soon. The commit that ends the call sees to it too."""
        self.begin_use(thread_resources)
        if thread_resources.key in self._registered:
            return
        if len(self._registered) >= _MOST_REMEMBERED:
            del self._registered[next(iter(self._registered))]
        self._registered[thread_resources.key] = None
        task = asyncio.create_task(self._make_box(thread_resources.to_box()))
        self._registering.add(task)
        task.add_done_callback(self._registering.discard)

    async def _make_box(self, box: NewBox) -> None:
        try:
            await self.services.store.create(box)
        except StoreError as error:
            log.error("a thread is not registered before its call ends: %s", error)
            self._registered.pop(box.id, None)

    def _keys_in_use(self) -> set[str]:
        return {thread_resources.key for thread_resources in self._in_use}

    def _forgotten(self, key: str) -> None:
        self._registered.pop(key, None)

    async def run(self) -> None:
        """Clean up after threads that are over, until cancelled."""
        await self.cleanup.run()

    @property
    def healthy(self) -> bool:
        """Whether it can be found out which threads are over."""
        return self.cleanup.healthy

    async def drain(self, patience: float) -> None:
        """Let what was begun end; what does not is done again after the next start."""
        if self._registering:
            await asyncio.wait(set(self._registering), timeout=patience)
        await self.cleanup.drain(patience)

    def close(self) -> None:
        """Delete the temporary folder, if there is one. When no handler runs any more."""
        self.workspaces.close()
