"""Authenticate callers by the TLS client certificate of their connection, which the handshake has verified."""

import re
from collections.abc import Mapping
from typing import Any

from starlette.types import Scope

CALLER_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
PEER_NAMES = "rapkit.peer_names"
"""Where the names of the peer's certificate are in the `state` of a request."""

_ALTERNATIVES = ("DNS", "URI", "email")


def peer_names(certificate: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The names in a verified certificate, as `ssl` shows it: its alternative names (DNS, URI, email), or without any its common name."""
    if not certificate:
        return ()
    names = tuple(name for kind, name in certificate.get("subjectAltName", ()) if kind in _ALTERNATIVES)
    common = (value for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName")
    return names or tuple(common)


class CertificateNames:
    """Names callers by the names in their certificates.

    `callers` are the callers by a name of their certificate; certificates without such a name are not accepted. If it is empty, every
    certificate is, and the caller is called what the certificate says.
    """

    def __init__(self, callers: Mapping[str, str]) -> None:
        self._callers = dict(callers)

    def identify(self, scope: Scope) -> str | None:
        """The name of the caller at the other end of the connection, or None."""
        names: tuple[str, ...] = scope.get("state", {}).get(PEER_NAMES, ())
        if self._callers:
            return next((self._callers[name] for name in names if name in self._callers), None)
        return next((name for name in names if CALLER_NAME.fullmatch(name)), None)
