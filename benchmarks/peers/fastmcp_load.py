"""The same load for FastMCP: calls of add(a, b), 32 in flight, until each one's result is there.

Three ways to call it, because the client must not be what is measured: FastMCP's own client; plain POSTs in a session,
which is opened before the clock runs; plain POSTs without one, as the 2026 revision of MCP allows.

    python -m benchmarks.peers.fastmcp_load http://127.0.0.1:8002/mcp
"""

import asyncio
import itertools
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop
from fastmcp import Client
from pydantic_core import from_json, to_json

from benchmarks.connection import Connection
from benchmarks.figures import Figures
from benchmarks.load import IN_FLIGHT, WARM_UP, LoadError

_ACCEPT = "application/json, text/event-stream"
_META = "io.modelcontextprotocol"


async def own_client(url: str, seconds: float, warm_up: float = WARM_UP) -> Figures:
    """Call through FastMCP's client, all calls on one session."""
    figures = Figures()
    numbers = itertools.count()
    begin = time.perf_counter() + warm_up
    end = begin + seconds

    async with Client(url) as client:

        async def keep_calling() -> None:
            while time.perf_counter() < end:
                number = next(numbers)
                result = await client.call_tool("add", {"a": number, "b": 1})
                if result.data != str(number + 1):
                    raise LoadError(f"{number} + 1 gave {result.data!r}")
                if begin <= time.perf_counter() < end:
                    figures.calls += 1

        await asyncio.gather(*(keep_calling() for _ in range(IN_FLIGHT)))
    figures.seconds = seconds
    return figures


async def session_posts(url: str, seconds: float, warm_up: float = WARM_UP) -> Figures:
    """POST what a client of the 2025 revisions would, in one session."""
    headers = {"Accept": _ACCEPT, "Content-Type": "application/json", "Mcp-Protocol-Version": "2025-06-18"}
    parameters = {
        "protocolVersion": headers["Mcp-Protocol-Version"],
        "capabilities": {},
        "clientInfo": {"name": "benchmark", "version": "1"},
    }
    hello = to_json({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": parameters})
    with urllib.request.urlopen(urllib.request.Request(url, hello, headers)) as answer:
        headers["Mcp-Session-Id"] = answer.headers["Mcp-Session-Id"]
    ready = to_json({"jsonrpc": "2.0", "method": "notifications/initialized"})
    urllib.request.urlopen(urllib.request.Request(url, ready, headers)).close()
    return await _posts(url, headers, {}, seconds, warm_up)


async def envelope_posts(url: str, seconds: float, warm_up: float = WARM_UP) -> Figures:
    """POST what a client of the 2026 revision would: every request says for itself who asks."""
    version = "2026-07-28"
    headers = {
        "Accept": _ACCEPT,
        "Content-Type": "application/json",
        "Mcp-Protocol-Version": version,
        "Mcp-Method": "tools/call",
        "Mcp-Name": "add",
    }
    meta = {
        f"{_META}/protocolVersion": version,
        f"{_META}/clientInfo": {"name": "benchmark", "version": "1"},
        f"{_META}/clientCapabilities": {},
    }
    return await _posts(url, headers, {"_meta": meta}, seconds, warm_up)


WAYS: dict[str, Callable[[str, float], Awaitable[Figures]]] = {
    "own client": own_client,
    "POSTs in a session": session_posts,
    "POSTs without": envelope_posts,
}


async def _posts(url: str, headers: dict[str, str], extra: dict[str, Any], seconds: float, warm_up: float) -> Figures:
    figures = Figures()
    numbers = itertools.count()
    connections = [await Connection.open(url, headers) for _ in range(IN_FLIGHT)]
    begin = time.perf_counter() + warm_up
    end = begin + seconds
    finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    in_flight = 0

    def call(connection: Connection) -> None:
        nonlocal in_flight
        in_flight += 1
        number = next(numbers)
        parameters = {"name": "add", "arguments": {"a": number, "b": 1}} | extra
        body = to_json({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": parameters})
        connection.post(body, lambda status, answer: answered(connection, number, status, answer))

    def answered(connection: Connection, number: int, status: int, answer: bytes) -> None:
        nonlocal in_flight
        in_flight -= 1
        if finished.done():
            return
        if status != 200 or from_json(answer)["result"]["content"][0]["text"] != str(number + 1):
            finished.set_exception(LoadError(f"{number} + 1 gave {status}: {answer.decode()}"))
            return
        now = time.perf_counter()
        if begin <= now < end:
            figures.calls += 1
        if now < end:
            call(connection)
        elif in_flight == 0:
            finished.set_result(None)

    for connection in connections:
        call(connection)
    try:
        await finished
    finally:
        for connection in connections:
            connection.close()
    figures.seconds = seconds
    return figures


async def _main(url: str) -> None:
    for _ in range(3):
        for way, measure in WAYS.items():
            print(f"{way}: {(await measure(url, 1.5)).per_second:,.0f} calls/s")


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1]))
