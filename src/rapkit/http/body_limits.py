"""Limits on how long a request body may take, and on how much of a body is read after the response was sent.

A deadline on the whole body would refuse every attempt of a sender behind a slow link, so there is one on progress. Past it the answer is
503: RAP senders retry a 5xx or a reset for days, but take a 4xx as final.

A connection that is closed while a body is still coming is reset, and a sender that writes its whole request before it reads (urllib, most
clients with `Connection: close`) sees the reset instead of the answer. So the rest of a refused body is read and discarded (nginx calls
this "lingering close"), and that before the answer: a reverse proxy written in Go (Caddy, Traefik) stops passing a request body on when the
answer begins, and may then drop the answer.
"""

import asyncio
import contextlib

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rapkit.http.limits import HttpLimits
from rapkit.http.requests import Refusal, retry_later

WHOLE_BODY_RECEIVED = "rapkit.whole_body_received"
"""Where our HTTP server puts, in the state of a scope, a function that tells whether the whole body of the request was received."""

DISCARD_PAUSE = 5.0
_LOOKS = 4
_RETRY_WHEN_SLOW = 5.0


class BodyLimits:
    """An ASGI app around another, whose requests' bodies have to make progress.

    A body that does not is refused: `receive` raises a `Refusal` with 503. An answer to a request that was not read waits until the rest of
    the request was discarded, or until a bound of the limits is reached; a sender that is past those may find its connection closed. One
    that waits for a `100 Continue`, which it will not get, is answered at once.
    """

    def __init__(self, app: ASGIApp, limits: HttpLimits) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or not _may_have_to_wait(scope):
            await self._app(scope, receive, send)
            return
        body = _IncomingBody(receive, self._limits)
        answer_first = _expects_continue(scope) or _declared_size(scope) > self._limits.discard_bytes

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                if not answer_first and not body.discarded:
                    await body.discard()
                await send(message if body.ended else _closing(message))
            elif message.get("more_body", False) or body.discarded:
                await send(message)
            else:
                await send({**message, "more_body": True})  # the sender can stop now
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
        self._gave_up = False
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
            raise self._too_slow()
        return message

    @property
    def discarded(self) -> bool:
        """Whether nothing more of it will be read."""
        return self.ended or self._gave_up

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
        self._gave_up = True

    async def _next(self) -> Message:
        try:
            async with asyncio.timeout(None) as waiting:
                self._looked_at = self._loop.time()
                self._arm(waiting, _LOOKS)
                return await self._receive()
        except TimeoutError:
            raise self._too_slow() from None
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._waited += min(self._loop.time() - self._looked_at, self._between_looks)

    def _too_slow(self) -> Refusal:
        self._gave_up = True  # the rest would come as slowly
        # Not 408: RAP senders do not come back after a 4xx, and what was slow once may be fast the next time.
        return retry_later("The body came too slowly.", _RETRY_WHEN_SLOW)

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


def _closing(start: Message) -> Message:
    """The beginning of an answer, which tells that the connection takes no further request.

    A client that kept its body (`Expect: 100-continue`) would else send the next request where the body is still expected, as Go's client
    did until version 1.22.
    """
    return {**start, "headers": [*start["headers"], (b"connection", b"close")]}


def _may_have_to_wait(scope: Scope) -> bool:
    """Whether a part of the body may be missing. A small one is there with the head of its request, and takes no bounds."""
    is_received = scope.get("state", {}).get(WHOLE_BODY_RECEIVED)
    return _has_body(scope) if is_received is None else not is_received()


def _has_body(scope: Scope) -> bool:
    headers = scope["headers"]
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0 ")) for name, value in headers
    )


def _expects_continue(scope: Scope) -> bool:
    """Whether the sender may leave its body unsent, depending on the answer."""
    return any(name == b"expect" and value.lower() == b"100-continue" for name, value in scope["headers"])


def _declared_size(scope: Scope) -> int:
    """What the sender says its body is long; 0 if it does not say it, or if what it says is no number."""
    lengths = [value for name, value in scope["headers"] if name == b"content-length"]
    return int(lengths[0]) if lengths and lengths[0].isdigit() else 0
