"""Health and readiness endpoints."""

from collections.abc import Awaitable, Callable
from typing import Final

from starlette.types import Receive, Scope, Send

from rapkit.errors import ConfigError
from rapkit.http.requests import send_json

NOT_WORKING: Final = "Work on what was accepted has failed. The log says why."
"""Why a process is not ready whose store is good."""


class Health:
    """Whether the process answers at all."""

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        await send_json(send, {"ok": True})


class Readiness:
    """Whether work can be accepted now. `problem` says why not, None if it can; or it raises `ConfigError` if nothing has been started."""

    def __init__(self, problem: Callable[[], Awaitable[str | None]]) -> None:
        self._problem = problem

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            problem = await self._problem()
        except ConfigError:
            problem = "It has not been started."
        if problem is None:
            await send_json(send, {"ready": True})
        else:
            await send_json(send, {"ready": False, "reason": problem}, 503)
