"""Iterate over an author's generator, async or plain, one value at a time."""

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any, Final, Protocol

from rapkit.server.thread_pool import ThreadPool
from rapkit.server.tools.signature import Signature

DONE: Final = object()
"""What is there instead of a value when the generator has returned."""

Outcome = tuple[Any, BaseException | None]
"""A value, or what was raised. Not simply raised, because a future or a task lets some of what authors raise out into the event loop."""


class GeneratorSteps(Protocol):
    """The values of a generator, one by one."""

    def ask(self) -> "asyncio.Future[Outcome]":
        """The next value, or `DONE`, or what the generator raised. Not to be asked again before it is there."""

    def close(self) -> "asyncio.Future[None]":
        """Have the generator end where it stands; done when it has. It may take its time, or never end."""


def steps_of(signature: Signature, arguments: dict[str, Any], thread_pool: ThreadPool) -> GeneratorSteps:
    """The steps of a generator function, called with these arguments. Nothing of it runs before it is asked."""
    if signature.is_async:
        return _AsyncSteps(signature, arguments)
    return _PlainSteps(iter(signature.function(**arguments)), thread_pool)


class _AsyncSteps:
    """An async generator in a task of its own.

    Always the same one, because timeouts and task groups that are open across a `yield` belong to the task they were opened in; and not
    ours, because they would cancel us.
    """

    def __init__(self, signature: Signature, arguments: dict[str, Any]) -> None:
        self._signature = signature
        self._arguments = arguments
        self._iterator: AsyncIterator[Any] | None = None
        self._asked: asyncio.Future[Outcome] | None = None
        self._wanted = asyncio.Event()
        self._closing = asyncio.Event()
        self._task = asyncio.create_task(self._drive())

    def ask(self) -> "asyncio.Future[Outcome]":
        self._asked = asyncio.get_running_loop().create_future()
        self._wanted.set()
        return self._asked

    def close(self) -> "asyncio.Future[None]":
        self._closing.set()
        if self._asked is not None:
            self._asked.cancel()
        self._task.cancel()
        return self._task

    async def _drive(self) -> None:
        ahead: Outcome | None = None
        try:
            while not self._closing.is_set():
                try:
                    await self._wanted.wait()
                except asyncio.CancelledError as error:
                    athrow = getattr(self._iterator, "athrow", None)
                    if self._closing.is_set() or athrow is None:
                        raise
                    # A timeout or a task group of the generator's own, open across the yield, wants its task to stop. It knows why.
                    ahead = await _outcome(athrow(error))
                    continue
                self._wanted.clear()
                self._answer(await _outcome(self._step()) if ahead is None else ahead)
                ahead = None
        finally:
            if (aclose := getattr(self._iterator, "aclose", None)) is not None:
                await aclose()

    async def _step(self) -> Any:
        if self._iterator is None:
            opened = self._signature.function(**self._arguments)
            if inspect.isawaitable(opened):  # a decorator may have made it so
                opened = await opened
            self._iterator = aiter(opened)
        return await anext(self._iterator)

    def _answer(self, outcome: Outcome) -> None:
        assert self._asked is not None
        if not self._asked.done():  # else we are being closed, and no task waits any more
            self._asked.set_result(outcome)


async def _outcome(step: Awaitable[Any]) -> Outcome:
    try:
        return await step, None
    except StopAsyncIteration:
        return DONE, None
    except GeneratorExit:
        raise  # the event loop is gone, and nothing can be awaited any more
    except BaseException as error:  # noqa: BLE001 - authors raise anything; it belongs to the caller
        return None, error


class _PlainSteps:
    """A plain generator. Each step is made on some thread; a step that is under way cannot be interrupted."""

    def __init__(self, iterator: Iterator[Any], thread_pool: ThreadPool) -> None:
        self._iterator = iterator
        self._thread_pool = thread_pool
        self._asked: asyncio.Future[Outcome] | None = None
        self._at_work = threading.Lock()

    def ask(self) -> "asyncio.Future[Outcome]":
        self._asked = asyncio.ensure_future(self._thread_pool.run(self._step))
        return self._asked

    def close(self) -> "asyncio.Future[None]":
        if self._asked is not None:
            self._asked.cancel()
        return asyncio.ensure_future(self._thread_pool.run(self._end))

    def _step(self) -> Outcome:
        try:
            with self._at_work:
                return next(self._iterator, DONE), None
        except BaseException as error:  # noqa: BLE001 - authors raise anything; it belongs to the caller
            return None, error

    def _end(self) -> None:
        # After the step that is under way, if there is one: until then it is not closed.
        with self._at_work:
            if (close := getattr(self._iterator, "close", None)) is not None:
                close()
