"""The least that a durable tool server in Python can do: bare ASGI on uvicorn, grouped SQLite commits, pyreqwest, no framework.

An invocation is committed before it is acknowledged, its result is committed before it is sent, and a result that was delivered is deleted.
There is no retry, no recovery, no validation, no authentication, no encryption, no limit: what rapkit takes beyond this is what those cost.

    python -m benchmarks.floor_server 8003 floor.db
"""

import asyncio
import sys
from pathlib import Path
from typing import Any, cast

import uvicorn
from pydantic_core import from_json, to_json
from pyreqwest.client import Client, ClientBuilder
from starlette.types import Receive, Scope, Send

from benchmarks.grouped_commits import GroupedCommits

SCHEMA = """
CREATE TABLE IF NOT EXISTS calls (thread TEXT, id TEXT, body BLOB, PRIMARY KEY (thread, id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS outbox (thread TEXT, id TEXT, url TEXT, body BLOB, PRIMARY KEY (thread, id)) WITHOUT ROWID
"""
_HEADERS = [(b"content-type", b"application/json")]


class Floor:
    """The ASGI app."""

    def __init__(self, endpoint: str, commits: GroupedCommits, client: Client) -> None:
        self._commits = commits
        self._client = client
        self._toolset = to_json({"name": "floor", "endpoint": endpoint, "tools": [{"name": "add"}]})
        self._running: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request: an invocation, or anything else with the toolset."""
        answer = b""
        if scope["method"] == "POST":
            await self._accept(await _body(receive))
        else:
            answer = self._toolset
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await send({"type": "http.response.body", "body": answer})

    async def _accept(self, body: bytes) -> None:
        call = from_json(body)
        key = (call["group_id"], call["id"])
        await self._commits.commit(("INSERT OR IGNORE INTO calls VALUES (?, ?, ?)", (*key, body)))
        task = asyncio.create_task(self._run(call, key))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, call: dict[str, Any], key: tuple[str, str]) -> None:
        arguments = call["arguments"]
        text = str(arguments["a"] + arguments["b"])
        result = to_json({"type": "tool_result", "group_id": key[0], "id": key[1], "text": text})
        await self._commits.commit(
            ("DELETE FROM calls WHERE thread = ? AND id = ?", key),
            ("INSERT INTO outbox VALUES (?, ?, ?, ?)", (*key, call["callback_url"], result)),
        )
        await self._client.post(call["callback_url"]).body_bytes(result).build().send()
        await self._commits.commit(("DELETE FROM outbox WHERE thread = ? AND id = ?", key))


async def _body(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += cast("bytes", message.get("body", b""))
        if not message.get("more_body", False):
            return body


async def main(port: int, file: Path) -> None:
    """Serve until a signal comes."""
    async with GroupedCommits(file, SCHEMA) as commits, ClientBuilder().build() as client:
        app = Floor(f"http://127.0.0.1:{port}/invoke", commits, client)
        config = uvicorn.Config(app, port=port, lifespan="off", access_log=False, log_level="warning")
        await uvicorn.Server(config).serve()


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(int(sys.argv[1]), Path(sys.argv[2])))
