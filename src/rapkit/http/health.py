"""Whether there is anybody at all."""

from collections.abc import Awaitable, Callable

from starlette.types import Receive, Scope, Send

from rapkit.errors import ConfigError
from rapkit.http.requests import send_json


class Health:
    """Whether the process answers at all."""

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        await send_json(send, {"ok": True})


class Readiness:
    """Whether there is work that can be accepted now. `ready` says so, or raises `ConfigError` if nothing has been started."""

    def __init__(self, ready: Callable[[], Awaitable[bool]]) -> None:
        self._ready = ready

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            ready = await self._ready()
        except ConfigError:
            ready = False
        await send_json(send, {"ready": ready}, 200 if ready else 503)
