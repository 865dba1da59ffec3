"""Single endpoints on a real socket of this machine, and how their tests speak to them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

from starlette.routing import Route, Router
from starlette.types import ASGIApp

from tests.server.served_toolset import Reply, exchange, read_reply, serving_app
from tests.server.sink import PATIENCE


class EndpointServer:
    """Endpoints by their paths, as whoever knocks sees them."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str | None] | None = None
    ) -> Reply:
        """One request on a connection of its own. A header given as None is left out."""
        return await exchange(self.port, self._head(method, path, len(body), headers) + body)

    async def post(self, path: str, body: bytes, headers: Mapping[str, str | None] | None = None) -> Reply:
        """POST."""
        return await self.request("POST", path, body, headers)

    async def post_no_body(self, path: str, headers: Mapping[str, str | None] | None = None) -> Reply:
        """The answer to a request whose body is announced and never comes."""
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            try:
                writer.write(self._head("POST", path, 10, headers))
                return await read_reply(reader)
            finally:
                writer.close()

    def _head(self, method: str, path: str, length: int, headers: Mapping[str, str | None] | None) -> bytes:
        given: dict[str, str | None] = {
            "Host": f"127.0.0.1:{self.port}",
            "Connection": "close",
            "Content-Type": "application/json",
            "Content-Length": str(length),
            **(headers or {}),
        }
        lines = [f"{name}: {value}\r\n" for name, value in given.items() if value is not None]
        return f"{method} {path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode("latin-1")


@contextlib.asynccontextmanager
async def opened(endpoints: Mapping[str, ASGIApp]) -> AsyncIterator[EndpointServer]:
    """Serve the endpoints."""
    router = Router(routes=[Route(path, endpoint) for path, endpoint in endpoints.items()])
    async with serving_app(router) as port:
        yield EndpointServer(port)
