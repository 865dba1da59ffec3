"""Send requests to a toolset's ASGI app without a network."""

import asyncio
import itertools
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message

from rapkit.delivery import signatures
from rapkit.delivery.request_signer import SigV4
from rapkit.http.authentication import LOCAL
from rapkit.ids import new_id
from rapkit.secret import read_secret
from rapkit.server.toolset import Secrets, Toolset

_HOST = "127.0.0.1:8001"
_DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


async def request(
    app: ASGIApp, method: str, target: str, body: bytes, headers: Mapping[str, str], peer: str = "127.0.0.1"
) -> Reply:
    """One request to an app as a server would hand it on. `target` is the path with its query."""
    path, _, query = target.partition("?")
    host, _, port = headers["host"].partition(":")
    sent = {"content-length": str(len(body)), **headers}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in sent.items()],
        "client": (peer, 50_000),
        "server": (host, int(port or 80)),
    }
    answer: list[Message] = []
    coming = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if not coming:
            await asyncio.Event().wait()  # the connection stays open
        return coming.pop()

    async def send(message: Message) -> None:
        answer.append(message)

    await app(scope, receive, send)
    start, *parts = answer
    return Reply(
        start["status"],
        {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in start["headers"]},
        b"".join(part.get("body", b"") for part in parts),
    )


class Requests:
    """Sends requests to the toolset.

    Every request comes from an address of its own on this machine, so that no rate limit is in a test's way.
    """

    def __init__(self, tools: Toolset, host: str = _HOST) -> None:
        self._tools = tools
        self._host = host
        self._peers = itertools.count(1)

    async def send(self, method: str, url: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Reply:
        """One request. `url` is a path, or a whole URL that the server has given away."""
        sent = {"host": self._host, **(headers or {})}
        return await request(self._tools.app, method, self._below_base(url), body, sent, self._peer())

    async def post(self, url: str, message: object, caller: str | None = None) -> Reply:
        """POST a message as JSON, with the credentials of a caller if one is named."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        credentials = {} if caller is None else self.credentials(caller, body, url)
        return await self.send("POST", url, body, {"content-type": "application/json", **credentials})

    @property
    def callers(self) -> list[str]:
        """The names of those who may call."""
        return [*_named(self._tools.tokens), *_named(self._tools.caller_secrets), *(self._tools.aws_keys or ())] or [
            LOCAL
        ]

    def credentials(self, caller: str, body: bytes, url: str, method: str = "POST") -> dict[str, str]:
        """What a caller shows: the token, or the signature of what is sent."""
        tokens, secrets = _named(self._tools.tokens), _named(self._tools.caller_secrets)
        if caller in tokens:
            return {"authorization": f"Bearer {read_secret(tokens[caller])}"}
        if caller in secrets:
            # By the real clock, which is what signatures are compared with.
            return signatures.headers(new_id("msg"), time.time(), body, [read_secret(secrets[caller])])
        if caller in (self._tools.aws_keys or {}):
            id, secret = next(iter((self._tools.aws_keys or {})[caller].items()))
            signed = (
                f"http://{self._host}{urlsplit(self._tools.public_url or '').path.rstrip('/')}{self._below_base(url)}"
            )
            return SigV4("local", "rapkit", id, secret).sign(method, signed, body)
        if caller in self.callers:
            return {}
        raise ValueError(f"There is no caller {caller!r}. The toolset knows: {', '.join(self.callers)}.")

    def _below_base(self, url: str) -> str:
        """The path and the query below the address where the toolset is reached."""
        if url.startswith("/"):
            return url
        public_url = (self._tools.public_url or "").rstrip("/")
        if public_url and url.startswith(f"{public_url}/"):
            return url.removeprefix(public_url)
        parts = urlsplit(url)
        return f"{parts.path}?{parts.query}" if parts.query else parts.path

    def _peer(self) -> str:
        number = next(self._peers)
        return f"127.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def _named(secrets: Secrets | None) -> dict[str, str]:
    """The first secret of every name."""
    if secrets is None:
        return {}
    named: Mapping[str, str | Sequence[str]] = {_DEFAULT: secrets} if isinstance(secrets, str) else secrets
    return {name: each if isinstance(each, str) else each[0] for name, each in named.items()}
