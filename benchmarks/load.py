"""Load for a RAP tool server: invocations go out, callbacks come in, all on one event loop.

    python -m benchmarks.load http://127.0.0.1:8001 --seconds 5

A call is in flight from its POST until both its acknowledgement and its `tool_result` are there. Every call must get
exactly one result, and the right one; otherwise there are no figures but a `LoadError`.
"""

import argparse
import asyncio
import json
import time
import urllib.request
import uuid
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import uvloop
from pydantic_core import from_json, to_json

from benchmarks.connection import Connection, Sink
from benchmarks.figures import Figures

if TYPE_CHECKING:
    from collections.abc import Callable

IN_FLIGHT = 32
WARM_UP = 0.5
# How long a result may take once no new calls are made.
_DRAIN = 15.0
# How long to watch, after the last result, for one too many.
_LINGER = 0.2


class LoadError(Exception):
    """The server did something it must not; figures would mean nothing."""


def endpoint_of(base_url: str) -> str:
    """Ask a tool server where its invocations go."""
    with urllib.request.urlopen(f"{base_url}/.well-known/rap-toolset", timeout=5) as answer:
        return str(json.load(answer)["endpoint"])


@dataclass
class _Call:
    expected: str | None
    due: float
    is_acked: bool = False
    is_answered: bool = False


class Load:
    """Puts one server under load: `async with Load(endpoint) as load`."""

    def __init__(self, endpoint: str, in_flight: int = IN_FLIGHT) -> None:
        self._endpoint = endpoint
        self._in_flight = in_flight
        self._idle: deque[Connection] = deque()
        self._open: dict[str, _Call] = {}
        self._run = uuid.uuid4().hex[:12]
        self._count = 0
        self._figures: Figures | None = None
        self._on_ack: Callable[[], None] | None = None
        self._on_result: Callable[[], None] | None = None
        self._failure: LoadError | None = None

    async def __aenter__(self) -> Self:
        self._sink, self._callback_url = await Sink.listen(self._received)
        self._connections = [await Connection.open(self._endpoint) for _ in range(self._in_flight)]
        self._idle.extend(self._connections)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._sink.close()
        for connection in self._connections:
            connection.close()

    # What can be measured

    async def full(self, seconds: float, warm_up: float = WARM_UP) -> Figures:
        """Add numbers, with a new call for each that is completed."""
        self._on_result = self._add
        for _ in range(self._in_flight):
            self._add()
        await self._pass(warm_up)
        self._figures = figures = Figures()
        started = time.perf_counter()
        await self._pass(seconds)
        figures.seconds = time.perf_counter() - started
        self._figures = self._on_result = None
        await self._drain()
        return figures

    async def paced(self, rate: float, seconds: float, nap: float = 0.0) -> Figures:
        """Start calls at a steady rate, whatever becomes of the earlier ones, and look at their acknowledgements.

        With a nap, handlers sleep that long, every other one keeping a thread, and results are not waited for.
        """
        due: deque[float] = deque()

        def start() -> None:
            # From when it was due, not from when it was sent: a server that stalls must not stop the clock.
            while due and self._idle:
                if nap:
                    self._sleep(nap, due.popleft())
                else:
                    self._add(due.popleft())

        self._on_ack = start
        self._figures = figures = Figures(seconds)
        first = time.perf_counter()
        for number in range(int(rate * seconds)):
            await self._pass(max(0.0, first + number / rate - time.perf_counter()))
            due.append(time.perf_counter())
            start()
        await self._drain()
        self._figures = self._on_ack = None
        return figures

    async def occupy(self, calls: int, nap: float) -> None:
        """Give the server's workers something to sleep on."""
        for _ in range(calls):
            while not self._idle:
                await self._pass(0.001)
            self._sleep(nap)
        await self._drain()

    # One call

    def _add(self, due: float | None = None) -> None:
        self._call("add", {"a": self._count, "b": 1}, str(self._count + 1), due)

    def _sleep(self, nap: float, due: float | None = None) -> None:
        self._call("doze" if self._count % 2 else "nap", {"seconds": nap}, None, due)

    def _call(self, operation: str, arguments: dict[str, Any], expected: str | None, due: float | None) -> None:
        self._count += 1
        id_ = f"{self._run}-{self._count}"
        call = self._open[id_] = _Call(expected, due or time.perf_counter())
        connection = self._idle.popleft()
        message = {
            "operation": operation,
            "arguments": arguments,
            "id": id_,
            "callback_url": f"{self._callback_url}/{id_}",
            "group_id": f"{self._run}-{self._count % self._in_flight}",
        }
        connection.post(to_json(message), lambda status, _: self._acked(id_, call, connection, status))

    def _acked(self, id_: str, call: _Call, connection: Connection, status: int) -> None:
        if status != 200:
            self._fail(f"call {id_} was answered with {status or 'a closed connection'} instead of 200")
            return
        if self._figures is not None:
            self._figures.acks.append(time.perf_counter() - call.due)
        self._idle.append(connection)
        call.is_acked = True
        if call.is_answered or call.expected is None:
            self._complete(id_)
        if self._on_ack is not None:
            self._on_ack()

    def _received(self, body: bytes) -> None:
        message = from_json(body)
        id_, text = message.get("id"), message.get("text")
        call = self._open.get(id_)
        # A result may overtake its acknowledgement, so a call can be answered and still open.
        if call is None or call.is_answered:
            self._fail(f"a result came for call {id_} that nobody waits for: {text!r}")
        elif message.get("type") != "tool_result" or text != call.expected:
            self._fail(f"call {id_} should give {call.expected!r}, not {text!r}")
        else:
            call.is_answered = True
            if call.is_acked:
                self._complete(id_)

    def _complete(self, id_: str) -> None:
        del self._open[id_]
        if self._figures is not None:
            self._figures.calls += 1
        if self._on_result is not None:
            self._on_result()

    # Time

    async def _pass(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if self._failure is not None:
            raise self._failure

    async def _drain(self) -> None:
        deadline = time.perf_counter() + _DRAIN
        while self._open:
            if time.perf_counter() > deadline:
                raise LoadError(
                    f"{len(self._open)} calls got no result in {_DRAIN:.0f} s: {next(iter(self._open))} ..."
                )
            await self._pass(0.02)
        await self._pass(_LINGER)

    def _fail(self, words: str) -> None:
        self._failure = self._failure or LoadError(words)


async def _main(url: str, seconds: float, in_flight: int) -> None:
    async with Load(endpoint_of(url), in_flight) as load:
        busy = time.process_time()
        started = time.perf_counter()
        figures = await load.full(seconds)
        share = (time.process_time() - busy) / (time.perf_counter() - started)
    print(
        f"{figures.per_second:,.0f} calls/s, acknowledged within {figures.ack_ms(50):.1f} ms (p50), "
        f"{figures.ack_ms(99):.1f} ms (p99); the load generator took {share:.0%} of a core"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Put load on a RAP tool server that offers add(a, b).")
    parser.add_argument("url")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--in-flight", type=int, default=IN_FLIGHT)
    options = parser.parse_args()
    uvloop.run(_main(options.url, options.seconds, options.in_flight))
