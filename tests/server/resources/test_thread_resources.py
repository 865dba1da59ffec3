"""What threads keep, and how it is cleaned up: on the notice, by time, and after every kind of interruption."""

import asyncio
import contextlib
import json
import logging
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from rapkit.errors import StoreBusy, ToolError
from rapkit.keyring import Keyring
from rapkit.mailbox import Claim, Commit, Fact, Outgoing, Record, Store, TakenPost
from rapkit.protocol import parse_invocation
from rapkit.server.claimed_box import ClaimedBox
from rapkit.server.config import Durations
from rapkit.server.invocation import StoredCall, call_kind, thread_key, thread_kind
from rapkit.server.limits import Limits
from rapkit.server.resources import thread_cleanup
from rapkit.server.resources.close_hooks import ClosedThread, CloseHook
from rapkit.server.resources.thread_resources import Resources, ThreadResources, thread_box
from rapkit.server.thread_pool import ThreadPool
from rapkit.stores.sqlite import SqliteStore
from tests.log_records import ours

if TYPE_CHECKING:
    from rapkit.delivery.outbox_sender import OutboxSender
    from rapkit.server.services import ToolsetServices

HOUR = 3600.0
DAY = 24 * HOUR
SOON = 10.0


class ManualClock:
    """Goes when it is told to."""

    def __init__(self) -> None:
        self._now = 1_700_000_000.0
        self._sleepers: list[tuple[float, asyncio.Event]] = []
        self._timeouts: list[tuple[float, asyncio.Timeout]] = []

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.Event()
        self._sleepers.append((self._now + seconds, woken))
        await woken.wait()

    async def sleepers(self, number: int) -> None:
        """Return when so many sleep."""
        async with asyncio.timeout(SOON):
            while sum(not woken.is_set() for _, woken in self._sleepers) < number:
                await asyncio.sleep(0.001)

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        limit = asyncio.timeout(None)
        if seconds is not None:
            self._timeouts.append((self._now + seconds, limit))
        return limit

    def advance(self, seconds: float) -> None:
        self._now += seconds
        for at, woken in self._sleepers:
            if at <= self._now:
                woken.set()
        for at, limit in self._timeouts:
            if at <= self._now:
                with contextlib.suppress(RuntimeError):  # it is over
                    limit.reschedule(asyncio.get_running_loop().time())


class NoOutboxSender:
    """Threads send nothing."""

    def reserve_for(self, outgoing: Sequence[Outgoing]) -> contextlib.AbstractContextManager[None]:
        assert not outgoing
        return contextlib.nullcontext()

    def submit(self, taken: Sequence[TakenPost], _since: float) -> None:
        assert not taken


@dataclass
class FakeConfig:
    """What `Resources` needs of a configuration."""

    toolset: str
    close_hooks: Sequence[CloseHook]
    durations: Durations
    limits: Limits = field(default_factory=Limits)


@dataclass
class FakeServices:
    """What `Resources` needs of its services."""

    config: FakeConfig
    worker: str
    store: Store
    clock: ManualClock
    thread_pool: ThreadPool

    def claimed_box(self, claim: Claim, callback_url: str) -> ClaimedBox:
        return ClaimedBox(self.store, cast("OutboxSender", NoOutboxSender()), claim, callback_url, str)


def call(thread_id: str = "t1", caller: str = "alice", toolset: str = "tools", id: str = "c1") -> StoredCall:
    message = {
        "type": "tool_invocation",
        "operation": "work",
        "group_id": thread_id,
        "id": id,
        "call_id": id,
        "arguments": {},
        "callback_url": "http://localhost/callback",
    }
    body = json.dumps(message).encode()
    return StoredCall(toolset, caller, parse_invocation(body), body)


@dataclass
class Server:
    """A server as far as threads go, with a store of its own on a shared file."""

    resources: Resources
    shop: FakeServices
    toolset: str
    tasks: list["asyncio.Task[None]"] = field(default_factory=list)

    @property
    def store(self) -> Store:
        return self.shop.store

    async def begin(self, call: StoredCall) -> tuple[Claim, ThreadResources]:
        """Accept a call and begin to run its handler."""
        claim = await self.store.create_claimed(call.to_box(), self.shop.worker)
        assert claim is not None
        thread_resources = self.resources.thread_resources(call)
        await thread_resources.load()
        return claim, thread_resources

    async def end(self, claim: Claim, thread_resources: ThreadResources, *, failed: bool = False) -> None:
        """Commit what the handler did."""
        changes = thread_resources.changes(kept=not failed)
        await self.store.commit(claim, Commit(spawn=changes.spawn, facts=changes.facts, forget_for=0))

    async def work(self, call: StoredCall, handler: Callable[[ThreadResources], Any] = lambda _: None) -> Any:
        """One call from its beginning to its end."""
        claim, thread_resources = await self.begin(call)
        result = handler(thread_resources)
        await self.end(claim, thread_resources)
        return result

    async def close_thread(self, thread_id: str = "t1", caller: str = "alice") -> None:
        """What the notice does."""
        kinds = [call_kind(self.toolset), thread_kind(self.toolset)]
        await self.store.stop(kinds, thread_key(self.toolset, caller, thread_id), None, 0)

    async def handle(self) -> None:
        """Do what is due, all of it, and return."""
        kind = thread_kind(self.toolset)
        while claims := await self.store.claim(self.shop.worker, kind, 100):
            await asyncio.gather(*(self.resources.cleanup.handle(claim) for claim in claims))

    def start(self) -> None:
        self.tasks.append(asyncio.create_task(self.resources.run()))

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.resources.drain(0)
        self.resources.close()


class World:
    """A store file, a clock, and servers that come and go."""

    def __init__(self, path: Path) -> None:
        self.clock = ManualClock()
        self.path = path
        self.root = path / "x.db.workspaces"
        self._keys = Keyring.random()
        self._servers: list[Server] = []

    async def server(
        self,
        *hooks: CloseHook,
        toolset: str = "tools",
        durations: Durations | None = None,
        quiet: Callable[[str], Awaitable[None]] | None = None,
        store: Callable[[Store], Store] = lambda store: store,
    ) -> Server:
        opened = store(SqliteStore(str(self.path / "x.db"), self._keys, clock=self.clock.now))
        config = FakeConfig(toolset, hooks, durations or Durations())
        shop = FakeServices(config, f"worker-{len(self._servers)}", opened, self.clock, ThreadPool())
        options = {} if quiet is None else {"quiet": quiet}
        server = Server(Resources(cast("ToolsetServices", shop), self.root, **options), shop, toolset)
        await opened.renew(shop.worker)
        self._servers.append(server)
        return server

    async def lose(self, server: Server) -> None:
        """The process is gone, and its lease has run out."""
        for task in server.tasks:
            task.cancel()
        await asyncio.gather(*server.tasks, return_exceptions=True)
        await server.store.retire(server.shop.worker)

    def folders(self) -> list[str]:
        return sorted(path.name for path in self.root.iterdir()) if self.root.exists() else []

    async def close(self) -> None:
        for server in self._servers:
            await server.stop()
            server.shop.thread_pool.close()
            await server.store.close()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    yield world
    await world.close()


async def until(true: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(SOON):
        while not await true():
            await asyncio.sleep(0.001)


async def registered(server: Server, call: StoredCall) -> None:
    """Return when the thread's box is there."""
    await until(lambda: server.store.box(call.thread_key))


def write(text: str) -> Callable[[ThreadResources], Path]:
    def handler(thread_resources: ThreadResources) -> Path:
        (thread_resources.workspace() / "note.txt").write_text(text)
        return thread_resources.workspace()

    return handler


def read(thread_resources: ThreadResources) -> str | None:
    file = thread_resources.workspace() / "note.txt"
    return file.read_text() if file.exists() else None


def put(**values: Any) -> Callable[[ThreadResources], None]:
    return lambda thread_resources: thread_resources.state.update(values)


def state(thread_resources: ThreadResources) -> dict[str, Any]:
    return dict(thread_resources.state)


class Diary:
    """Hooks that write down what they are told."""

    def __init__(self) -> None:
        self.threads: list[ClosedThread] = []
        self.notes: list[str | None] = []

    async def closed(self, thread: ClosedThread) -> None:
        self._write(thread)

    def closed_plainly(self, thread: ClosedThread) -> None:
        assert threading.current_thread() is not threading.main_thread()
        self._write(thread)

    def _write(self, thread: ClosedThread) -> None:
        file = thread.workspace / "note.txt" if thread.workspace else None
        self.threads.append(thread)
        self.notes.append(file.read_text() if file and file.exists() else None)


# What a thread keeps


async def test_a_thread_finds_in_its_next_call_what_it_left_in_the_last(world: World) -> None:
    server = await world.server()

    await server.work(call(id="c1"), write("hello"))
    await server.work(call(id="c2"), put(city="Oslo", tags=["cold"]))

    assert await server.work(call(id="c3"), read) == "hello"
    assert await server.work(call(id="c4"), state) == {"city": "Oslo", "tags": ["cold"]}
    again = await world.server()  # after a restart too
    assert await again.work(call(id="c5"), read) == "hello"
    assert await again.work(call(id="c6"), state) == {"city": "Oslo", "tags": ["cold"]}


async def test_nobody_reaches_what_another_caller_thread_or_toolset_keeps(world: World) -> None:
    """Semantics: who may touch what. The same thread id from two callers is two threads."""
    server, others = await world.server(), await world.server(toolset="others")
    await server.work(call(), write("mine"))
    await server.work(call(id="c2"), put(secret="mine"))

    for where, stranger in (
        (server, call("t1", "bob")),
        (server, call("t2", "alice")),
        (others, call("t1", "alice", "others")),
    ):
        claim, thread_resources = await where.begin(stranger)
        assert (read(thread_resources), state(thread_resources)) == (None, {})
        thread_resources.state["secret"] = "theirs"
        await where.end(claim, thread_resources)

    assert await server.work(call(id="c3"), state) == {"secret": "mine"}
    await server.close_thread("t1", "bob")
    await server.close_thread("t2", "alice")
    await others.close_thread("t1", "alice")
    await server.handle()
    await others.handle()
    assert await server.work(call(id="c4"), read) == "mine"
    assert await server.work(call(id="c5"), state) == {"secret": "mine"}


async def test_a_call_that_keeps_nothing_leaves_nothing(world: World) -> None:
    server = await world.server()

    await server.work(call())
    await server.work(call(id="c2"), state)
    server.resources.thread_resources(call(id="c3"))  # a handler without a context

    assert await server.store.box(call().thread_key) is None
    assert world.folders() == []


async def test_what_a_failed_call_did_to_the_state_is_forgotten(world: World) -> None:
    server = await world.server()
    await server.work(call(), put(count=1, tags=["a"]))

    claim, thread_resources = await server.begin(call(id="c2"))
    thread_resources.state["count"] = 2
    thread_resources.state["tags"].append("b")
    write("a failed call's files stay")(thread_resources)
    await server.end(claim, thread_resources, failed=True)

    assert await server.work(call(id="c3"), state) == {"count": 1, "tags": ["a"]}
    assert await server.work(call(id="c4"), read) == "a failed call's files stay"


async def test_what_a_failed_first_call_did_leaves_no_state(world: World) -> None:
    server = await world.server()
    claim, thread_resources = await server.begin(call())
    thread_resources.state["count"] = 1
    await server.end(claim, thread_resources, failed=True)

    assert await server.store.box(call().thread_key) is None


async def test_of_calls_at_once_the_last_to_end_wins_for_each_key_it_changed(world: World) -> None:
    server = await world.server()
    await server.work(call(id="c0"), put(same=0, left=0, right=0, gone=0))
    first, one = await server.begin(call(id="c1"))
    second, two = await server.begin(call(id="c2"))
    one.state.update(same=1, left=1)
    two.state.update(same=2, right=2)
    del two.state["gone"]
    assert one.state["right"] == 0

    await server.end(second, two)
    await server.end(first, one)

    assert await server.work(call(id="c3"), state) == {"same": 1, "left": 1, "right": 2}


async def test_a_state_that_cannot_be_kept_fails_the_call_and_nothing_else(world: World) -> None:
    server = await world.server()
    await server.work(call(), put(log=[], other=1))
    claim, thread_resources = await server.begin(call(id="c2"))
    thread_resources.state["other"] = 2
    thread_resources.state["log"].append("x" * 70_000)

    with pytest.raises(ToolError, match="can be kept"):
        thread_resources.settle()
    await server.end(claim, thread_resources, failed=True)

    assert await server.work(call(id="c3"), state) == {"log": [], "other": 1}


async def test_a_call_that_fails_after_it_was_settled_keeps_nothing(world: World) -> None:
    """Its result may turn out to be too large to be sent."""
    server = await world.server()
    claim, thread_resources = await server.begin(call())
    thread_resources.state["count"] = 1
    thread_resources.settle()
    await server.end(claim, thread_resources, failed=True)

    assert await server.work(call(id="c2"), state) == {}


async def test_what_was_settled_is_what_is_kept(world: World) -> None:
    server = await world.server()
    claim, thread_resources = await server.begin(call())
    thread_resources.state["log"] = ["in time"]
    thread_resources.settle()
    thread_resources.state["log"].append(object())  # a task that the handler has left running

    await server.end(claim, thread_resources)

    assert await server.work(call(id="c2"), state) == {"log": ["in time"]}


async def test_events_keep_what_has_changed_since_the_last_one(world: World) -> None:
    server = await world.server()
    claim, thread_resources = await server.begin(call())
    thread_resources.state.update(cursor=1, name="x")
    first = thread_resources.changes(kept=True)
    thread_resources.state["cursor"] = 2
    second = thread_resources.changes(kept=True)
    await server.store.commit(claim, Commit(spawn=first.spawn, facts=first.facts, keep=True))
    await server.store.commit(claim, Commit(spawn=second.spawn, facts=second.facts, forget_for=0))

    assert [fact.key for fact in second.facts] == ["cursor", ""]
    assert await server.work(call(id="c2"), state) == {"cursor": 2, "name": "x"}


async def test_a_plain_function_has_a_workspace_too(world: World) -> None:
    """In a thread, where the event loop cannot be asked for anything."""
    server = await world.server()
    claim, thread_resources = await server.begin(call())

    folder = await server.shop.thread_pool.run(thread_resources.workspace)

    assert folder.is_dir()
    await registered(server, call())
    await server.end(claim, thread_resources)


# The notice


async def test_closing_a_thread_cleans_up_and_tells_the_hooks_once(world: World) -> None:
    """CLO-5"""
    diary = Diary()
    server = await world.server(diary.closed, diary.closed_plainly)
    await server.work(call(), write("hello"))
    await server.work(call(id="c2"), put(city="Oslo"))

    await server.close_thread()
    await server.handle()

    first, second = diary.threads
    assert first == second
    assert (first.thread_id, first.caller, first.state) == ("t1", "alice", {"city": "Oslo"})
    assert first.workspace == world.root.resolve() / call().thread_key
    assert diary.notes == ["hello", "hello"]
    assert world.folders() == []
    assert await server.store.records(call().thread_key, "state") == []
    assert not await server.store.known(call().thread_key)


async def test_hooks_cannot_change_the_state(world: World) -> None:
    diary = Diary()
    server = await world.server(diary.closed)
    await server.work(call(), put(city="Oslo"))
    await server.close_thread()
    await server.handle()

    with pytest.raises(TypeError):
        cast("dict[str, Any]", diary.threads[0].state)["city"] = "Bergen"


async def test_hooks_hear_of_threads_that_have_only_called(world: World) -> None:
    """The author may have opened a browser for it: nothing rapkit knows of."""
    diary = Diary()
    server = await world.server(diary.closed)
    thread_resources = server.resources.thread_resources(call())  # a handler without a context
    await registered(server, call())
    assert thread_resources.changes(kept=True).spawn == [thread_box(call())]

    await server.close_thread()
    await server.handle()

    assert [(thread.thread_id, thread.workspace, thread.state) for thread in diary.threads] == [("t1", None, {})]


async def test_a_close_during_the_first_call_of_a_thread_cleans_up_too(world: World) -> None:
    """CLO-11: nothing of the call was committed yet."""
    diary = Diary()
    plain, hooked = await world.server(), await world.server(diary.closed)
    for server in (plain, plain, hooked, hooked):  # in a second life of the thread as in its first
        claim, thread_resources = await server.begin(call())
        write("half done")(thread_resources)
        await registered(server, call())

        await server.close_thread()
        await server.handle()

        assert world.folders() == []
        assert await server.store.box(call().thread_key) is None
        (stopped,) = await server.store.claim(server.shop.worker, claim.box.kind, 1)
        await server.store.commit(stopped, Commit(forget_for=0))
    assert diary.notes == ["half done", "half done"]


async def test_a_notice_before_the_first_call_or_for_a_thread_nobody_knows_does_nothing(world: World) -> None:
    """CLO-11"""
    diary = Diary()
    server = await world.server(diary.closed)
    await server.close_thread("../../etc")
    await server.close_thread()
    await server.handle()

    await server.work(call(), write("came later"))
    await server.handle()

    assert diary.threads == []
    assert await server.work(call(id="c2"), read) == "came later"


async def test_repeated_notices_are_harmless(world: World) -> None:
    """CLO-5"""
    diary = Diary()
    server = await world.server(diary.closed)
    await server.work(call(), write("hello"))
    await server.close_thread()
    await server.close_thread()
    await server.handle()
    await server.close_thread()
    await server.handle()

    assert len(diary.threads) == 1
    assert world.folders() == []


async def test_a_notice_repeated_while_the_hooks_run_does_not_run_them_again(world: World) -> None:
    """CLO-5"""
    began, go_on = asyncio.Event(), asyncio.Event()
    told: list[str] = []

    async def slow(thread: ClosedThread) -> None:
        told.append(thread.thread_id)
        began.set()
        await go_on.wait()

    server = await world.server(slow)
    await server.work(call(), write("hello"))
    await server.close_thread()
    tending = asyncio.create_task(server.handle())
    await began.wait()
    for _ in range(3):
        await server.close_thread()  # takes the box from us
        await server.handle()
    go_on.set()
    await tending
    world.clock.advance(SOON)
    await server.handle()

    assert told == ["t1"]
    assert world.folders() == []
    assert await server.store.box(call().thread_key) is None


async def test_a_thread_that_calls_again_after_it_was_closed_begins_anew(world: World) -> None:
    """CLO-11"""
    diary = Diary()
    server = await world.server(diary.closed)
    for number in range(3):
        claim, thread_resources = await server.begin(call(id=f"c{number}"))
        assert (read(thread_resources), state(thread_resources)) == (None, {})
        write(f"life {number}")(thread_resources)
        thread_resources.state["life"] = number
        await server.end(claim, thread_resources)
        await server.close_thread()
        await server.handle()

    assert [thread.state for thread in diary.threads] == [{"life": 0}, {"life": 1}, {"life": 2}]
    assert diary.notes == ["life 0", "life 1", "life 2"]


async def test_cleaning_up_waits_for_handlers_that_are_still_at_it(world: World) -> None:
    asked: list[str] = []
    ended = asyncio.Event()

    async def quiet(thread: str) -> None:
        asked.append(thread)
        await ended.wait()

    diary = Diary()
    server = await world.server(diary.closed, quiet=quiet)
    await server.work(call(), write("still being written"))
    await server.close_thread()
    tending = asyncio.create_task(server.handle())
    await until(lambda: asyncio.sleep(0, asked))
    folder = server.resources.workspaces.existing(call().thread_key)
    assert folder is not None
    (folder / "note.txt").write_text("written to the end")
    ended.set()
    await tending

    assert asked == [call().thread_key]
    assert diary.notes == ["written to the end"]
    assert world.folders() == []


async def test_a_handler_that_never_ends_does_not_keep_its_thread_from_being_cleaned_up(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[str] = []

    async def quiet(thread: str) -> None:
        asked.append(thread)
        await asyncio.Event().wait()

    server = await world.server(quiet=quiet)
    await server.work(call(), write("hello"))
    await server.close_thread()
    tending = asyncio.create_task(server.handle())
    await until(lambda: asyncio.sleep(0, asked))

    world.clock.advance(SOON)
    await tending

    assert world.folders() == []
    assert "still runs" in caplog.text


async def test_the_keeper_hears_of_a_closed_thread_by_itself(world: World) -> None:
    diary = Diary()
    server = await world.server(diary.closed)
    server.start()
    await server.work(call(), write("hello"))
    await server.close_thread()

    await until(lambda: asyncio.sleep(0, diary.notes == ["hello"] and world.folders() == []))

    assert server.resources.healthy


# Hooks that misbehave


async def fails(_: ClosedThread) -> None:
    raise ValueError("hook trouble")


def fails_plainly(_: ClosedThread) -> None:
    raise ValueError("hook trouble")


def exits(_: ClosedThread) -> None:
    raise SystemExit(3)


async def exits_at_once(_: ClosedThread) -> None:
    raise SystemExit(3)


async def cancels(_: ClosedThread) -> None:
    raise asyncio.CancelledError


async def times_out(_: ClosedThread) -> None:
    raise TimeoutError("of its own")


class Cleaner:
    """An object that is called like a function, and awaited."""

    async def __call__(self, _: ClosedThread) -> None:
        raise ValueError("hook trouble")


@pytest.mark.parametrize("hook", [fails, fails_plainly, exits, exits_at_once, cancels, times_out, Cleaner()])
async def test_a_hook_that_fails_is_logged_and_the_others_still_run(
    world: World, hook: CloseHook, caplog: pytest.LogCaptureFixture
) -> None:
    diary = Diary()
    server = await world.server(diary.closed, hook, diary.closed)
    await server.work(call(), write("hello"))
    await server.close_thread()
    await server.handle()

    assert diary.notes == ["hello", "hello"]
    assert world.folders() == []
    assert await server.store.box(call().thread_key) is None
    (record,) = [record for record in ours(caplog) if record.levelno >= logging.ERROR]
    assert "run because a thread was closed" in record.getMessage()
    assert "did not end" not in record.getMessage()


@pytest.mark.parametrize("plain", [True, False])
async def test_a_hook_that_hangs_is_given_up_and_the_others_still_run(
    world: World, plain: bool, caplog: pytest.LogCaptureFixture
) -> None:
    began, ended = threading.Event(), threading.Event()

    async def hangs(_: ClosedThread) -> None:
        began.set()
        await asyncio.Event().wait()

    def hangs_plainly(_: ClosedThread) -> None:
        began.set()
        ended.wait()

    diary = Diary()
    server = await world.server(hangs_plainly if plain else hangs, diary.closed)
    await server.work(call(), write("hello"))
    await server.close_thread()
    tending = asyncio.create_task(server.handle())
    await until(lambda: asyncio.sleep(0, began.is_set()))

    world.clock.advance(HOUR)
    await tending
    ended.set()

    assert diary.notes == ["hello"]
    assert world.folders() == []
    assert "did not end within 60 s" in caplog.text


# Interruptions


class Lossy:
    """A store in a process that is lost when it is about to forget a thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reached = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, claim: Claim, commit: Commit, sender: str | None = None) -> Any:
        if claim.box.kind == thread_kind("tools") and commit.forget_for is not None:
            self.reached.set()
            await asyncio.Event().wait()
        return await self._store.commit(claim, commit, sender)


async def lost_while(world: World, server: Server, reached: asyncio.Event) -> None:
    """Lose a server at this point of its clean-up."""
    tending = asyncio.create_task(server.handle())
    await reached.wait()
    tending.cancel()
    await asyncio.gather(tending, return_exceptions=True)
    await world.lose(server)


async def test_a_thread_closed_just_before_the_server_is_lost_is_cleaned_up_after_the_restart(world: World) -> None:
    """CLO-5"""
    server = await world.server()
    await server.work(call(), write("hello"))
    await server.close_thread()
    await world.lose(server)

    diary = Diary()
    again = await world.server(diary.closed)
    await again.handle()

    assert diary.notes == ["hello"]
    assert world.folders() == []


async def test_a_server_lost_in_a_hook_is_followed_by_one_that_runs_it_again(world: World) -> None:
    """At least once: an author's hook must bear to be repeated."""
    reached = asyncio.Event()

    async def hangs(_: ClosedThread) -> None:
        reached.set()
        await asyncio.Event().wait()

    server = await world.server(hangs)
    await server.work(call(), write("hello"))
    await server.work(call(id="c2"), put(city="Oslo"))
    await server.close_thread()
    await lost_while(world, server, reached)
    assert world.folders() == [call().thread_key]

    diary = Diary()
    again = await world.server(diary.closed)
    await again.handle()

    assert diary.notes == ["hello"]
    assert diary.threads[0].state == {"city": "Oslo"}
    assert world.folders() == []
    assert await again.store.box(call().thread_key) is None


async def test_a_server_lost_before_it_forgets_the_thread_is_followed_by_one_that_does(world: World) -> None:
    lossy: list[Lossy] = []

    def lose(store: Store) -> Store:
        lossy.append(Lossy(store))
        return cast("Store", lossy[0])

    server = await world.server(store=lose)
    await server.work(call(), write("hello"))
    await server.close_thread()
    await lost_while(world, server, lossy[0].reached)
    (left,) = world.folders()
    assert left.startswith("gone_")

    diary = Diary()
    again = await world.server(diary.closed)
    await again.handle()

    assert [thread.workspace for thread in diary.threads] == [None]
    assert await again.store.box(call().thread_key) is None
    await again.resources.cleanup.delete_stale()
    assert world.folders() == []


async def test_a_server_lost_before_it_has_deleted_everything_is_followed_by_one_that_does(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(_: Path) -> None:
        raise asyncio.CancelledError

    server = await world.server()
    await server.work(call(), write("hello"))
    await server.close_thread()
    with monkeypatch.context() as patch:
        patch.setattr(thread_cleanup, "delete", lost)
        await asyncio.gather(server.handle(), return_exceptions=True)
    assert await server.store.box(call().thread_key) is None
    assert len(world.folders()) == 1
    assert await server.work(call(id="c2"), read) is None

    again = await world.server()
    again.start()

    await until(lambda: asyncio.sleep(0, world.folders() == [call().thread_key]))


async def test_a_hook_that_takes_the_server_with_it_is_left_out_in_the_end(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    runs: list[str] = []
    reached = asyncio.Event()

    async def deadly(thread: ClosedThread) -> None:
        runs.append(thread.thread_id)
        reached.set()
        await asyncio.Event().wait()

    server = await world.server(deadly)
    await server.work(call(), write("hello"))
    await server.handle()
    await server.close_thread()
    for _ in range(4):
        reached.clear()
        await lost_while(world, server, reached)
        server = await world.server(deadly)
    await server.handle()

    assert len(runs) == 4
    assert world.folders() == []
    assert await server.store.box(call().thread_key) is None
    assert "is left out" in caplog.text


async def test_a_store_that_cannot_be_read_for_a_while_delays_the_cleaning_up(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    class Busy:
        def __init__(self, store: Store) -> None:
            self._store = store
            self.is_busy = False

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        async def records(self, box: str, kind: str) -> list[Record]:
            if self.is_busy:
                raise StoreBusy("locked")
            return await self._store.records(box, kind)

    busy: list[Busy] = []

    def make(store: Store) -> Store:
        busy.append(Busy(store))
        return cast("Store", busy[0])

    diary = Diary()
    server = await world.server(diary.closed, store=make)
    await server.work(call(), write("hello"))
    await server.close_thread()
    busy[0].is_busy = True
    await server.handle()
    assert "will try again: locked" in caplog.text
    busy[0].is_busy = False
    await server.handle()
    assert diary.notes == []  # not at once

    world.clock.advance(SOON)
    await server.handle()

    assert diary.notes == ["hello"]
    assert world.folders() == []


async def test_a_folder_that_cannot_be_removed_is_tried_again_and_then_left_to_the_daily_round(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: str) -> None:
        tries.append("discard")
        raise PermissionError("read-only file system")

    tries: list[str] = []
    diary = Diary()
    server = await world.server(diary.closed)
    await server.work(call(), write("hello"))
    await server.handle()
    await server.close_thread()
    with monkeypatch.context() as patch:
        patch.setattr(server.resources.workspaces, "discard", refuse)
        for _ in range(6):
            await server.handle()
            world.clock.advance(HOUR)

    assert len(tries) == 4
    assert diary.notes == ["hello"]  # they are not told again of the same thread
    assert await server.store.box(call().thread_key) is None
    assert world.folders() == [call().thread_key]
    assert "cannot be removed" in caplog.text
    world.clock.advance(31 * DAY)
    os.utime(world.root / call().thread_key, (0, 0))
    await server.resources.cleanup.delete_stale()
    assert world.folders() == []


async def test_a_folder_that_cannot_be_deleted_is_said_and_tried_again_daily(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(folder: Path) -> None:
        raise PermissionError(f"{folder.name} holds what is not ours")

    server = await world.server()
    await server.work(call(), write("hello"))
    await server.close_thread()
    with monkeypatch.context() as patch:
        patch.setattr(thread_cleanup, "delete", refuse)
        await server.handle()
        await server.resources.cleanup.delete_stale()
    assert caplog.text.count("delete it yourself") == 2
    assert await server.store.box(call().thread_key) is None
    assert len(world.folders()) == 1

    await server.resources.cleanup.delete_stale()

    assert world.folders() == []


# Time


async def test_a_thread_nobody_closes_is_forgotten_after_its_time(world: World) -> None:
    """CLO-9, CLO-11: correct if no notice ever comes."""

    async def quiet(_: str) -> None:
        raise AssertionError("nobody was told to end")

    diary = Diary()
    server = await world.server(diary.closed, quiet=quiet)
    await server.work(call(), write("hello"))
    await server.work(call(id="c2"), put(city="Oslo"))
    await server.handle()

    world.clock.advance(30 * DAY - 1)
    await server.handle()
    assert diary.threads == []

    world.clock.advance(2)
    await server.handle()
    assert [(thread.thread_id, thread.state) for thread in diary.threads] == [("t1", {"city": "Oslo"})]
    assert diary.notes == ["hello"]
    assert world.folders() == []
    assert await server.work(call(id="c3"), state) == {}


@pytest.mark.parametrize("use", [read, put(x=1), state, lambda _: None], ids=["folder", "change", "look", "nothing"])
async def test_every_call_with_a_context_prolongs_the_time_of_what_is_kept(
    world: World, use: Callable[[ThreadResources], Any]
) -> None:
    server = await world.server()
    await server.work(call(), put(city="Oslo"))
    await server.handle()
    for number in range(4):
        world.clock.advance(20 * DAY)
        await server.work(call(id=f"again {number}"), use)
        await server.handle()
        assert (await server.work(call(id=f"look {number}"), state))["city"] == "Oslo"

    world.clock.advance(30 * DAY)
    await server.handle()

    assert await server.store.box(call().thread_key) is None


async def test_time_that_passed_while_no_server_ran_counts(world: World) -> None:
    """CLO-9"""
    server = await world.server()
    await server.work(call("old"), write("old"))
    await server.handle()
    await server.work(call("never tended"), write("old"))
    world.clock.advance(20 * DAY)
    await server.work(call("new"), write("new"))
    await world.lose(server)

    world.clock.advance(20 * DAY)
    again = await world.server()
    await again.handle()

    assert world.folders() == [call("new").thread_key]


async def test_a_thread_is_not_forgotten_while_a_handler_of_it_runs(world: World) -> None:
    server = await world.server(durations=Durations(keep_threads=60))
    claim, thread_resources = await server.begin(call())
    write("hello")(thread_resources)
    await registered(server, call())
    await server.handle()
    for _ in range(5):
        world.clock.advance(61)
        await server.handle()
    assert read(thread_resources) == "hello"

    await server.end(claim, thread_resources)
    del thread_resources
    for _ in range(2):
        world.clock.advance(61)
        await server.handle()

    assert world.folders() == []


async def test_a_state_is_not_forgotten_while_a_handler_that_has_seen_it_runs(world: World) -> None:
    """It would keep what it changes, and the rest would be gone."""
    server = await world.server(durations=Durations(keep_threads=60))
    await server.work(call(), put(a=1, b=1))
    await server.handle()
    claim, thread_resources = await server.begin(call(id="c2"))
    world.clock.advance(61)
    await server.handle()
    thread_resources.state["b"] = 2
    await server.end(claim, thread_resources)

    assert await server.work(call(id="c3"), state) == {"a": 1, "b": 2}


async def test_a_thread_is_not_forgotten_while_a_handler_of_it_runs_on_another_server(world: World) -> None:
    server = await world.server(durations=Durations(keep_threads=60))
    other = await world.server(durations=Durations(keep_threads=60))
    claim, thread_resources = await server.begin(call())
    write("hello")(thread_resources)
    await registered(server, call())
    saying = asyncio.create_task(server.resources.cleanup.record_in_use())
    await other.handle()
    for _ in range(10):
        await world.clock.sleepers(1)
        world.clock.advance(16)
        await until(lambda: is_due(other))
        await other.handle()
    assert read(thread_resources) == "hello"

    await server.end(claim, thread_resources)
    saying.cancel()
    await asyncio.gather(saying, return_exceptions=True)
    del thread_resources
    for _ in range(2):
        world.clock.advance(61)
        await other.handle()

    assert world.folders() == []


async def is_due(server: Server) -> bool:
    return await server.store.next_due(thread_kind("tools")) == 0


async def test_a_choice_remembered_for_a_thread_goes_with_it(world: World) -> None:
    """Others may keep things beside the box too."""
    server = await world.server()
    claim = await server.store.create_claimed(call().to_box(), server.shop.worker)
    assert claim is not None
    fact = Fact(call().thread_key, "remembered", "r_1", b'"Yes"')
    await server.store.commit(claim, Commit(spawn=[thread_box(call())], facts=[fact], forget_for=0))
    await server.handle()
    world.clock.advance(29 * DAY)
    await server.handle()
    assert len(await server.store.records(call().thread_key, "remembered")) == 1

    world.clock.advance(2 * DAY)
    await server.handle()

    assert await server.store.records(call().thread_key, "remembered") == []


# What a lost server leaves behind


async def test_folders_nobody_knows_are_deleted_when_they_are_old(world: World) -> None:
    """CLO-9: the server was lost after a handler had asked for its workspace, and before that was written down."""
    server = await world.server()
    kept = await server.work(call("kept"), write("kept"))
    old, new = (server.resources.workspaces.folder(call(name).thread_key) for name in ("old", "new"))
    notes = world.root / "notes of the operator"
    notes.mkdir()
    for folder in (kept, old, notes):
        os.utime(folder, (0, 0))
    os.utime(new, (world.clock.now(), world.clock.now()))
    await world.lose(server)

    again = await world.server()
    again.start()
    await world.clock.sleepers(2)
    assert world.folders() == sorted(folder.name for folder in (kept, new, notes))

    world.clock.advance(31 * DAY)  # and a day later
    await world.clock.sleepers(2)
    assert not new.exists()
    assert notes.exists()


async def test_a_folder_of_another_toolset_on_the_same_store_is_not_taken_for_a_lost_one(world: World) -> None:
    server, others = await world.server(), await world.server(toolset="others")
    folder = await others.work(call(toolset="others"), write("theirs"))
    os.utime(folder, (0, 0))

    await server.resources.cleanup.delete_stale()

    assert folder.exists()


async def test_a_temporary_root_ends_with_the_server(world: World) -> None:
    server = await world.server()
    resources = Resources(cast("ToolsetServices", server.shop), None)
    thread_resources = resources.thread_resources(call())
    await thread_resources.load()
    folder = thread_resources.workspace()
    await registered(server, call())

    await resources.drain(0)
    resources.close()

    assert not folder.parent.exists()


async def test_a_function_that_goes_on_after_the_server_has_stopped_is_told_nothing_strange(world: World) -> None:
    """Nothing can stop a thread. What it makes is found when it is old."""
    server = await world.server()
    _, thread_resources = await server.begin(call())
    thread_resources._loop = asyncio.new_event_loop()
    thread_resources._loop.close()

    assert thread_resources.workspace().is_dir()
