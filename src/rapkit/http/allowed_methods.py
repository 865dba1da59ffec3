"""Restrict an endpoint to certain HTTP methods."""

from starlette.types import ASGIApp, Receive, Scope, Send

from rapkit.http.requests import Refusal, send_problem


class AllowedMethods:
    """An endpoint for some methods. The others are refused in words, as everything is."""

    def __init__(self, endpoint: ASGIApp, *methods: str) -> None:
        self._endpoint = endpoint
        self._methods = methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["method"] in self._methods:
            await self._endpoint(scope, receive, send)
            return
        allowed = ", ".join(self._methods)
        detail = f"{scope['method']} is not possible here. Send {' or '.join(self._methods)}."
        await send_problem(send, Refusal(405, detail, ((b"allow", allowed.encode()),)))
