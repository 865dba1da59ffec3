"""Whether there is anybody at all."""

from starlette.types import Receive, Scope, Send

from rapkit.http.requests import send_json


class Health:
    """Whether the process answers at all."""

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        await send_json(send, {"ok": True})
