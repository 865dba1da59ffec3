"""Check whether a server may hand out URLs that begin with http://.

Callback URLs and the URLs that answers and OAuth redirects come to are secrets (TRA-2). Over plain HTTP every machine on the way can read
them.
"""

import logging
from urllib.parse import urlsplit

from rapkit.errors import ConfigError
from rapkit.http.authentication import is_loopback_host

log = logging.getLogger("rapkit.http")


def check_plain_http(public_url: str, *, allowed: bool) -> None:
    """Raise `ConfigError` for plain HTTP to a host that is not loopback; where it is allowed, log a warning instead."""
    parts = urlsplit(public_url)
    if parts.scheme.lower() != "http" or is_loopback_host(parts.hostname or ""):
        return
    if not allowed:
        raise ConfigError(
            f"{public_url} is plain HTTP, and the URLs below it are secrets: every machine on the way could read them. Put a proxy with "
            "TLS before it and use https://. In a network that you trust, set allow_plain_http (--allow-plain-http)."
        )
    log.warning(
        "%s is plain HTTP: secret URLs travel in clear. It is allowed by allow_plain_http; use it only in a network that you trust.",
        public_url,
    )
