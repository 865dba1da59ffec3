"""Discovery: fetch the toolset documents of tool servers."""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from rapkit.delivery.http_client import Fetcher
from rapkit.errors import ConfigError, DeliveryError, ForbiddenTarget, InvalidToolset
from rapkit.http.authentication import is_loopback_host
from rapkit.protocol import ToolsetDocument, UsableToolset, read_toolset
from rapkit.protocol.value_count import MAX_VALUES
from rapkit.runtime.server import Server

PATH = "/.well-known/rap-toolset"
_LARGEST = 4 * 1024 * 1024
_NEEDS_A_TOKEN = (401, 403)
_SIGNIFICANT = 24
_PATIENCE = 5.0

InThread = Callable[..., Awaitable[Any]]
"""Runs a function with its arguments in a thread: `asyncio.to_thread`."""

log = logging.getLogger("rapkit.discovery")


@dataclass(frozen=True, slots=True)
class Fetched:
    """A toolset document as its server gave it, and what of it can be used; `digest` names what it says."""

    toolset: UsableToolset
    body: bytes
    digest: str

    @property
    def document(self) -> ToolsetDocument:
        """The usable part."""
        return self.toolset.document


class DiscoveryFailed(Exception):
    """Discovery of a server failed, or found nothing usable; the text explains it."""


def digest_of(body: bytes) -> str:
    """A name for what a document says."""
    return hashlib.sha256(body).hexdigest()[:_SIGNIFICANT]


class Discovery:
    """Fetches toolset documents. Callers that ask for the same one while it is being fetched share the next result."""

    def __init__(self, client: Fetcher, in_thread: InThread = asyncio.to_thread, values: int = MAX_VALUES) -> None:
        self._client = client
        self._values = values
        self._in_thread = in_thread
        self._under_way: dict[str, asyncio.Task[Fetched]] = {}
        self._next: dict[str, asyncio.Task[Fetched]] = {}

    async def fetch(self, server: Server) -> Fetched:
        """What a server offers now: an answer to a question that was put after this was called (DIS-6). `DiscoveryFailed` if none comes."""
        running = self._under_way.get(server.base)
        if running is None:
            task = self._under_way[server.base] = asyncio.create_task(self._fetch(server))
            task.add_done_callback(partial(self._over, server.base))
        else:
            # The running fetch may have begun before the caller knew of a change; the next one has not.
            task = self._next.get(server.base) or asyncio.create_task(self._fetch_after(server, running))
            self._next[server.base] = task
        await asyncio.wait({task})
        return task.result()

    def _over(self, base: str, done: "asyncio.Task[Fetched]") -> None:
        if not done.cancelled():
            done.exception()  # asyncio complains about unretrieved errors, even if no task waits any more
        del self._under_way[base]
        if (task := self._next.pop(base, None)) is not None:
            self._under_way[base] = task
            task.add_done_callback(partial(self._over, base))

    async def _fetch_after(self, server: Server, running: "asyncio.Task[Fetched]") -> Fetched:
        await asyncio.wait({running})
        return await self._fetch(server)

    async def parse(self, body: bytes) -> UsableToolset:
        """The usable part of a toolset document. Off the loop: a large one takes a while."""
        toolset: UsableToolset = await self._in_thread(read_toolset, body, self._values)
        return toolset

    async def fetch_all(self, servers: Sequence[Server]) -> list[Fetched | DiscoveryFailed]:
        """What each of them offers, asked at the same time: one that is down takes nothing from the others."""
        return list(await asyncio.gather(*map(self._try_fetch, servers)))

    async def _try_fetch(self, server: Server) -> Fetched | DiscoveryFailed:
        try:
            return await self.fetch(server)
        except DiscoveryFailed as failure:
            return failure

    async def _fetch(self, server: Server) -> Fetched:
        url = server.base + PATH
        try:
            # Not as long as a POST may take: a person waits for the first answer of the session, which needs the others' tools only.
            async with asyncio.timeout(_PATIENCE):
                headers = {"accept": "application/json", **await server.headers("GET", url)}
                status, body = await self._client.get(url, headers, limit=_LARGEST)
        except TimeoutError:
            raise DiscoveryFailed(f"{url} did not answer within {_PATIENCE:g} s.") from None
        except (ForbiddenTarget, ConfigError) as error:
            raise DiscoveryFailed(str(error)) from None
        except DeliveryError as error:
            raise DiscoveryFailed(f"{error} Is the server running there?") from None
        if status in _NEEDS_A_TOKEN:
            raise DiscoveryFailed(f"{url} answered {status}. {server.advice_when_refused}")
        if status != 200:
            raise DiscoveryFailed(f"{url} answered {status}. Is there a RAP tool server?")
        try:
            toolset = await self.parse(body)
        except InvalidToolset as error:
            raise DiscoveryFailed(f"{url} is not a valid toolset:\n{error}") from None
        if not server.is_local and is_loopback_host(urlsplit(toolset.document.endpoint).hostname or ""):
            raise DiscoveryFailed(f"{url} names an endpoint on this machine, and is not on it itself.")
        return Fetched(toolset, body, digest_of(body))
