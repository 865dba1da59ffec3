"""A tool server that is not ours, on a real socket: it notes every request, and behaves as badly as a test tells it to."""

import asyncio
import contextlib
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from tests.server.served_toolset import Reply, exchange
from tests.server.sink import PATIENCE, Behaviour, Listener, Post, answer

TOOLSET = "/.well-known/rap-toolset"
INVOKE = "/invoke"
CLOSE = "/close_thread"
CANCEL = "/cancel_tool_call"
ANSWER = "/answer"
ANYTHING = {"type": "object"}


def tool(name: str, schema: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A tool as a toolset document has it."""
    return {"name": name, "description": f"It does {name}.", "inputSchema": schema or ANYTHING, **fields}


class Invocation:
    """A call as it came in, and what can be said about it."""

    def __init__(self, post: Post) -> None:
        self.post = post
        self.message = post.message
        self.id: str = self.message["id"]
        self.group_id: str = self.message["group_id"]
        self.callback_url: str = self.message["callback_url"]

    @property
    def token(self) -> str:
        """What authenticates the callback URL."""
        return self.callback_url.rpartition("/")[2]

    async def result(self, text: str = "done", *, message_id: str | None = None, **fields: Any) -> Reply:
        """Answer it."""
        return await self.call_back({**self._named("tool_result"), "text": text, **fields}, message_id)

    async def confirm(self, text: str = "subscribed", **fields: Any) -> Reply:
        """Say that it is a subscription."""
        return await self.result(text, subscription=True, **fields)

    async def event(self, text: str, *, message_id: str | None = None, **fields: Any) -> Reply:
        """Send an event."""
        message = {"type": "subscription_event", "group_id": self.group_id, "tool_call_id": self.id, "text": text}
        return await self.call_back({**message, **fields}, message_id)

    async def oauth(self, auth_url: str) -> Reply:
        """Ask for authorization."""
        return await self.call_back({**self._named("oauth"), "auth_url": auth_url})

    async def choice(self, prompt: str, choices: list[str], default: int, response_url: str) -> Reply:
        """Ask the user to choose."""
        question = {"prompt": prompt, "choices": choices, "default": default, "response_url": response_url}
        return await self.call_back({**self._named("user_choice"), **question})

    async def view(self, view_type: str, content: object) -> Reply:
        """Show something."""
        message = {"type": "view_update", "group_id": self.group_id, "view_type": view_type, "content": content}
        return await self.call_back(message)

    def _named(self, kind: str) -> dict[str, Any]:
        return {"type": kind, "group_id": self.group_id, "id": self.id}

    async def call_back(self, message: object, message_id: str | None = None, **headers: str) -> Reply:
        """POST a message to where it is to be called back."""
        given = headers if message_id is None else {"webhook-id": message_id, **headers}
        return await post_to(self.callback_url, json.dumps(message).encode(), given)


async def post_to(url: str, body: bytes, headers: dict[str, str] | None = None) -> Reply:
    """One POST on a connection of its own. It is a JSON document, unless the headers say otherwise."""
    parts = urlsplit(url)
    assert parts.port is not None
    given = {"Host": parts.netloc, "Connection": "close", "Content-Type": "application/json", **(headers or {})}
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    head = f"POST {parts.path} HTTP/1.1\r\n{lines}Content-Length: {len(body)}\r\n\r\n"
    return await exchange(parts.port, head.encode("latin-1") + body)


class ForeignToolset(Listener):
    """Offers `document` and answers everything with 200, unless it is told otherwise.

    `script` says how the next requests to a path are answered. What `before_answering` does with an invocation is done before that is
    answered at all.
    """

    def __init__(self) -> None:
        super().__init__()
        self.posts: list[Post] = []
        self.script: dict[str, list[Behaviour]] = defaultdict(list)
        self.otherwise: dict[str, Behaviour] = {}
        self.before_answering: Callable[[Invocation], Awaitable[object]] | None = None
        self.tools = [tool("work"), tool("other_work")]
        self.version: str | None = "1"
        self.document: bytes | None = None
        self._news = asyncio.Condition()

    def to(self, path: str) -> list[Post]:
        """The requests to a path so far."""
        return [post for post in self.posts if post.target == path]

    async def received(self, path: str, count: int = 1) -> list[Post]:
        """The requests to a path, once there are so many."""
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: len(self.to(path)) >= count)
        return self.to(path)

    async def invoked(self, number: int = 1) -> Invocation:
        """The invocation with this number, once it has come."""
        return Invocation((await self.received(INVOKE, number))[number - 1])

    async def invoked_with(self, **arguments: Any) -> Invocation:
        """The first invocation with these arguments, once it has come."""

        def found() -> list[Post]:
            return [post for post in self.to(INVOKE) if post.message["arguments"] == arguments]

        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: bool(found()))
        return Invocation(found()[0])

    def toolset(self) -> bytes:
        """What discovery answers."""
        if self.document is not None:
            return self.document
        document = {"name": "stranger", "endpoint": self.url + INVOKE, "tools": self.tools, "version": self.version}
        return json.dumps(document).encode()

    async def _answer(self, post: Post, writer: asyncio.StreamWriter) -> None:
        async with self._news:
            self.posts.append(post)
            script = self.script[post.target]
            behave = script.pop(0) if script else self.otherwise.get(post.target)
            self._news.notify_all()
        if post.target == INVOKE and self.before_answering is not None:
            await self.before_answering(Invocation(post))
        if behave is None:
            behave = answer(200, body=self.toolset()) if post.target == TOOLSET else answer(200)
        await behave(writer)


@contextlib.asynccontextmanager
async def listening(*names: str) -> AsyncIterator[ForeignToolset]:
    """A stranger on a port of its own, with tools of these names."""
    stranger = ForeignToolset()
    if names:
        stranger.tools = [tool(name) for name in names]
    await stranger.up()
    try:
        yield stranger
    finally:
        await stranger.down()
