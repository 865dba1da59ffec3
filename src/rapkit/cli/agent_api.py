"""A blocking client for an agent's HTTP API.

By hand rather than with our HTTP client, which does not hear Ctrl-C while it waits and cannot be interrupted by another thread.
"""

import contextlib
import http.client
import json
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from rapkit.errors import ConfigError, RapkitError
from rapkit.printable import printable

PATIENCE = 30.0
"""Seconds for which an agent may be silent before it answers."""

_PAUSE = 0.5
_QUIET = 45.0  # of a stream: a comment comes every 15 seconds
_NEEDS_A_TOKEN = (401, 403)
_LONGEST = 120.0  # for a whole answer, however steadily it comes
_LARGEST = 64 * 1024 * 1024  # of an answer, or of one event
_LONGEST_REASON = 200
_TOO_SHORT = 0.02  # for anything; a timer that goes off may be a little early
_IN_PATHS = "/%:@!$&'()*+,;=~"  # what stays as it is in the path of a URL; all else is escaped, as browsers do
_NO_TEXT = "backslashreplace"  # bytes that are no text are in no id: who asks for them finds nothing


class AgentUnreachable(RapkitError):
    """The agent cannot be reached, or not right now. It may come back."""


class _Gone(AgentUnreachable):
    """No agent answers at this URL."""


class AgentTimeout(RapkitError):
    """The agent was given until `ends_at`, and has not answered by then. Perhaps it does what it was asked all the same."""


class AgentRefused(RapkitError):
    """The agent answered that it will not do that; the text says why."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event of a thread's stream: `id` is None for those that are never repeated."""

    kind: str
    data: Any
    id: str | None


class _Document(dict[str, Any]):
    """An object of an answer. What every agent says, it has to say: what is not in it is no `KeyError` of ours."""

    def __missing__(self, key: str) -> Any:
        raise AgentRefused(
            http.client.OK, f"The agent did not answer as an agent does: it says nothing of {key}. {_OTHER}"
        )


_OTHER = "Is that an agent, of this version of rapkit?"


class AgentApi:
    """An agent at a URL. Any number of threads may use it at once: each request has a connection of its own.

    `patience` is how many seconds it may be silent before it answers. `when_gone` is called when nobody is there; if it says that somebody
    is now, the same is asked again. At `ends_at`, a time of `time.monotonic`, no answer is waited for any longer: `AgentTimeout`.
    """

    when_gone: Callable[[], bool] | None = None

    def __init__(
        self, url: str, token: str | None = None, *, patience: float = PATIENCE, ends_at: float | None = None
    ) -> None:
        if "@" in url:  # and it is not repeated here
            raise ConfigError("The URL of an agent holds no user name or password. Give it a token, with --token.")
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
            path = quote(parts.path.rstrip("/"), safe=_IN_PATHS)
            _ = (host or "").encode("idna")  # as it is asked for: no part of it is empty, or too long
        except ValueError:  # also a port that is no number, a bracket that is not closed, what is no text
            parts, host, port, path = urlsplit(""), None, None, ""
        if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
            raise ConfigError(f"{url!r} is not where an agent could be. Give its URL, like http://127.0.0.1:8700.")
        self.url = url.rstrip("/")
        self._host, self._port, self._tls = host, port, parts.scheme == "https"
        self._path = path
        self._token = token
        self._patience = patience
        self.ends_at = ends_at

    def get(self, path: str, **query: Any) -> Any:
        """Ask for something, like `get("threads", limit=5)`; what is None is left out."""
        given = {key: value for key, value in query.items() if value is not None}
        return self._ask("GET", f"{path}?{urlencode(given, errors=_NO_TEXT)}" if given else path)

    def post(
        self, path: str, body: Mapping[str, Any] | None = None, *, key: str | None = None, patience: float = 0.0
    ) -> Any:
        """Ask it to do something, once: for `patience` seconds the same is sent again to an agent that is away.

        `key` is what it is known by, so that whoever asks again, later, does not ask for something else.
        """
        ends_at = time.monotonic() + patience
        key = key or secrets.token_urlsafe()
        content = _written(body or {})
        while True:
            try:
                return self._ask("POST", path, content, {"Idempotency-Key": key})
            except AgentUnreachable:
                if time.monotonic() >= ends_at:
                    raise
                time.sleep(_PAUSE)

    def stream(self, thread_id: str, after: str | None = None) -> "EventStreamReader":
        """What happens in a thread, after the event with the id `after`, as long as the connection lasts."""
        return EventStreamReader(self, thread_id, after)

    def _ask(self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Any:
        try:
            return self._ask_once(method, path, body, headers or {})
        except _Gone:
            if not self._is_there_again():
                raise
        return self._ask_once(method, path, body, headers or {})

    def _is_there_again(self) -> bool:
        return self.when_gone is not None and self.when_gone()

    def _ask_once(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Any:
        try:
            with (
                self._mapped_errors(),
                contextlib.closing(self._connect(self._within(self._patience))) as connection,
            ):
                connection.connect()
                with _at_most(self._within(_LONGEST), connection.sock):
                    response = self._send(connection, method, path, body, headers)
                    text = response.read(_LARGEST + 1)
        except _Gone:
            self._within(_LONGEST)
            raise
        self._check(response, text)
        answer = _read(text) if 0 < len(text) <= _LARGEST else None
        if answer is None and text:
            raise AgentRefused(response.status, f"{self.url} did not answer as an agent does. {_OTHER}")
        return answer

    def _within(self, seconds: float) -> float:
        """So long, or as long as there is time; `AgentTimeout` if there is none."""
        left = seconds if self.ends_at is None else self.ends_at - time.monotonic()
        if left < _TOO_SHORT:
            raise AgentTimeout(f"{self.url} did not answer in time.")
        return min(seconds, left)

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        if self._tls:
            return http.client.HTTPSConnection(self._host, self._port, timeout=timeout)
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout)

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> http.client.HTTPResponse:
        every = {"User-Agent": "rapkit", **headers}
        if body is not None:
            every["Content-Type"] = "application/json"
        if self._token is not None:
            every["Authorization"] = f"Bearer {self._token}"
        connection.request(method, f"{self._path}/v1/{path}", body, every)
        return connection.getresponse()

    def _check(self, response: http.client.HTTPResponse, text: bytes) -> None:
        """`AgentUnreachable` or `AgentRefused`, unless all is well."""
        status = response.status
        if status < http.client.BAD_REQUEST:
            return
        said = _read(text) or _Document()
        detail = printable(str(said["detail"])) if "detail" in said else "Is there an agent?"
        if status >= http.client.INTERNAL_SERVER_ERROR:
            raise AgentUnreachable(f"{self.url} answered {status}: {detail}")
        if status in _NEEDS_A_TOKEN:
            hint = "Is the token right?" if self._token else "Give it with --token, or in RAPKIT_TOKEN."
            why = f": {detail}" if said else ", so it wants a token."
            raise AgentRefused(status, f"{self.url} answered {status}{why} {hint}")
        raise AgentRefused(status, detail if "detail" in said else f"{self.url} answered {status}. {detail}")

    @contextlib.contextmanager
    def _mapped_errors(self) -> Iterator[None]:
        try:
            yield
        except ssl.SSLCertVerificationError as error:
            raise AgentRefused(0, f"{self.url} cannot prove who it is: {error.verify_message}.") from None
        except (OSError, http.client.HTTPException) as error:
            # What is no HTTP is in the error, byte by byte.
            reason = " ".join(str(getattr(error, "strerror", None) or error).split())[:_LONGEST_REASON]
            reason = printable(reason) or type(error).__name__
            raise _Gone(f"{self.url} cannot be reached: {reason}. Is the agent running there?") from None


class EventStreamReader:
    """One connection to a thread's events. Reading blocks; `close` ends it, from any thread."""

    def __init__(self, api: AgentApi, thread_id: str, after: str | None) -> None:
        self._api = api
        self._path = f"threads/{quote(thread_id, safe='', errors=_NO_TEXT)}/events"
        self._after = after
        self._connection: http.client.HTTPConnection | None = None
        self._socket: socket.socket | None = None
        self._closed = False

    def __iter__(self) -> Iterator[StreamEvent]:
        """Until the agent ends the stream. `AgentUnreachable` if it was lost, `EOFError` if there will never be more."""
        try:
            yield from self._read()
        except _Gone:
            if self._closed or not self._api._is_there_again():
                raise

    def _read(self) -> Iterator[StreamEvent]:
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": self._after} if self._after else {})
        with self._api._mapped_errors(), contextlib.closing(self._api._connect(_QUIET)) as connection:
            connection.connect()
            # Kept apart: the connection gives it away once the answer has begun.
            self._connection, self._socket = connection, connection.sock
            if self._closed:
                return
            response = self._api._send(connection, "GET", self._path, None, headers)
            if response.status == http.client.NO_CONTENT:
                raise EOFError("the thread is closed, and all of it was read")
            if response.status >= http.client.BAD_REQUEST:
                self._api._check(response, response.read(_LARGEST))
            try:
                yield from _events(response)
            except _NotEvents:
                raise AgentRefused(
                    response.status, f"{self._api.url} did not answer with a stream of events. Is that an agent?"
                ) from None

    def close(self) -> None:
        """Close the stream; a reader sees its end."""
        self._closed = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


class _NotEvents(Exception):
    """What comes is no stream of events, or not one of ours."""


def _events(response: http.client.HTTPResponse) -> Iterator[StreamEvent]:
    if response.headers.get_content_type() != "text/event-stream":
        raise _NotEvents
    kind, data, id_, size = "message", list[str](), None, 0
    for raw in iter(lambda: response.readline(_LARGEST + 1), b""):
        size += len(raw)
        if size > _LARGEST:
            raise _NotEvents
        line = raw.decode(errors="replace").rstrip("\r\n")
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match field:
            case "event":
                kind = value
            case "data":
                data.append(value)
            case "id":
                id_ = value
            case "" if not line:
                if data:
                    yield StreamEvent(kind, _event("\n".join(data)), id_)
                kind, data, id_, size = "message", [], None, 0


def _event(data: str) -> _Document:
    found = _read(data)
    if found is None:
        raise _NotEvents
    return found


def _written(body: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise AgentRefused(
            http.client.BAD_REQUEST, "That is no text: it holds bytes that are not UTF-8. Write it in UTF-8."
        ) from None


def _read(text: str | bytes) -> _Document | None:
    """What agents say is always an object; None is something else."""
    try:
        said = json.loads(text, object_hook=_Document)
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, _Document) else None


@contextlib.contextmanager
def _at_most(seconds: float, connection: socket.socket) -> Iterator[None]:
    """What is not there by then has not come; a socket's own timeout counts from byte to byte."""
    late = threading.Event()

    def give_up() -> None:
        late.set()
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if late.is_set():
            raise TimeoutError(f"no whole answer within {seconds:g} s")
