"""Serve a toolset in a process of its own."""

import contextlib
import contextvars
import logging
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rapkit.errors import ConfigError
from rapkit.http.authentication import is_loopback_host
from rapkit.http.http_server import listen, serve_until_signal, url_of
from rapkit.http.tls import Tls
from rapkit.logs import set_up_logging
from rapkit.server.embedded import is_embedded, standard_output_for_the_port

if TYPE_CHECKING:
    from rapkit.server.toolset import Toolset

_LOADING = contextvars.ContextVar("loading", default=False)


HOW_TO_KNOW_CALLERS = (
    "Configure who may call: tokens (--token, or Toolset(tokens=...)), "
    "AWS keys (--aws-key) or client certificates (--client-ca)"
)


@contextlib.contextmanager
def only_loading() -> Iterator[None]:
    """In this context code is loaded for its toolset; that it begins to serve by itself is a mistake, and said to be one."""
    before = _LOADING.set(True)
    try:
        yield
    finally:
        _LOADING.reset(before)


def is_loading() -> bool:
    """Whether code is loaded for its toolset right now."""
    return _LOADING.get()


def tls_of(toolset: "Toolset", cert: str | None, key: str | None, client_ca: str | None) -> Tls | None:
    """HTTPS with these files, or None without any; `ConfigError` if they cannot be used, or not together."""
    if client_ca is None and toolset.client_certificates is not None:
        raise ConfigError(
            "Callers are to be known by client certificates, and there is no authority to verify them. Give one: --client-ca, client_ca=."
        )
    if cert is None:
        if key is not None or client_ca is not None:
            raise ConfigError("Without a certificate there is no TLS. Give one: --tls-cert, tls_cert=.")
        return None
    return Tls(cert, key, client_ca, optional=toolset.serves_strangers)


def serve(
    toolset: "Toolset", host: str, port: int, *, on_start: Callable[[str], None] | None = None, tls: Tls | None = None
) -> None:
    """Serve until SIGINT or SIGTERM, then end in order. `on_start` is told the URL once requests are accepted; by default people are.

    With RAP_EMBEDDED=1 in the environment it is a free loopback port, whatever was asked for, and `{"port": N}` is the only line on
    standard output. `ConfigError` if it cannot be served that way: the port is taken, or it would accept unauthenticated calls.
    """
    if is_loading():
        raise ConfigError('tools.run() is called while the file is loaded. Put it under: if __name__ == "__main__":')
    embedded = is_embedded()
    if embedded:
        host, port = "127.0.0.1", 0
    if tls is not None and tls.client_ca is not None and toolset.client_certificates is None:
        toolset.client_certificates = {}  # all of that authority
    _check(toolset, host)
    if not logging.getLogger().hasHandlers():
        set_up_logging("text", "info")
    tell = on_start or (lambda url: print(announcement(toolset, url), file=sys.stderr, flush=True))  # noqa: T201
    with contextlib.ExitStack() as stack:
        tell_port = stack.enter_context(standard_output_for_the_port()) if embedded else None
        listener = stack.enter_context(listen(host, port))

        def started() -> None:
            if tell_port is not None:
                tell_port(listener.getsockname()[1])
            tell(url_of(host, listener, "http" if tls is None else "https"))

        serve_until_signal(
            toolset.app,
            listener,
            toolset.lifespan(loopback_callbacks=is_loopback_host(host)),
            on_start=started,
            ending=f"calls that run get {toolset.durations.grace:g} s to end",
            tls=tls,
            limits=toolset.limits.http,
        )


def announcement(toolset: "Toolset", url: str) -> str:
    """What people are told when the server listens at this URL."""
    count = len(toolset.tools)
    public = f" (for callers {toolset.public_url})" if toolset.public_url else ""
    served = "No token is configured: only callers on this machine are served."
    callers = toolset.callers
    if not callers.local_only:
        proofs = ["a token"] * callers.have_tokens
        proofs += ["a signature"] * (callers.have_secrets or callers.have_aws_keys)
        proofs += ["a client certificate"] * callers.have_certificates
        served = f"Only callers with {' or '.join(proofs)} are served."
    tools = f"{count} tool{'s' * (count != 1)}"
    return f"{toolset.name}: {tools} at {url}{public}, kept in {toolset.store_url}\n{served}"


def _check(toolset: "Toolset", host: str) -> None:
    if not toolset.tools:
        raise ConfigError(f"toolset {toolset.name!r} has no tools. Put @tools.tool above a function.")
    toolset.document("http://localhost")  # an unusable toolset is found before the port is
    if toolset.public_url is not None:
        parts = urlsplit(toolset.public_url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ConfigError(
                f"{toolset.public_url!r} is not a public URL. Write it in full, like https://weather.example.com."
            )
    if toolset.callers.local_only and not is_loopback_host(host):
        raise ConfigError(
            f"{host} can be reached from other machines, and no credentials are configured: anybody could call your tools. "
            f"{HOW_TO_KNOW_CALLERS}, or listen on 127.0.0.1."
        )
