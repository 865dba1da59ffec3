"""Check whether a server accepts its token, without calling a tool.

Discovery need not tell: a server may answer that without a token. So an empty object is sent to where tools are called. It is no message of
the protocol, so the server can only refuse it; what counts is whether it refuses the credentials or the content.
"""

import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from rapkit.cli.doctor.checked_agent import CheckedAgent
from rapkit.cli.doctor.fetch import post
from rapkit.delivery.guard import Guard
from rapkit.http.authentication import is_loopback_host
from rapkit.protocol import ToolsetDocument
from rapkit.runtime.server import Server

NEEDS_A_TOKEN = (401, 403)
_NO_MESSAGE = b"{}"
_REFERENCES = ("env:", "file:")

InThread = Callable[..., Awaitable[Any]]


class TokenProbe:
    """Probes the invocation endpoints of servers, within what an agent with these servers would dial."""

    def __init__(self, servers: Sequence[Server], in_thread: InThread) -> None:
        async def resolve(host: str, port: int) -> list[str]:
            found = await in_thread(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
            return [str(address[0]) for *_, address in found]

        self._near = Guard(loopback=True, resolver=resolve)
        self._far = Guard([server.origin for server in servers if not server.is_local], resolver=resolve)
        self._in_thread = in_thread

    async def status(self, server: Server, document: ToolsetDocument) -> int:
        """What the server answers there to an agent with these settings; `DeliveryError` if nothing comes."""
        url = server.endpoint(document)
        guard = self._near if is_loopback_host(urlsplit(url).hostname or "") else self._far
        target = guard.check_url(url)
        address, *_ = await guard.resolve(target)
        headers = await server.headers("POST", url, _NO_MESSAGE)
        answer = await self._in_thread(post, url, headers, _NO_MESSAGE, target, address, server.certificate)
        status: int = answer.status
        return status


def what_is_wrong(server: Server, status: int) -> str:
    """Why a call would be refused with this status, one of `NEEDS_A_TOKEN`."""
    if server.auth is not None:
        return f"calls are answered {status}. {server.advice_when_refused}"
    if server.token is None:
        return f"calls are answered {status}: it wants credentials, and none are configured"
    source = f"the one from {server.token}" if server.token.startswith(_REFERENCES) else "the one that is configured"
    return f"calls are answered {status}: it wants a token, and {source} is not one it knows"


def what_to_do(server: Server, checked: CheckedAgent) -> str:
    """What to write, and where."""
    if server.auth is not None:
        return f"Correct how the agent proves to this server who it is, in {checked.config}."
    if server.token is None:
        entry = f'[[servers]] with url = "{server.url}" and token = "env:VARIABLE" or "file:PATH", or sigv4 or client_certificate'
        source = checked.sources.of(server)
        if source is not None:
            return f"Correct {source}. If it is right, it cannot hold credentials, but {checked.config} can: {entry}."
        return f"Put credentials for it into {checked.config}: {entry}."
    return f"Correct the token of this server in {checked.config}, or what it refers to: it has to be one that the server was started with."
