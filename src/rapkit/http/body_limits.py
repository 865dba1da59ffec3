"""Limits on how long a request body may take, and on how much of a body is read after the response was sent.

A deadline on the whole body would refuse every attempt of a sender behind a slow link, so there is one on progress. Past it the answer is
503: RAP senders retry a 5xx or a reset for days, but take a 4xx as final.

A connection that is closed while a body is still coming is reset, and a sender that writes its whole request before it reads (urllib, a
proxy, most clients with `Connection: close`) sees the reset instead of the answer. So the rest of a refused body is read and discarded.
nginx calls this "lingering close".
"""

import asyncio
import contextlib

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rapkit.http.limits import HttpLimits
from rapkit.http.requests import Refusal, retry_later

DISCARD_PAUSE = 5.0
_LOOKS = 4
_RETRY_WHEN_SLOW = 5.0


class BodyLimits:
    """An ASGI app around another, whose requests' bodies have to make progress.

    A body that does not is refused: `receive` raises a `Refusal` with 503. An answer to a request that was not read is sent at once, and
    ends only when the rest of the request was discarded, or when a bound of the limits is reached. A sender that is past those, or that
    waits for a `100 Continue` it will not get, may find its connection closed.
    """

    def __init__(self, app: ASGIApp, limits: HttpLimits) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or not _has_body(scope):
            await self._app(scope, receive, send)
            return
        body = _IncomingBody(receive, self._limits)

        async def answer(message: Message) -> None:
            if message["type"] != "http.response.body" or message.get("more_body", False) or body.ended:
                await send(message)
                return
            await send({**message, "more_body": True})  # a sender that reads while it writes can stop now
            await body.discard()
            await send({"type": "http.response.body"})

        await self._app(scope, body.receive, answer)


class _IncomingBody:
    """A request's body as it comes, and whether all of it was received.

    The time in which nothing comes is measured in several looks, one after the other, and a look that is late does not count: a process
    that was stopped finds its timers expired before it has read its sockets, and that is no silence of the sender.
    """

    def __init__(self, receive: Receive, limits: HttpLimits) -> None:
        self.ended = False
        self._receive = receive
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._between_looks = limits.body_pause_seconds / _LOOKS
        self._timer: asyncio.TimerHandle | None = None
        self._looked_at = 0.0
        self._waited = 0.0
        self._size = 0

    async def receive(self) -> Message:
        """The next message, as an ASGI app gets it; a `Refusal` if it is not there in time."""
        if self.ended:
            return await self._receive()  # which tells that the client has gone, and that may take as long as it likes
        message = await self._next()
        self._size += len(message.get("body", b""))
        self.ended = message["type"] == "http.disconnect" or not message.get("more_body", False)
        if not self.ended and self._size < (self._waited - self._limits.body_pause_seconds) * self._limits.body_rate:
            raise _too_slow()
        return message

    async def discard(self) -> None:
        """Read the rest, as far as the limits go."""
        size = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.discard_seconds):
                while not self.ended and size <= self._limits.discard_bytes:
                    async with asyncio.timeout(DISCARD_PAUSE):
                        message = await self._receive()
                    size += len(message.get("body", b""))
                    self.ended = message["type"] == "http.disconnect" or not message.get("more_body", False)

    async def _next(self) -> Message:
        try:
            async with asyncio.timeout(None) as waiting:
                self._looked_at = self._loop.time()
                self._arm(waiting, _LOOKS)
                return await self._receive()
        except TimeoutError:
            raise _too_slow() from None
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._waited += min(self._loop.time() - self._looked_at, self._between_looks)

    def _arm(self, waiting: asyncio.Timeout, looks: int) -> None:
        self._timer = self._loop.call_later(self._between_looks, self._look, waiting, looks)

    def _look(self, waiting: asyncio.Timeout, looks: int) -> None:
        now = self._loop.time()
        late = now - self._looked_at > 2 * self._between_looks
        self._looked_at = now
        if late:
            self._arm(waiting, looks)
            return
        self._waited += self._between_looks
        if looks > 1:
            self._arm(waiting, looks - 1)
        else:
            waiting.reschedule(now)


def _too_slow() -> Refusal:
    # Not 408: RAP senders do not come back after a 4xx, and what was slow once may be fast the next time.
    return retry_later("The body came too slowly.", _RETRY_WHEN_SLOW)


def _has_body(scope: Scope) -> bool:
    headers = scope["headers"]
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0 ")) for name, value in headers
    )
