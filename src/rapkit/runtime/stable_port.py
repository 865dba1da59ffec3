"""Choose the port of an agent that has none configured, and keep it over restarts, because callback URLs contain it."""

import logging
import socket

from rapkit.errors import ConfigError
from rapkit.http.http_server import listen
from rapkit.mailbox import Fact, NewBox, Store
from rapkit.stores import open_store

MEMORY = "sqlite:///:memory:"
_PORT_BOX = NewBox("rapkit/agent", "agent", idle=True)
"""The box beside which the port is kept."""

_LISTENS = "listens"
_PORT = "port"
_RECEIVES = "receives"
_URL = "url"

log = logging.getLogger("rapkit.agent")


async def listen_on_last_port(host: str, store_url: str) -> socket.socket:
    """A socket on the port this store's agent had before, or on a free one, which is remembered from then on.

    It is remembered before this returns, so before any callback URL with it is made. A store in memory remembers nothing.
    """
    if store_url == MEMORY:
        return listen(host, 0)
    store = open_store(store_url)
    try:
        before = await _remembered(store)
        listener = _listen_again(host, before) or listen(host, 0)
        try:
            port = listener.getsockname()[1]
            if port != before:
                await store.note(_PORT_BOX, Fact(_PORT_BOX.id, _LISTENS, _PORT, str(port).encode()))
        except BaseException:
            listener.close()
            raise
    finally:
        await store.close()
    if before not in (None, port):
        log.warning(
            "Port %d, where the agent listened before, is taken, so it listens on %d. Calls it made before cannot call back, "
            "unless it is an agent on the same store that listens there now. Give it a port of its own: Agent(port=...).",
            before,
            port,
        )
    return listener


async def record_receiver(store: Store, url: str) -> None:
    """Put down where an agent without a worker receives, for those who wake it."""
    await store.note(_PORT_BOX, Fact(_PORT_BOX.id, _RECEIVES, _URL, url.encode()))


async def warn_if_url_differs(store: Store, url: str) -> None:
    """Warn if a process that wakes an agent would have tools call back at another URL than where the agent receives."""
    for record in await store.records(_PORT_BOX.id, _RECEIVES):
        if (receives := record.body.decode()) != url:
            log.warning(
                "Tools are told to call back at %s, but the agent without a worker on this store receives at %s. "
                "Give both the same public_url, or host and port.",
                url,
                receives,
            )


async def last_port(store_url: str) -> int | None:
    """The port this store's agent listens on, or did last, if it was given none."""
    if store_url == MEMORY:
        return None
    store = open_store(store_url)
    try:
        return await _remembered(store)
    finally:
        await store.close()


async def _remembered(store: Store) -> int | None:
    records = await store.records(_PORT_BOX.id, _LISTENS)
    return next((int(record.body) for record in records if record.key == _PORT), None)


def _listen_again(host: str, port: int | None) -> socket.socket | None:
    if port is None:
        return None
    try:
        return listen(host, port)
    except ConfigError:  # taken
        return None
