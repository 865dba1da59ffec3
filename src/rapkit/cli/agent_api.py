"""Talking to an agent from the command line: its client API, blocking.

By hand rather than with our HTTP client, which does not hear Ctrl-C while it waits and cannot be interrupted by another thread.
"""

import contextlib
import http.client
import json
import secrets
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from rapkit.cli.remote import printable
from rapkit.errors import ConfigError, RapkitError

_PATIENCE = 30.0
_PAUSE = 0.5
_QUIET = 45.0  # of a stream: a comment comes every 15 seconds
_NEEDS_A_TOKEN = (401, 403)


class AgentAway(RapkitError):
    """The agent cannot be reached, or not right now. It may come back."""


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


class AgentApi:
    """An agent at a URL. Any number of threads may use it at once: each request has a connection of its own."""

    def __init__(self, url: str, token: str | None = None) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:  # a port that is no number, a bracket that is not closed
            parts, host, port = urlsplit(""), None, None
        if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
            raise ConfigError(f"{url!r} is not where an agent could be. Give its URL, like http://127.0.0.1:8700.")
        self.url = url.rstrip("/")
        self._host, self._port, self._tls = host, port, parts.scheme == "https"
        self._path = parts.path.rstrip("/")
        self._token = token

    def get(self, path: str, **query: Any) -> Any:
        """Ask for something, like `get("threads", limit=5)`; what is None is left out."""
        given = {key: value for key, value in query.items() if value is not None}
        return self._ask("GET", f"{path}?{urlencode(given)}" if given else path)

    def post(
        self, path: str, body: Mapping[str, Any] | None = None, *, key: str | None = None, patience: float = 0.0
    ) -> Any:
        """Ask it to do something, once: for `patience` seconds the same is sent again to an agent that is away.

        `key` is what it is known by, so that whoever asks again, later, does not ask for something else.
        """
        ends_at = time.monotonic() + patience
        key = key or secrets.token_urlsafe()
        while True:
            try:
                return self._ask("POST", path, json.dumps(body or {}).encode(), {"Idempotency-Key": key})
            except AgentAway:
                if time.monotonic() >= ends_at:
                    raise
                time.sleep(_PAUSE)

    def stream(self, thread_id: str, after: str | None = None) -> "EventStream":
        """What happens in a thread, after the event with the id `after`, as long as the connection lasts."""
        return EventStream(self, thread_id, after)

    def _ask(self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Any:
        with self._mapped_errors(), contextlib.closing(self._connect(_PATIENCE)) as connection:
            response = self._send(connection, method, path, body, headers or {})
            text = response.read()
        self._check(response, text)
        try:
            return json.loads(text) if text else None
        except ValueError:
            raise AgentRefused(response.status, f"{self.url} did not answer with JSON. Is that an agent?") from None

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
        """`AgentAway` or `AgentRefused`, unless all is well."""
        status = response.status
        if status < http.client.BAD_REQUEST:
            return
        try:
            detail = printable(str(json.loads(text)["detail"]))
        except (ValueError, KeyError, TypeError):
            detail = "Is there an agent?"
        if status >= http.client.INTERNAL_SERVER_ERROR:
            raise AgentAway(f"{self.url} answered {status}: {detail}")
        if status in _NEEDS_A_TOKEN:
            hint = "Is the token right?" if self._token else "Give it with --token, or in RAPKIT_TOKEN."
            raise AgentRefused(status, f"{self.url} answered {status}: {detail} {hint}")
        raise AgentRefused(status, detail if text.startswith(b"{") else f"{self.url} answered {status}. {detail}")

    @contextlib.contextmanager
    def _mapped_errors(self) -> Iterator[None]:
        try:
            yield
        except ssl.SSLCertVerificationError as error:
            raise AgentRefused(0, f"{self.url} cannot prove who it is: {error.verify_message}.") from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise AgentAway(f"{self.url} cannot be reached: {reason}. Is the agent running there?") from None


class EventStream:
    """One connection to a thread's events. Reading blocks; `close` ends it, from any thread."""

    def __init__(self, api: AgentApi, thread_id: str, after: str | None) -> None:
        self._api = api
        self._path = f"threads/{quote(thread_id, safe='')}/events"
        self._after = after
        self._connection: http.client.HTTPConnection | None = None
        self._socket: socket.socket | None = None
        self._closed = False

    def __iter__(self) -> Iterator[StreamEvent]:
        """Until the agent ends the stream. `AgentAway` if it was lost, `EOFError` if there will never be more."""
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
                self._api._check(response, response.read())
            try:
                yield from _events(response)
            except _NotEvents:
                raise AgentRefused(
                    response.status, f"{self._api.url} did not answer with a stream of events. Is that an agent?"
                ) from None

    def close(self) -> None:
        """End it: whoever reads sees the end of the stream."""
        self._closed = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


class _NotEvents(Exception):
    """What comes is no stream of events, or not one of ours."""


def _events(response: http.client.HTTPResponse) -> Iterator[StreamEvent]:
    if response.headers.get_content_type() != "text/event-stream":
        raise _NotEvents
    kind, data, id_ = "message", [], None
    for raw in iter(response.readline, b""):
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
                    yield StreamEvent(kind, _read("\n".join(data)), id_)
                kind, data, id_ = "message", [], None


def _read(data: str) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        raise _NotEvents from None
