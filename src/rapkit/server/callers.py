"""Who calls: bearer tokens with names.

What belongs to a caller (calls, threads, cancellations) is kept under the token's name, so that a token can be rotated without losing
anything: give the name two tokens for a while.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from ipaddress import ip_address

from rapkit.errors import ConfigError

LOCAL = "local"
"""The name of everybody on this machine, when there are no tokens."""

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_SHORTEST_TOKEN = 16
_BEARER = b"bearer "


class Callers:
    """Names callers by their tokens; without any tokens, everybody who connects from this machine is `local`."""

    def __init__(self, tokens: Mapping[str, str | Sequence[str]]) -> None:
        self._names: list[tuple[bytes, str]] = []
        for name, given in tokens.items():
            if not _NAME.fullmatch(name):
                raise ConfigError(f"{name!r} cannot name a token: use 1 to 64 of A-Z a-z 0-9 _ . -")
            for token in [given] if isinstance(given, str) else given:
                if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
                    raise ConfigError(
                        f"The token {name!r} is too easy to guess or cannot be sent: it needs {_SHORTEST_TOKEN} or more printable ASCII "
                        'characters without blanks. Make one with: python -c "import secrets; print(secrets.token_urlsafe(32))"'
                    )
                self._names.append((_digest(token.encode()), name))

    @property
    def local_only(self) -> bool:
        """Whether there are no tokens, so that only this machine may call."""
        return not self._names

    def identify(self, authorization: bytes, client: str | None, host: bytes) -> str | None:
        """The caller's name, or None for a stranger."""
        if not self._names:
            # The Host is looked at so that a web page cannot reach us by a name it has pointed at this machine.
            return LOCAL if _is_loopback(client) and _is_loopback(_host_name(host)) else None
        if authorization[: len(_BEARER)].lower() != _BEARER:
            return None
        presented = _digest(authorization[len(_BEARER) :].strip())
        found = None
        for known, name in self._names:  # all of them, so that the time taken tells nothing
            if hmac.compare_digest(known, presented):
                found = name
        return found


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _host_name(host: bytes) -> str:
    text = host.decode("latin-1").strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]


@lru_cache(maxsize=256)
def is_loopback_host(host: str) -> bool:
    """Whether a host to bind to, or a peer's address, is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _is_loopback(host: str | None) -> bool:
    return host is None or is_loopback_host(host)  # None: a Unix socket
