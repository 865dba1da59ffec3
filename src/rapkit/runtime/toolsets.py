"""The toolsets of a session: fetched when it begins, kept in the store, shared by all its threads (DIS-6)."""

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from rapkit import background
from rapkit.clock import Clock
from rapkit.errors import InvalidToolset, StoreError
from rapkit.kernel.catalog import Catalog, Loaded, Withheld
from rapkit.mailbox import Fact, NewBox, Store
from rapkit.protocol import ToolsetDocument, parse_toolset
from rapkit.runtime.discovery import Discovery, DiscoveryFailed, Fetched
from rapkit.runtime.server import Server

THREAD = "thread"
"""The kind of the boxes that are threads."""

_SHELF = NewBox("rapkit/toolsets", "toolsets", idle=True)
"""The box beside which documents are kept, each once, whatever the number of sessions that use it."""

_DOCUMENT = "document/"
_LATEST = "latest"
_SESSION = "session"
_TOOLSETS = "toolsets"
_MOST_CATALOGS = 64
_PATIENCE_WITH_MISSING = 1.0

log = logging.getLogger("rapkit.discovery")


@dataclass(frozen=True, slots=True)
class Finding:
    """What a server offers, or what is wrong with it. `withheld` are tools of its that are not offered to the model."""

    server: Server
    document: ToolsetDocument | None = None
    problem: str | None = None
    withheld: tuple[Withheld, ...] = ()


@dataclass(frozen=True, slots=True)
class _Session:
    """Which document of each server a session uses; servers that had none, and when they were asked."""

    documents: dict[str, str]
    missing: dict[str, float]

    def dump(self) -> bytes:
        return json.dumps({"documents": self.documents, "missing": self.missing}).encode()

    @classmethod
    def load(cls, body: bytes) -> "_Session":
        read = json.loads(body)
        return cls(read["documents"], read["missing"])


class Toolsets:
    """Finds the catalog of a session."""

    def __init__(
        self, store: Store, discovery: Discovery, servers: Sequence[Server], clock: Clock, rediscover: float
    ) -> None:
        self._store = store
        self._discovery = discovery
        self._servers = {server.key: server for server in servers}
        self._clock = clock
        self._rediscover = rediscover
        self._asking: dict[str, asyncio.Task[_Session]] = {}
        self._kept: set[tuple[str, str]] = set()
        self._catalogs: OrderedDict[tuple[tuple[str, str], ...], Catalog] = OrderedDict()

    def server(self, name: str) -> Server | None:
        """A configured server by its name."""
        return self._servers.get(name)

    async def survey(self) -> list[Finding]:
        """What all servers offer now, and what is wrong, for people."""
        servers = list(self._servers.values())
        fetched = dict(zip(self._servers, await self._discovery.fetch_all(servers), strict=True))
        found = {name: each for name, each in fetched.items() if isinstance(each, Fetched)}
        catalog = Catalog([Loaded(name, each.document, self._servers[name].prefix) for name, each in found.items()])
        return [
            Finding(
                server,
                found[name].document if name in found else None,
                None if name in found else str(fetched[name]),
                tuple(each for each in catalog.withheld if name in each.servers),
            )
            for name, server in self._servers.items()
        ]

    async def catalog(self, root: str) -> Catalog:
        """What the session of this root thread may use. A server that was down when it began is asked again from time to time."""
        session = await self._session(root)
        now = self._clock.now()
        if session is None:
            session = await self._begin(root, _Session({}, {}), list(self._servers.values()), now)
        elif missing := [server for server in self._servers.values() if self._is_due(session, server, now)]:
            session = await self._ask_again(root, session, missing, now)
        return await self._assemble(session)

    def _is_due(self, session: _Session, server: Server, now: float) -> bool:
        return server.key not in session.documents and session.missing.get(server.key, 0.0) + self._rediscover <= now

    async def _ask_again(self, root: str, session: _Session, servers: Sequence[Server], now: float) -> _Session:
        """Ask servers that were down, and wait a moment: one that says nothing must not hold up the thread each time."""
        asking = self._asking.get(root)
        if asking is None:
            asking = self._asking[root] = asyncio.create_task(self._begin(root, session, servers, now))
            asking.add_done_callback(partial(self._asked, root))
        await asyncio.wait({asking}, timeout=_PATIENCE_WITH_MISSING)
        return asking.result() if asking.done() else session

    def _asked(self, root: str, asking: "asyncio.Task[_Session]") -> None:
        del self._asking[root]
        if not asking.cancelled() and (error := asking.exception()) is not None:
            log.error("what servers that were down offer could not be kept: %s", error)

    async def close(self) -> None:
        """End what is still asked in the background."""
        await background.end(*self._asking.values())

    async def refresh(self, root: str, name: str) -> Catalog:
        """The same after one server was asked again, because it said that what we know of it is stale (DIS-10)."""
        session = await self._session(root) or _Session({}, {})
        if name in self._servers:
            session = await self._begin(root, session, [self._servers[name]], self._clock.now())
        return await self._assemble(session)

    async def _session(self, root: str) -> _Session | None:
        records = await self._store.records(root, _SESSION)
        return next((_Session.load(record.body) for record in records if record.key == _TOOLSETS), None)

    async def _begin(self, root: str, session: _Session, servers: Sequence[Server], now: float) -> _Session:
        documents, missing = dict(session.documents), dict(session.missing)
        for server, fetched in zip(servers, await self._discovery.fetch_all(servers), strict=True):
            digest = await self._keep(server, fetched, documents.get(server.key))
            missing.pop(server.key, None)
            if digest is None:
                missing[server.key] = now
            else:
                documents[server.key] = digest
        session = _Session(documents, missing)
        await self._store.note(NewBox(root, THREAD), Fact(root, _SESSION, _TOOLSETS, session.dump()))
        return session

    async def _keep(self, server: Server, fetched: Fetched | DiscoveryFailed, cached: str | None) -> str | None:
        """The digest of the document to be used: the one that was fetched, else the one that is known (DIS-7), else none (DIS-12)."""
        if isinstance(fetched, Fetched):
            if (server.key, fetched.digest) not in self._kept:
                await self._store.note(_SHELF, Fact(_SHELF.id, _DOCUMENT + fetched.digest, "", fetched.body))
                await self._store.note(_SHELF, Fact(_SHELF.id, _LATEST, server.key, fetched.digest.encode()))
                self._kept = {(name, digest) for name, digest in self._kept if name != server.key}
                self._kept.add((server.key, fetched.digest))
            return fetched.digest
        known = cached or await self._latest(server.key)
        if known is None:
            log.error("%s offers nothing: %s", server.key, fetched)
        else:
            log.warning("%s is used as it was known before: %s", server.key, fetched)
        return known

    async def _latest(self, name: str) -> str | None:
        records = await self._store.records(_SHELF.id, _LATEST)
        return next((record.body.decode() for record in records if record.key == name), None)

    async def _assemble(self, session: _Session) -> Catalog:
        # Only those still configured: a server that was taken out of the configuration is used no more.
        key = tuple((name, session.documents[name]) for name in self._servers if name in session.documents)
        catalog = self._catalogs.get(key)
        if catalog is None:
            catalog = Catalog([await self._loaded(name, digest) for name, digest in key])
            for withheld in catalog.withheld:
                log.warning("a tool is withheld: %s", withheld.reason)
            self._catalogs[key] = catalog
            while len(self._catalogs) > _MOST_CATALOGS:
                self._catalogs.popitem(last=False)
        self._catalogs.move_to_end(key)
        return catalog

    async def _loaded(self, name: str, digest: str) -> Loaded:
        try:
            (record,) = await self._store.records(_SHELF.id, _DOCUMENT + digest)
            return Loaded(name, parse_toolset(record.body), self._servers[name].prefix)
        except (InvalidToolset, ValueError) as error:
            # It was valid when it was kept, so it is the store that is wrong, or another version of us that kept it.
            raise StoreError(f"The toolset of {name} is not in the store as it was kept: {error}") from None
