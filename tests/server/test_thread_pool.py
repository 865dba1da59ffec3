"""Handlers that are plain functions."""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import AsyncIterator, Callable

import pytest

from rapkit import Toolset
from rapkit.server.thread_pool import ThreadPool
from tests.server.served_toolset import invocation, serving
from tests.server.sink import Sink

number: contextvars.ContextVar[int] = contextvars.ContextVar("number", default=0)


async def test_plain_functions_run_in_threads_all_at_once(toolset: Callable[..., Toolset], sink: Sink) -> None:
    """INV-8: none of them could end before all of them have begun."""
    tools = toolset()
    together = threading.Barrier(20, timeout=60)

    @tools.tool
    def meet() -> str:
        """Meet the others."""
        together.wait()
        return threading.current_thread().name

    async with serving(tools) as server:
        for _ in range(20):
            await server.invoke(invocation(sink.url, "meet"))
        names = {post.text for post in await sink.received(20)}

        assert len(names) == 20
        assert threading.current_thread().name not in names


async def test_the_author_s_context_reaches_handlers_of_both_kinds(toolset: Callable[..., Toolset], sink: Sink) -> None:
    @contextlib.asynccontextmanager
    async def lifespan(_tools: Toolset) -> AsyncIterator[None]:
        number.set(7)
        yield

    tools = toolset(lifespan=lifespan)

    def plus_one() -> int:
        number.set(number.get() + 1)
        return number.get()

    async def plus_one_async() -> int:
        return plus_one()

    tools.tool(plus_one)
    tools.tool(plus_one_async)
    async with serving(tools) as server:
        for operation in ("plus_one", "plus_one_async") * 3:
            await server.invoke(invocation(sink.url, operation))
        posts = await sink.received(6)

        # What one call changes, no other sees.
        assert [post.text for post in posts] == ["8"] * 6
    assert number.get() == 0


async def test_a_thread_is_used_again() -> None:
    threads = ThreadPool()
    names = [await threads.run(lambda: threading.current_thread().name) for _ in range(10)]
    threads.close()

    assert len(set(names)) == 1


async def test_a_function_waits_until_a_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is out of threads for a moment is no failure of the tool."""
    start = threading.Thread.start
    failures = [RuntimeError("can't start new thread")] * 2

    def start_later(thread: threading.Thread) -> None:
        if failures:
            raise failures.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_later)
    threads = ThreadPool()

    assert await threads.run(lambda: "done") == "done"
    assert not failures
    threads.close()


async def test_threads_are_daemons_and_end_when_closed() -> None:
    """A handler that sleeps for an hour must not keep a stopped server alive for an hour."""
    threads = ThreadPool()
    thread = await threads.run(threading.current_thread)
    assert thread.daemon

    threads.close()
    await asyncio.to_thread(thread.join, 10)

    assert not thread.is_alive()


async def test_whoever_is_cancelled_leaves_the_function_running_and_the_pool_in_order() -> None:
    threads = ThreadPool()
    release = threading.Event()
    begun = threading.Event()

    def block() -> None:
        begun.set()
        release.wait()

    waiting = asyncio.create_task(threads.run(block))
    await asyncio.to_thread(begun.wait, 10)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert await threads.run(lambda: "next") == "next"
    release.set()
    assert [await threads.run(lambda: "later") for _ in range(5)] == ["later"] * 5
    threads.close()


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(1), KeyboardInterrupt()], ids=repr)
async def test_what_a_function_raises_is_raised_where_it_is_awaited(error: BaseException) -> None:
    threads = ThreadPool()

    def fail() -> None:
        raise error

    caught: BaseException | None = None
    try:
        await threads.run(fail)
    except BaseException as raised:  # noqa: BLE001 - this is what is tested
        caught = raised
    threads.close()

    assert caught is error
