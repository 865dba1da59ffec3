"""Determine the agent's public URL, and check who may call it."""

from rapkit.errors import ConfigError
from rapkit.http.authentication import is_loopback_host
from rapkit.settings.settings import Settings

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what to call back instead: that is no address to call back


def public_url(settings: Settings, port: int | None = None) -> str:
    """The URL that is configured, or else that of the address it listens on; `port` is the one it got if it takes any."""
    if settings.public_url is not None:
        return settings.public_url
    port = port or settings.port
    if not port:
        raise ConfigError(
            "The agent listens on any free port, so nobody knows where tools reach it. Give it a port, or a --public-url."
        )
    host = _EVERYWHERE.get(settings.host, settings.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def check_who_may_call(settings: Settings) -> None:
    """`ConfigError` if unauthenticated callers on other machines could use the agent."""
    if not settings.tokens and not is_loopback_host(settings.host):
        raise ConfigError(
            f"{settings.host} can be reached from other machines, and no token is configured: anybody could use your agent. "
            "Configure a token (--token, or [agent.tokens] in the file), or listen on 127.0.0.1."
        )
