"""HTTP requests to an agent: URL, token, time limits, retries, and every failure as a `ClientError`."""

import asyncio
import atexit
import contextlib
import json
import logging
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from http import HTTPStatus
from ipaddress import ip_address
from types import TracebackType
from typing import Any, NoReturn, Self, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from pyreqwest.client import Client as HttpClient
from pyreqwest.client import ClientBuilder
from pyreqwest.exceptions import DetailedPyreqwestError, PyreqwestError, RequestTimeoutError
from pyreqwest.response import Response

from rapkit.client.config import ClientRetries, ClientTimeouts
from rapkit.client.decode import decode, parse_json
from rapkit.errors import (
    AgentTimeout,
    AgentUnreachable,
    BadRequest,
    ClientError,
    ConfigError,
    Conflict,
    InvalidAnswer,
    NotFound,
    Unauthorized,
    Unavailable,
)
from rapkit.ids import new_id
from rapkit.printable import printable
from rapkit.secret import read_bearer

log = logging.getLogger("rapkit.client")

T = TypeVar("T")

LARGEST = 64 * 1024 * 1024
"""Bytes of an answer, or of one event: a page of history has up to 8 MiB and one entry more, which may hold images."""

_LARGEST_PROBLEM = 64 * 1024
_LONGEST_DETAIL = 2000
_WORTH_RETRYING = (429, 502, 503, 504)
_SETTLING = 0.05
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_IN_PATHS = "/%:@!$&'()*+,;=~"
_IS_AGENT = "Is there an agent at this URL?"


@dataclass(frozen=True, slots=True)
class AgentUrl:
    """The base URL of an agent; `ConfigError` if there cannot be one."""

    text: str
    is_loopback: bool = field(init=False)
    is_tls: bool = field(init=False)

    def __post_init__(self) -> None:
        """Refuse what is no URL of an agent."""
        if "@" in self.text:  # and it is not repeated here
            raise ConfigError("The URL of an agent holds no user name or password. Give the client a token instead.")
        try:
            parts = urlsplit(self.text)
            host, usable = parts.hostname, parts.port != 0 and bool(self.text.encode())
        except ValueError:  # a port that is no number, a bracket that is not closed, what is no text
            parts, host, usable = urlsplit(""), None, False
        usable = usable and self.text.isprintable() and " " not in self.text
        if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment or not usable:
            raise ConfigError(f"{self.text!r} is not the URL of an agent. Write it like http://127.0.0.1:8700.")
        object.__setattr__(self, "text", self.text.rstrip("/"))
        object.__setattr__(self, "is_tls", parts.scheme == "https")
        object.__setattr__(self, "is_loopback", _is_loopback(host))

    def to(self, path: str, query: Mapping[str, Any] | None = None) -> str:
        """A URL below it. What is None is left out of the query."""
        given = {name: value for name, value in (query or {}).items() if value is not None}
        base = quote(self.text, safe=_IN_PATHS + "[]?#")
        return f"{base}{path}" + (f"?{urlencode(given, errors='backslashreplace')}" if given else "")


def path_of(*segments: str) -> str:
    """A path of the API. `NotFound` if a segment can be the id of nothing."""
    for segment in segments:
        if segment in ("", ".", ".."):  # which every URL parser would resolve to another path
            raise NotFound(f"{segment!r} is not the id of anything. Take the id from a list of threads or calls.")
    return "/v1/" + "/".join(quote(segment, safe="", errors="backslashreplace") for segment in segments)


class Transport:
    """Requests to one agent. Safe to use from many tasks of one event loop."""

    def __init__(
        self,
        url: AgentUrl,
        token: str | None,
        timeouts: ClientTimeouts,
        retries: ClientRetries,
    ) -> None:
        self.url = url
        self.timeouts = timeouts
        self.retries = retries
        self._token = None if token is None else read_bearer(token)
        self._http: HttpClient | None = None

    async def __aenter__(self) -> Self:
        """Open it. Nothing is dialled before the first request."""
        if self._http is not None:
            raise ConfigError("The client is open already. Share it between tasks, or make another one.")
        self._http = await asyncio.to_thread(self._build)
        _settle_before_exit()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        http, self._http = self._http, None
        if http is not None:
            await http.close()

    def _build(self) -> HttpClient:
        builder = (
            ClientBuilder()
            .user_agent("rapkit")
            .connect_timeout(timedelta(seconds=self.timeouts.connect))
            .follow_redirects(False)
            .gzip(False)
            .brotli(False)
            .zstd(False)
            .deflate(False)
        )
        if self.url.is_loopback:
            builder = builder.no_proxy()
        if not self.url.is_tls:
            # No certificate is ever seen. It spares us loading the trusted ones, which fails on a machine that has none.
            builder = builder.danger_accept_invalid_certs(True)
        try:
            return builder.build()
        except (PyreqwestError, ValueError, RuntimeError) as error:
            raise ConfigError(f"The HTTP client cannot be started: {error}.") from None

    async def get(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """The JSON document of a GET, retried as the settings say."""
        return await self._retried(lambda: self._exchange("GET", self.url.to(path, query), {}, None))

    async def post(self, path: str, body: Mapping[str, Any] | None, key: str | None) -> Any:
        """The JSON document of a POST, retried as the settings say.

        All attempts have the same idempotency key, so the agent does what is asked once, whichever of them it gets.
        """
        if key is not None and not _KEY.fullmatch(key):
            raise BadRequest("An idempotency key is 1 to 255 printable ASCII characters without blanks.")
        headers = {"Idempotency-Key": new_id("req") if key is None else key}
        content = _written(body or {})
        return await self._retried(lambda: self._exchange("POST", self.url.to(path), headers, content))

    async def _retried(self, attempt: Callable[[], Awaitable[Any]]) -> Any:
        failures = 0
        while True:
            try:
                return await attempt()
            except (AgentUnreachable, Unavailable) as error:
                failures += 1
                pause = self.pause_after(error, failures)
                if failures >= self.retries.attempts or pause is None:
                    raise
                log.debug("attempt %d failed, the next one is in %.2f s: %s", failures, pause, error)
            await asyncio.sleep(pause)

    def pause_after(self, error: ClientError, failures: int) -> float | None:
        """How long to wait before the request is sent again; None if that is not worth it."""
        if isinstance(error, Unavailable) and error.status not in _WORTH_RETRYING:
            return None
        asked = error.retry_after or 0.0
        if asked > self.retries.longest_pause:
            return None
        return max(asked, self.retries.pause(failures, random.random()))  # noqa: S311 (spreads clients out)

    async def _exchange(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Any:
        try:
            async with asyncio.timeout(self.timeouts.answer), self._sent(method, url, headers, body) as response:
                await self._check(response)
                status, text = response.status, await self._read(response, LARGEST)
        except TimeoutError:
            raise AgentTimeout(
                f"{self.url.text} did not answer within {self.timeouts.answer:g} s. It may have done what it was asked all "
                "the same: look at the thread, or send the request again with the same idempotency key."
            ) from None
        if text is None:
            raise InvalidAnswer(f"{self.url.text} answered with more than {LARGEST} bytes. {_IS_AGENT}", status=status)
        with self.naming_the_agent():
            return parse_json(text)

    @contextlib.asynccontextmanager
    async def stream(self, path: str, headers: Mapping[str, str]) -> AsyncIterator["ByteStream | None"]:
        """The body of a GET as it comes, or None if the agent says that there is nothing more (204)."""
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(self.timeouts.answer):
                    asked = {"Accept": "text/event-stream", **headers}
                    response = await stack.enter_async_context(self._sent("GET", self.url.to(path), asked, None))
                    await self._check(response)
            except TimeoutError:
                raise AgentUnreachable(f"{self.url.text} did not answer within {self.timeouts.answer:g} s.") from None
            if response.status == HTTPStatus.NO_CONTENT:
                yield None
                return
            if _media_type(response) != "text/event-stream":
                raise InvalidAnswer(
                    f"{self.url.text} did not answer with a stream of events. {_IS_AGENT}", status=response.status
                )
            yield ByteStream(self, response)

    @contextlib.asynccontextmanager
    async def _sent(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> AsyncIterator[Response]:
        if self._http is None:
            raise ConfigError("The client is not open. Use it as `async with Client(...) as client:`.")
        request = self._http.request(method, url).headers(headers)
        if self._token is not None:
            request = request.header("Authorization", f"Bearer {self._token}", is_sensitive=True)
        if body is not None:
            request = request.header("Content-Type", "application/json").body_bytes(body)
        streamed = request.streamed_read_buffer_limit(0).build_streamed()
        with self.mapped_errors():
            response = await streamed.__aenter__()
        try:
            yield response
        finally:
            with self.mapped_errors():
                await streamed.__aexit__(None, None, None)

    async def _read(self, response: Response, limit: int) -> bytes | None:
        """The whole body, or None if it is longer than the limit."""
        body = bytearray()
        with self.mapped_errors():
            while (chunk := await response.body_reader.read_chunk()) is not None:
                body += chunk
                if len(body) > limit:
                    return None
        return bytes(body)

    async def _check(self, response: Response) -> None:
        """A `ClientError` unless the answer is a success."""
        status = response.status
        if 200 <= status < 300:
            return
        detail = _detail(await self._read(response, _LARGEST_PROBLEM) or b"")
        wait = _retry_after(response)
        where = f"{self.url.text} answered {status}"
        said = f": {detail}" if detail else "."
        if status in (401, 403):
            advice = (
                "Check the token of the client." if self._token else "Give the client a token: Client(url, token=...)."
            )
            raise Unauthorized(f"{where}{said} {advice}", status=status, detail=detail)
        if status == 429 or status >= 500:
            raise Unavailable(
                f"{where}{said}" if detail else f"{where}. {_IS_AGENT} Try again later.",
                status=status,
                detail=detail,
                retry_after=wait,
            )
        if 300 <= status < 400:
            raise InvalidAnswer(f"{where}, a redirect. Give the client the URL it leads to.", status=status)
        kind = {404: NotFound, 409: Conflict}.get(status, BadRequest)
        raise kind(f"{where}{said}" if detail else f"{where}. {_IS_AGENT}", status=status, detail=detail)

    @contextlib.contextmanager
    def mapped_errors(self) -> Iterator[None]:
        """The library's errors as ours."""
        try:
            yield
        except (PyreqwestError, ValueError) as error:
            self._fail(error)

    @contextlib.contextmanager
    def naming_the_agent(self) -> Iterator[None]:
        """Say in an `InvalidAnswer` whose answer it was."""
        try:
            yield
        except InvalidAnswer as error:
            raise InvalidAnswer(f"{self.url.text}: {error} {_IS_AGENT}") from None

    def read(self, kind: type[T], document: object) -> T:
        """An answer as what it is; `InvalidAnswer` if it is something else."""
        with self.naming_the_agent():
            return decode(kind, document)

    def _fail(self, error: Exception) -> NoReturn:
        if isinstance(error, RequestTimeoutError):
            raise AgentUnreachable(
                f"No connection to {self.url.text} within {self.timeouts.connect:g} s. Is the agent running there?"
            ) from None
        raise AgentUnreachable(
            f"{self.url.text} cannot be reached: {_innermost(error)}. Is the agent running there?"
        ) from None


class ByteStream:
    """The body of an answer, piece by piece."""

    def __init__(self, transport: Transport, response: Response) -> None:
        self._transport = transport
        self._response = response

    async def read(self) -> bytes | None:
        """The next piece, or None at the end; `AgentUnreachable` if the connection breaks or is quiet for too long."""
        transport = self._transport
        quiet = transport.timeouts.quiet
        try:
            with transport.mapped_errors():
                async with asyncio.timeout(quiet):
                    chunk = await self._response.body_reader.read_chunk()
        except TimeoutError:
            raise AgentUnreachable(f"The stream of {transport.url.text} was quiet for {quiet:g} s.") from None
        return None if chunk is None else bytes(chunk)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _written(body: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise BadRequest("The text has characters that are not Unicode (lone surrogates). Replace them.") from None
    except ValueError:
        raise BadRequest("A number in the request is infinite or not a number.") from None


def _detail(text: bytes) -> str | None:
    try:
        document = parse_json(text)
    except InvalidAnswer:
        return None
    detail = document.get("detail") if isinstance(document, dict) else None
    return printable(detail)[:_LONGEST_DETAIL] if isinstance(detail, str) and detail.strip() else None


def _retry_after(response: Response) -> float | None:
    text = response.get_header("retry-after") or ""
    return float(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


def _media_type(response: Response) -> str:
    return (response.get_header("content-type") or "").partition(";")[0].strip().lower()


def _innermost(error: Exception) -> str:
    """What happened. It comes last; the outer causes only repeat it, and quote the URL."""
    causes = (error.details["causes"] or []) if isinstance(error, DetailedPyreqwestError) else []
    reasons = [cause["message"] for cause in causes if "://" not in cause["message"]]
    return printable(reasons[-1])[:200] if reasons else "the connection failed"


@cache
def _settle_before_exit() -> None:
    """Let the HTTP library's thread come to rest before the interpreter ends.

    It lets go of Python objects a moment after a request is over. If the interpreter ends in that moment, it aborts (pyreqwest 0.15 on
    Python before 3.14; scripts that do nothing but one request abort in up to two of three runs).
    """
    atexit.register(time.sleep, _SETTLING)
