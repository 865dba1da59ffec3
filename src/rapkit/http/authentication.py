"""Authenticate callers by bearer token, signature or client certificate, and map each to a name.

What belongs to a caller (calls, threads, cancellations) is kept under the name, so that a token or a secret can be rotated without losing
anything: give the name two of them for a while. A token and a secret of one name are one caller.

A signature is that of Standard Webhooks, or that of AWS (`rapkit.http.sigv4`). The first covers a message id, a time within five minutes of
ours and the body, not the path. A copy of a signed request can be replayed for that long: an invocation repeated runs once, a
notice repeated changes nothing.
"""

import hashlib
import hmac
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from ipaddress import ip_address

from starlette.types import Scope

from rapkit.delivery import signatures
from rapkit.errors import ConfigError
from rapkit.http.certificates import CALLER_NAME, CertificateNames
from rapkit.http.rejected_log import RejectedLog
from rapkit.http.sigv4 import NotAuthentic, SigV4Keys

LOCAL = "local"
"""The name of every caller on this machine when neither tokens nor secrets are configured."""

Named = Mapping[str, str | Sequence[str]]
"""Tokens or secrets by the caller's name; several while they are rotated."""

_SHORTEST_TOKEN = 16
_BEARER = b"bearer "
_SIGNED = tuple(name.encode() for name in (signatures.MESSAGE_ID, signatures.TIMESTAMP, signatures.SIGNATURE))


class Callers:
    """Names callers by their tokens, signatures and certificates; without any, every caller from this machine is `local`.

    `now` is what the time in a signature is compared with. `certificates` are names in client certificates, by the caller's name; if there
    are none, every verified certificate is good. Requests of unknown callers are logged through `rejected_log`.
    """

    def __init__(
        self,
        tokens: Named,
        secrets: Named | None = None,
        now: Callable[[], float] = time.time,
        *,
        aws_keys: SigV4Keys | None = None,
        certificates: Named | None = None,
    ) -> None:
        self._names: list[tuple[bytes, str]] = []
        self._secrets: dict[str, list[str]] = {}
        self._now = now
        self._aws_keys = aws_keys
        self._certificates = None
        if certificates is not None:
            self._certificates = CertificateNames({each: name for name, each in _each("certificate", certificates)})
        self.rejected_log = RejectedLog()
        for name, token in _each("token", tokens):
            if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
                raise ConfigError(
                    f"The token {name!r} is too easy to guess or cannot be sent: it needs {_SHORTEST_TOKEN} or more printable ASCII "
                    'characters without blanks. Make one with: python -c "import secrets; print(secrets.token_urlsafe(32))"'
                )
            self._names.append((_digest(token.encode()), name))
        for name, secret in _each("secret", secrets or {}):
            try:
                signatures.headers("", 0, b"", [secret])  # one that cannot sign cannot verify, and is found now
            except ConfigError as error:
                raise ConfigError(f"The secret {name!r} cannot be used. {error}") from None
            self._secrets.setdefault(name, []).append(secret)

    @property
    def local_only(self) -> bool:
        """Whether there is nothing to know callers by, so that only this machine may call."""
        return not (self._names or self._secrets or self._aws_keys or self._certificates)

    @property
    def have_tokens(self) -> bool:
        """Whether a caller may show a token."""
        return bool(self._names)

    @property
    def have_secrets(self) -> bool:
        """Whether a caller may sign as Standard Webhooks do."""
        return bool(self._secrets)

    @property
    def have_aws_keys(self) -> bool:
        """Whether a caller may sign as AWS wants it."""
        return self._aws_keys is not None

    def identify(self, authorization: bytes, client: str | None, host: bytes) -> str | None:
        """The name of a caller who shows a token, or who is on this machine where that is enough; None for all others."""
        if self.local_only:
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

    @property
    def have_certificates(self) -> bool:
        """Whether a caller may be known by a client certificate."""
        return self._certificates is not None

    def identify_certificate(self, scope: Scope) -> str | None:
        """The name of a caller who has shown a client certificate that we accept; None for all others."""
        return None if self._certificates is None else self._certificates.identify(scope)

    def may_be_signed(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether a request could be signed, so that its body is worth reading."""
        if self._aws_keys is not None and self._aws_keys.signed(headers):
            return True
        return bool(self._secrets) and all(name in headers for name in _SIGNED)

    def identify_signed(self, scope: Scope, headers: Mapping[bytes, bytes], body: bytes) -> str:
        """The name of the caller that signed this request a moment ago; `NotAuthentic` for an unknown one."""
        if self._aws_keys is not None and self._aws_keys.signed(headers):
            return self._aws_keys.identify(scope, body)
        given = {name.decode(): headers.get(name, b"").decode("latin-1") for name in _SIGNED}
        now = self._now()
        found = None
        for name, secrets in self._secrets.items():  # all of them, as above
            if signatures.verify(given, body, secrets, now):
                found = name
        if found is None:
            raise NotAuthentic("its signature is not good, or too old")
        return found


def _each(kind: str, given: Named) -> Iterator[tuple[str, str]]:
    """Every name with every token or secret of its; each may have one owner."""
    owners: dict[str, str] = {}
    for name, several in given.items():
        if not CALLER_NAME.fullmatch(name):
            raise ConfigError(f"{name!r} cannot name a {kind}: use 1 to 64 of A-Z a-z 0-9 _ . -")
        values = [several] if isinstance(several, str) else several
        if not values:
            raise ConfigError(f"{name!r} has no {kind}. Give it one, or leave the name out.")
        for value in values:
            if owners.setdefault(value, name) != name:
                raise ConfigError(f"{owners[value]!r} and {name!r} have the same {kind}. Give each one of its own.")
            yield name, value


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
