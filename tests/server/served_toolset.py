"""A toolset served on a real socket of this machine, and the few words its tests are written in."""

import asyncio
import contextlib
import itertools
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import uvicorn
from starlette.types import ASGIApp

from rapkit import Toolset
from rapkit.mailbox import OutboxRow, Store
from rapkit.server.invocation import call_kind
from rapkit.stores import open_store
from tests.server.sink import PATIENCE

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Reply:
    """What a server answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def detail(self) -> str:
        """What a problem document says."""
        assert self.headers["content-type"] == "application/problem+json"
        problem = self.json
        assert problem["status"] == self.status
        detail: str = problem["detail"]
        return detail


async def exchange(port: int, request: bytes) -> Reply:
    """Send bytes, read one answer."""
    async with asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(request)
            return await read_reply(reader, head_only=request.startswith(b"HEAD"))
        finally:
            writer.close()


async def read_reply(reader: asyncio.StreamReader, *, head_only: bool = False) -> Reply:
    """One answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = b"" if head_only else await reader.readexactly(int(headers["content-length"]))
    return Reply(int(first.split(" ")[1]), headers, body)


def invocation(callback_url: str, operation: str = "echo", /, **fields: Any) -> dict[str, Any]:
    """An invocation with an id of its own; a field given as `...` is left out."""
    message: dict[str, Any] = {
        "operation": operation,
        "arguments": {},
        "id": f"call_{next(_numbers)}",
        "callback_url": callback_url,
        "group_id": "thread_1",
    }
    message.update(fields)
    return {key: value for key, value in message.items() if value is not ...}


class ServedToolset:
    """A running server, as its callers see it."""

    def __init__(self, port: int, tools: Toolset) -> None:
        self.port = port
        self._store = tools.store_url
        self._kind = call_kind(tools.name)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    async def request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str | None] | None = None
    ) -> Reply:
        """One request on a connection of its own. A header given as None is left out."""
        given: dict[str, str | None] = {
            "Host": f"127.0.0.1:{self.port}",
            "Connection": "close",
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            **(headers or {}),
        }
        lines = [f"{name}: {value}\r\n" for name, value in given.items() if value is not None]
        head = f"{method} {path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode("latin-1")
        return await exchange(self.port, head + body)

    async def get(self, path: str, **headers: str | None) -> Reply:
        """GET."""
        return await self.request("GET", path, headers=headers)

    async def post(self, path: str, message: object, token: str | None = None) -> Reply:
        """POST a message as JSON."""
        headers = {"Authorization": f"Bearer {token}"} if token else None
        return await self.request("POST", path, json.dumps(message).encode(), headers)

    async def invoke(self, message: object, token: str | None = None) -> Reply:
        """POST an invocation."""
        return await self.post("/invoke", message, token)

    async def cancel(self, thread_id: object, call_id: object, token: str | None = None) -> Reply:
        """POST a cancellation."""
        return await self.post("/cancel_tool_call", {"thread_id": thread_id, "tool_call_id": call_id}, token)

    async def quiet(self) -> None:
        """Return when the store holds no call and no undelivered callback: nothing more will be sent."""
        async with asyncio.timeout(PATIENCE), _opened(self._store) as store:
            while await store.backlog(self._kind) or await store.outbox(dead=False, limit=1):
                await asyncio.sleep(0.01)

    async def stored_calls(self) -> int:
        """How many calls a second process sees in the store that have not ended."""
        async with _opened(self._store) as store:
            return await store.backlog(self._kind)

    async def undelivered(self) -> list[OutboxRow]:
        """Callbacks that wait for another attempt."""
        async with _opened(self._store) as store:
            return await store.outbox(dead=False)

    async def dead_letters(self) -> list[OutboxRow]:
        """Callbacks that were given up."""
        async with _opened(self._store) as store:
            return await store.outbox(dead=True)


@contextlib.asynccontextmanager
async def _opened(url: str) -> AsyncIterator[Store]:
    store = open_store(url)
    try:
        yield store
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def serving_app(app: ASGIApp) -> AsyncIterator[int]:
    """Any ASGI app, with its lifespan, on a port of its own."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        port: int = listener.getsockname()[1]
        config = uvicorn.Config(app, lifespan="on", ws="none", log_config=None, timeout_graceful_shutdown=5)
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        # Not `serve()`, which looks only ten times a second whether it is to end, and wants signals for itself.
        await server.startup(sockets=[listener])
        assert not server.should_exit, "the app's lifespan failed; see the log"
        try:
            yield port
        finally:
            await server.shutdown(sockets=[listener])


@contextlib.asynccontextmanager
async def serving(tools: Toolset) -> AsyncIterator[ServedToolset]:
    """The toolset's own app, started and stopped as a server would."""
    async with serving_app(tools.app) as port:
        yield ServedToolset(port, tools)


async def until(condition: Callable[[], bool]) -> None:
    """Return when the condition holds; fail if it does not in time."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.005)


@contextlib.contextmanager
def failing(store: str, event: str, table: str) -> Iterator[None]:
    """A disk that fails whenever a table is written to: a trigger in the database itself, so that the store is the real one."""
    path = Path(store.removeprefix("sqlite:///"))
    db = apsw.Connection(str(path))
    try:
        db.set_busy_timeout(5000)
        db.execute(f"CREATE TRIGGER failing BEFORE {event} ON {table} BEGIN SELECT RAISE(ABORT, 'disk failure'); END")
        try:
            yield
        finally:
            db.execute("DROP TRIGGER failing")
    finally:
        db.close()
