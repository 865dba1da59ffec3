"""Discard the rest of a request body that was answered before it was read, so that the answer reaches its sender.

A connection that is closed while a body is still coming is reset, and a sender that writes its whole request before it reads (urllib, a
proxy, most clients with `Connection: close`) sees the reset instead of the answer. RAP senders retry a reset for days, but take a 4xx as
final. nginx calls this "lingering close"; the bounds here are its own.
"""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 256 * 1024 * 1024
LONGEST = 30.0
LONGEST_PAUSE = 5.0


class DiscardUnreadBody:
    """An ASGI app around another: its answers are sent at once, and end only when the request was read or a bound is reached.

    The bounds are `MOST_BYTES`, `LONGEST` seconds, and `LONGEST_PAUSE` seconds in which nothing comes. A sender that is past them, or that
    waits for a `100 Continue` it will not get, may find its connection closed.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or not _has_body(scope):
            await self._app(scope, receive, send)
            return
        body = _Incoming(receive)

        async def answer(message: Message) -> None:
            if message["type"] != "http.response.body" or message.get("more_body", False) or body.ended:
                await send(message)
                return
            await send({**message, "more_body": True})  # a sender that reads while it writes can stop now
            await body.discard()
            await send({"type": "http.response.body"})

        await self._app(scope, body.receive, answer)


class _Incoming:
    """A request's body, and whether all of it was received."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.ended = False

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self.ended = True
        return message

    async def discard(self) -> None:
        size = 0
        try:
            async with asyncio.timeout(LONGEST):
                while not self.ended and size <= MOST_BYTES:
                    async with asyncio.timeout(LONGEST_PAUSE):
                        size += len((await self.receive()).get("body", b""))
        except TimeoutError:
            pass  # it had its time


def _has_body(scope: Scope) -> bool:
    headers = scope["headers"]
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0 ")) for name, value in headers
    )
