"""Something between a client and an agent that breaks connections when a test says so."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit


class Proxy:
    """Passes bytes on to an agent. `lose_answers` is of how many requests the answer does not come through."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._host, self._port = parts.hostname, parts.port
        self._connections: set[asyncio.StreamWriter] = set()
        self._listener: asyncio.Server | None = None
        self.port = 0
        self.lose_answers = 0
        self.requests: list[bytes] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def up(self) -> None:
        """Listen, on the same port as before."""
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def down(self) -> None:
        """Refuse connections, and break those there are."""
        assert self._listener is not None
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Break the connections there are."""
        for writer in self._connections:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream = await asyncio.open_connection(self._host, self._port)
        self._connections |= {writer, upstream}
        there = asyncio.create_task(self._requests(reader, upstream))
        try:
            while chunk := await upstream_reader.read(65536):
                if self.lose_answers > 0:
                    self.lose_answers -= 1
                    writer.transport.abort()
                    break
                writer.write(chunk)
                await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            there.cancel()
            self._connections -= {writer, upstream}
            for each in (writer, upstream):
                each.close()

    async def _requests(self, reader: asyncio.StreamReader, upstream: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(65536):
                self.requests.append(chunk)
                upstream.write(chunk)
                await upstream.drain()


@contextlib.asynccontextmanager
async def proxied(url: str) -> AsyncIterator[Proxy]:
    proxy = Proxy(url)
    await proxy.up()
    try:
        yield proxy
    finally:
        await proxy.down()
