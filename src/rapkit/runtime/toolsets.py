"""The toolsets of a session: fetched when it begins, cached in the store, shared by all its threads (DIS-6)."""

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pydantic import TypeAdapter

from rapkit.clock import Clock
from rapkit.errors import InvalidToolset
from rapkit.kernel.catalog import Catalog, Loaded, WithheldTool
from rapkit.mailbox import Fact, NewBox, Store
from rapkit.protocol import ToolsetDocument
from rapkit.runtime.discovery import Discovery, DiscoveryFailed, Fetched
from rapkit.runtime.server import Server
from rapkit.work import background

THREAD = "thread"
"""The kind of the boxes that are threads."""

_CACHE_BOX = NewBox("rapkit/toolsets", "toolsets", idle=True)
"""The box beside which documents are kept, each once, whatever the number of sessions that use it."""

_DOCUMENT = "document/"
_LATEST = "latest"
_SESSION = "session"
_TOOLSETS = "toolsets"
_MOST_CATALOGS = 16
_PATIENCE_WITH_MISSING = 1.0
_NOT_YET = "It has not said yet what it offers."
_UNREADABLE = "What was stored of its toolset cannot be read. It is fetched again."

log = logging.getLogger("rapkit.discovery")


@dataclass(frozen=True, slots=True)
class ToolsetFinding:
    """What a server offers, or what is wrong with it.

    `withheld` are tools of its that are not offered to the model; `ignored` says which fields of its toolset are not usable.
    """

    server: Server
    document: ToolsetDocument | None = None
    problem: str | None = None
    withheld: tuple[WithheldTool, ...] = ()
    ignored: tuple[str, ...] = ()

    @classmethod
    def of(cls, server: Server, fetched: Fetched | DiscoveryFailed, catalog: Catalog) -> "ToolsetFinding":
        """What was found at a server, beside all others in the catalog."""
        if isinstance(fetched, DiscoveryFailed):
            return cls(server, problem=str(fetched))
        withheld = tuple(each for each in catalog.withheld if server.key in each.servers)
        return cls(server, fetched.document, withheld=withheld, ignored=fetched.toolset.ignored)


def catalog_of(servers: Sequence[Server], fetched: Sequence[Fetched | DiscoveryFailed]) -> Catalog:
    """The catalog of what was fetched from these servers."""
    return Catalog(
        [
            Loaded(server.key, each.document, server.prefix, each.toolset.unusable)
            for server, each in zip(servers, fetched, strict=True)
            if isinstance(each, Fetched)
        ]
    )


@dataclass(frozen=True, slots=True)
class _Missing:
    """A server whose discovery failed: when, and why."""

    asked_at: float
    problem: str


@dataclass(frozen=True, slots=True)
class _Session:
    """Which document of each server a session uses, and which servers had none."""

    documents: dict[str, str]
    missing: dict[str, _Missing]

    def dump(self) -> bytes:
        return _SESSIONS.dump_json(self)

    @classmethod
    def load(cls, body: bytes) -> "_Session":
        return _SESSIONS.validate_json(body)


_SESSIONS: TypeAdapter[_Session] = TypeAdapter(_Session)


class Toolsets:
    """Provides the catalog of a session."""

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
        self._failed: dict[str, tuple[float, DiscoveryFailed]] = {}
        self._catalogs: OrderedDict[tuple[tuple[str, str], ...], Catalog] = OrderedDict()

    async def survey(self) -> list[ToolsetFinding]:
        """What all servers offer now, and what is wrong, for people."""
        servers = list(self._servers.values())
        fetched = await self._discovery.fetch_all(servers)
        catalog = catalog_of(servers, fetched)
        return [ToolsetFinding.of(server, each, catalog) for server, each in zip(servers, fetched, strict=True)]

    async def catalog(self, root: str) -> Catalog:
        """What the session of this root thread may use. A server that was down when it began is asked again from time to time."""
        session = await self._session(root)
        now = self._clock.now()
        if session is None:
            session = await self._ask(root, list(self._servers.values()), now)
        elif missing := [server for server in self._servers.values() if server.key not in session.documents]:
            session = await self._find_missing(root, session, missing, now)
        return await self._assemble(root, session)

    async def refresh(self, root: str, name: str) -> Catalog:
        """The same after one server was asked again, because it said that what we know of it is stale (DIS-10)."""
        servers = [self._servers[name]] if name in self._servers else []
        self._failed.pop(name, None)
        return await self._assemble(root, await self._ask(root, servers, self._clock.now()))

    async def _session(self, root: str) -> _Session | None:
        records = await self._store.records(root, _SESSION)
        return next((_Session.load(record.body) for record in records if record.key == _TOOLSETS), None)

    async def _find_missing(self, root: str, session: _Session, missing: Sequence[Server], now: float) -> _Session:
        """Use what another session found out meanwhile, and ask the others again, but wait only a moment for them."""
        latest = await self._latest()
        if found := {server.key: latest[server.key] for server in missing if server.key in latest}:
            session = await self._note(root, found, {})
        due = [
            server
            for server in missing
            if server.key not in found and self._is_due(session.missing.get(server.key), now)
        ]
        if not due:
            return session
        asking = self._asking.get(root)
        if asking is None:
            asking = self._asking[root] = asyncio.create_task(self._ask(root, due, now))
            asking.add_done_callback(partial(self._asked, root))
        # One that says nothing must not hold up the thread each time.
        await asyncio.wait({asking}, timeout=_PATIENCE_WITH_MISSING)
        return asking.result() if asking.done() else session

    def _is_due(self, missing: _Missing | None, now: float) -> bool:
        return missing is None or missing.asked_at + self._rediscover <= now

    def _asked(self, root: str, asking: "asyncio.Task[_Session]") -> None:
        del self._asking[root]
        if not asking.cancelled() and (error := asking.exception()) is not None:
            log.error("what servers that were down offer could not be kept: %s", error)

    async def close(self) -> None:
        """End what is still asked in the background."""
        await background.end(*self._asking.values())

    async def _ask(self, root: str, servers: Sequence[Server], now: float) -> _Session:
        known = await self._session(root) or _Session({}, {})
        documents: dict[str, str] = {}
        missing: dict[str, _Missing] = {}
        for server, fetched in zip(servers, await asyncio.gather(*map(self._fetch, servers)), strict=True):
            digest = await self._keep(server, fetched, known.documents.get(server.key))
            if digest is None:
                missing[server.key] = _Missing(now, str(fetched))
            else:
                documents[server.key] = digest
        return await self._note(root, documents, missing)

    async def _fetch(self, server: Server) -> Fetched | DiscoveryFailed:
        """What a server offers. One that has just failed is not waited for again: so a silent one holds up one session, not all."""
        failed_at, failure = self._failed.get(server.key, (-math.inf, DiscoveryFailed("")))
        if self._clock.now() - failed_at < self._rediscover / 2:
            return failure
        (fetched,) = await self._discovery.fetch_all([server])
        self._failed.pop(server.key, None)
        if isinstance(fetched, DiscoveryFailed):
            self._failed[server.key] = (self._clock.now(), fetched)
        return fetched

    async def _note(self, root: str, documents: Mapping[str, str], missing: Mapping[str, _Missing]) -> _Session:
        """Write down what was found, beside whatever others of the session have written down meanwhile."""
        while True:
            records = await self._store.records(root, _SESSION)
            before = next((record.body for record in records if record.key == _TOOLSETS), None)
            known = _Session({}, {}) if before is None else _Session.load(before)
            still = {name: each for name, each in known.missing.items() if name not in documents}
            session = _Session({**known.documents, **documents}, {**still, **missing})
            fact = Fact(root, _SESSION, _TOOLSETS, session.dump())
            if await self._store.note(NewBox(root, THREAD), fact, expect=before):
                return session
            box = await self._store.box(root)
            if box is None or box.status == "closed":
                return session  # it will not be asked for again

    async def _keep(self, server: Server, fetched: Fetched | DiscoveryFailed, cached: str | None) -> str | None:
        """The digest of the document to be used: the one that was fetched, else the one that is known (DIS-7), else none (DIS-12)."""
        if isinstance(fetched, Fetched):
            if (server.key, fetched.digest) not in self._kept:
                for line in fetched.toolset.ignored:
                    log.warning("%s: a field of its toolset cannot be used and is ignored: %s", server.key, line)
                await self._store.note(_CACHE_BOX, Fact(_CACHE_BOX.id, _DOCUMENT + fetched.digest, "", fetched.body))
                await self._store.note(_CACHE_BOX, Fact(_CACHE_BOX.id, _LATEST, server.key, fetched.digest.encode()))
                self._kept = {(name, digest) for name, digest in self._kept if name != server.key}
                self._kept.add((server.key, fetched.digest))
            return fetched.digest
        known = cached or (await self._latest()).get(server.key)
        if known is None:
            log.error("%s offers nothing: %s", server.key, fetched)
        else:
            log.warning("%s is used as it was known before: %s", server.key, fetched)
        return known

    async def _latest(self) -> dict[str, str]:
        return {record.key: record.body.decode() for record in await self._store.records(_CACHE_BOX.id, _LATEST)}

    async def _assemble(self, root: str, session: _Session) -> Catalog:
        missing = {name: _problem(session.missing.get(name)) for name in self._servers if name not in session.documents}
        # Only those still configured: a server that was taken out of the configuration is used no more.
        key = tuple((name, session.documents[name]) for name in self._servers if name in session.documents)
        catalog = self._catalogs.get(key)
        if catalog is None:
            loaded = {name: await self._loaded(name, digest) for name, digest in key}
            if lost := [self._servers[name] for name, each in loaded.items() if each is None]:
                await self._ask(root, lost, self._clock.now())  # for the next time
            catalog = Catalog([each for each in loaded.values() if each is not None])
            for withheld in catalog.withheld:
                log.warning("a tool is withheld: %s", withheld.reason)
            if lost:
                return catalog.without(missing | {server.key: _UNREADABLE for server in lost})
            self._catalogs[key] = catalog
            while len(self._catalogs) > _MOST_CATALOGS:
                self._catalogs.popitem(last=False)
        self._catalogs.move_to_end(key)
        return catalog.without(missing)

    async def _loaded(self, name: str, digest: str) -> Loaded | None:
        """A kept toolset; None if it cannot be read: then the store is wrong, or another version of us has kept it."""
        try:
            (record,) = await self._store.records(_CACHE_BOX.id, _DOCUMENT + digest)
            toolset = await self._discovery.parse(record.body)
        except (InvalidToolset, ValueError) as error:
            log.error("the toolset of %s is not in the store as it was kept, and is fetched again: %s", name, error)
            self._kept.discard((name, digest))
            return None
        return Loaded(name, toolset.document, self._servers[name].prefix, toolset.unusable)


def _problem(missing: _Missing | None) -> str:
    return _NOT_YET if missing is None else missing.problem
