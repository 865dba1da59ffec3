"""The HTTP client for URLs supplied by other parties: pooled, guarded and bounded."""

import asyncio
import contextlib
import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import (
    ClientClosedError,
    DetailedPyreqwestError,
    PyreqwestError,
    RequestTimeoutError,
)
from pyreqwest.response import Response

from rapkit.delivery.client_certificate import ClientCertificate, LoadedCertificate
from rapkit.delivery.guard import Guard, Target
from rapkit.delivery.refusal_reason import LARGEST, PROBLEM, refusal_reason
from rapkit.errors import ConfigError, DeliveryError

_BODY_LIMIT = 64 * 1024
_PROBE_PATIENCE = 1.0
_MOST_PROBES = 4
_CLOSED = "the HTTP client is closed"
_NO_SECRETS = ("accept", "content-type", "user-agent")


@dataclass(frozen=True, slots=True)
class DeliveryTimeouts:
    """Seconds to wait: `connect` for the name, the connection and TLS; `total` for the whole request.

    A runtime may answer a callback only when its model has spoken; given up earlier, it would be sent the same message twice.
    """

    connect: float = 10.0
    total: float = 60.0


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """How many origins keep their connections, and after how many seconds an origin's name is looked up again."""

    origins: int = 256
    ttl: float = 60.0


class HttpResponse(NamedTuple):
    """The response to a request. It has no body, which must not be interpreted (INV-7). The `reason` of a refusal is only for the log."""

    status: int
    retry_after: float | None = None
    reason: str | None = None


class Poster(Protocol):
    """What can POST."""

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> HttpResponse:
        """POST a JSON body; `DeliveryError` when no answer came, `ForbiddenTarget` when the address may not be dialled."""


class Fetcher(Protocol):
    """What can GET."""

    async def get(self, url: str, headers: Mapping[str, str], *, limit: int) -> tuple[int, bytes]:
        """GET status and body, of at most `limit` bytes; `DeliveryError` and `ForbiddenTarget` as for a POST."""


@dataclass(slots=True)
class _Route:
    """Connections to one origin at one checked address."""

    client: Client
    address: str
    expires: float
    certificate: LoadedCertificate | None = None
    failed: bool = False


class HttpClient:
    """Sends POSTs and GETs to guarded targets over kept-alive connections.

    A name is looked up once per `Pool.ttl`, all its addresses are judged, and connections go to a judged address, with
    the URL's own host in Host and SNI. Redirects are not followed; proxies from the environment, cookies and compressed
    answers are not used. A `certificate` is shown to those who ask for one. Safe to call from many tasks of one event loop.
    """

    def __init__(
        self,
        guard: Guard,
        timeouts: DeliveryTimeouts | None = None,
        pool: PoolLimits | None = None,
        certificate: ClientCertificate | None = None,
    ) -> None:
        self._guard = guard
        self._timeouts = timeouts or DeliveryTimeouts()
        self._pool = pool or PoolLimits()
        self._certificate = certificate
        self._routes: OrderedDict[str, _Route] = OrderedDict()
        self._opening: dict[str, asyncio.Task[_Route]] = {}
        self._closed = False

    async def __aenter__(self) -> Self:
        """Start the HTTP library, so that a shortage of descriptors or threads ends the start; nothing is dialled before the first request.

        The library starts its event loop with the first client and remembers a failure to do so for as long as the process lives.
        """
        try:
            await ClientBuilder().no_proxy().danger_accept_invalid_certs(True).build().close()
        except RuntimeError as error:
            raise ConfigError(
                f"The HTTP client cannot be started ({error}). "
                "Let the process have more open files (ulimit -n) and threads (ulimit -u), and start it again."
            ) from None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections. Requests under way, and later ones, fail with DeliveryError."""
        self._closed = True
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        while self._routes:
            _, route = self._routes.popitem()
            await route.client.close()

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> HttpResponse:
        """POST a JSON body to the URL, which is used as given (CB-1), and say what was answered, whatever the status.

        As given means: `.` and `..` segments are resolved and what is not ASCII is percent-encoded, as in every URL
        parser; nothing else is touched. `headers` come on top of `Content-Type: application/json` (TRA-1).

        Raises ForbiddenTarget when the guard says no and DeliveryError when no answer came; both name the origin, never
        the path or the query, which carry secrets.
        """
        target = self._guard.check_url(url)
        route = await self._route_to(target)
        try:
            request = route.client.post(url).header("content-type", "application/json").headers(headers)
            request = request.body_bytes(body)
            # Without a buffer the head of the answer comes alone: a body that breaks off cannot take back a 200.
            async with request.streamed_read_buffer_limit(0).build_streamed() as response:
                status = response.status
                wait = _retry_after(response) if status >= 300 else None
                if 400 <= status < 500 and _is_problem(response):
                    return HttpResponse(status, wait, refusal_reason(await _read_problem(response), _secrets(headers)))
                if response.get_header("content-length") != "0":
                    await _discard_body(response)
                return HttpResponse(status, wait)
        except (PyreqwestError, ValueError) as error:
            raise self._failed(target, route, error) from None

    async def get(self, url: str, headers: Mapping[str, str], *, limit: int) -> tuple[int, bytes]:
        """GET the URL, used as given like that of a `post`, and say what was answered, whatever the status.

        A body of more than `limit` bytes is a DeliveryError and not read to its end; so is one that breaks off. Otherwise errors are those
        of a `post`.
        """
        target = self._guard.check_url(url)
        route = await self._route_to(target)
        try:
            request = route.client.get(url).headers(headers)
            async with request.streamed_read_buffer_limit(0).build_streamed() as response:
                body = await _read_body(response, limit)
                status = response.status
        except (PyreqwestError, ValueError) as error:
            raise self._failed(target, route, error) from None
        if body is None:
            raise DeliveryError(f"{target.origin} answered with more than {limit} bytes.")
        return status, body

    async def _route_to(self, target: Target) -> _Route:
        route = self._routes.get(target.origin)
        if route is None or asyncio.get_running_loop().time() >= route.expires:
            return await self._open(target)
        self._routes.move_to_end(target.origin)
        return route

    def _failed(self, target: Target, route: _Route, error: Exception) -> DeliveryError:
        """What to raise for the library's error, or for its ValueError: it refuses to send a header. Not chained: it quotes it."""
        if _could_not_connect(error):
            route.failed, route.expires = True, 0.0
        return DeliveryError(f"{target.origin}: {self._describe(error)}.")

    async def _open(self, target: Target) -> _Route:
        if self._closed:
            raise DeliveryError(f"{target.origin}: {_CLOSED}.")
        task = self._opening.get(target.origin)
        if task is None:
            # A task of its own: many requests wait for one lookup, and each of them may be cancelled.
            task = asyncio.create_task(self._find_route(target))
            self._opening[target.origin] = task
            task.add_done_callback(lambda done: self._opened(target, done))
        await asyncio.wait({task})
        if task.cancelled():
            raise DeliveryError(f"{target.origin}: {_CLOSED}.")
        try:
            return task.result()
        except (
            RuntimeError
        ) as error:  # no thread can be started to look the name up or to load certificates; it may be later
            raise DeliveryError(f"{target.origin}: {error}.") from None

    def _opened(self, target: Target, task: asyncio.Task[_Route]) -> None:
        del self._opening[target.origin]
        if not task.cancelled():
            task.exception()  # asyncio complains about unretrieved errors, even if no task waits any more

    async def _find_route(self, target: Target) -> _Route:
        try:
            async with asyncio.timeout(self._timeouts.connect):
                addresses = await self._guard.resolve(target)
        except TimeoutError:
            raise DeliveryError(f"{target.origin}: the name took too long to resolve.") from None
        certificate = await self._load_certificate(target)
        route = self._routes.get(target.origin)
        # An address that still holds keeps its connections, unless it failed and there is another one to try.
        if (
            route is None
            or route.address not in addresses
            or route.certificate != certificate
            or (route.failed and len(addresses) > 1)
        ):
            address = await _first_reachable(addresses, target.port)
            try:
                # Loading the trusted certificates takes milliseconds; a thread keeps them off the event loop.
                client = await asyncio.to_thread(self._build, target, address, certificate)
            except (PyreqwestError, ValueError) as error:
                raise DeliveryError(f"{target.origin}: https is not possible here ({_innermost(error)}).") from None
            route = _Route(client, address, 0.0, certificate)
        route.failed, route.expires = False, asyncio.get_running_loop().time() + self._pool.ttl
        self._routes[target.origin] = route
        self._routes.move_to_end(target.origin)
        while len(self._routes) > self._pool.origins:
            # Dropped, not closed: requests under way keep their client alive until they are done.
            self._routes.popitem(last=False)
        return route

    async def _load_certificate(self, target: Target) -> LoadedCertificate | None:
        """The client certificate as it is now: short-lived ones are renewed while we run."""
        if self._certificate is None or target.scheme == "http":
            return None
        try:
            return await asyncio.to_thread(self._certificate.load)
        except ConfigError as error:
            raise DeliveryError(f"{target.origin}: {error}") from None

    def _build(self, target: Target, address: str, certificate: LoadedCertificate | None) -> Client:
        builder = (
            ClientBuilder()
            .user_agent("rapkit")
            .connect_timeout(timedelta(seconds=self._timeouts.connect))
            .timeout(timedelta(seconds=self._timeouts.total))
            .follow_redirects(False)
            .no_proxy()
            .gzip(False)
            .brotli(False)
            .zstd(False)
            .deflate(False)
        )
        if target.scheme == "http":
            # No certificate is ever seen here: this client serves one http origin and follows no redirect. It spares us
            # loading the trusted ones, which fails on a machine that has none, as slim containers do.
            builder = builder.danger_accept_invalid_certs(True)
        if certificate is not None:
            builder = certificate.configure(builder)
        if address != target.host:
            # The library keeps one address per name: a second `resolve` would replace the first.
            builder = builder.resolve(target.host, address, target.port)
        return builder.build()

    def _describe(self, error: Exception) -> str:
        match error:
            case RequestTimeoutError() if _could_not_connect(error):
                return f"no connection within {self._timeouts.connect:g} s"
            case RequestTimeoutError():
                return f"no answer within {self._timeouts.total:g} s"
            case ClientClosedError():
                return _CLOSED
            case ValueError():
                return "a header or the URL cannot be sent as it is"
        return _innermost(error)


async def _first_reachable(addresses: tuple[str, ...], port: int) -> str:
    """The first address that accepts a connection; the first of all if none does, so that the request tells why."""
    if len(addresses) == 1:
        return addresses[0]
    for address in addresses[:_MOST_PROBES]:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_PROBE_PATIENCE):
                _, writer = await asyncio.open_connection(address, port)
            writer.close()
            return address
    return addresses[0]


async def _discard_body(response: Response) -> None:
    """Read a short body to its end, so that the connection can be used again; a long one costs the connection.

    The answer counts whatever becomes of its body. A slow one is given up when the POST's time is.
    """
    length = response.get_header("content-length") or ""
    left = min(int(length), _BODY_LIMIT) if length.isdecimal() else _BODY_LIMIT
    with contextlib.suppress(PyreqwestError):
        while left > 0 and (chunk := await response.body_reader.read_chunk()) is not None:
            left -= len(chunk)


def _is_problem(response: Response) -> bool:
    return (response.get_header("content-type") or "").partition(";")[0].strip().lower() == PROBLEM


async def _read_problem(response: Response) -> bytes:
    """A problem document, or nothing if it is long or breaks off: the answer counts all the same."""
    with contextlib.suppress(PyreqwestError):
        return await _read_body(response, LARGEST) or b""
    return b""


async def _read_body(response: Response, limit: int) -> bytes | None:
    """The whole body, or None if it is longer than the limit, whatever it says about its length."""
    length = response.get_header("content-length") or ""
    if length.isdecimal() and int(length) > limit:
        return None
    body = bytearray()
    while (chunk := await response.body_reader.read_chunk()) is not None:
        body += chunk
        if len(body) > limit:
            return None
    return bytes(body)


def _retry_after(response: Response) -> float | None:
    text = response.get_header("retry-after")
    if text is None:
        return None
    if re.fullmatch(r"[0-9]{1,9}", text):
        return float(text)
    try:
        # Counted from the answer's own date: the receiver's clock may be wrong, but it is the one that was read.
        wait = parsedate_to_datetime(text) - parsedate_to_datetime(response.get_header("date") or "")
    except (ValueError, TypeError, OverflowError):
        return None
    return max(wait.total_seconds(), 0.0)


def _could_not_connect(error: Exception) -> bool:
    # The library's ConnectError also stands for a connection that broke after the request was sent; its causes differ.
    return "client error (Connect)" in _causes(error)


def _innermost(error: Exception) -> str:
    """What happened. It comes last; the outer causes only repeat it, and quote the URL."""
    reasons = [cause for cause in _causes(error) if "://" not in cause]
    return reasons[-1] if reasons else "the connection failed"


def _causes(error: Exception) -> list[str]:
    if not isinstance(error, DetailedPyreqwestError):
        return []
    return [cause["message"] for cause in error.details["causes"] or ()]


def _secrets(headers: Mapping[str, str]) -> list[str]:
    return [value for name, value in headers.items() if name.lower() not in _NO_SECRETS]
