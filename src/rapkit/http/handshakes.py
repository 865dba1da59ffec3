"""TLS handshakes on connections that have a place among the others: who never ends its handshake makes place for those who do.

A server of asyncio that is given a certificate tells nobody of a connection before its handshake is over, so that connections which say
nothing could take every descriptor of the process. So connections are accepted here.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable

from rapkit.http.connections import Connection, Connections

_PAUSE_WITHOUT_DESCRIPTORS = 0.5

log = logging.getLogger("rapkit.http")

Make = Callable[[Connection], asyncio.Protocol]
"""The protocol of a connection, which takes over the place of its handshake."""


class TlsListener:
    """Accepts connections and shakes hands on them; like an `asyncio.Server` as far as uvicorn uses one."""

    def __init__(self, listener: socket.socket, make: Make, tls: ssl.SSLContext, connections: Connections) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._make = make
        self._tls = tls
        self._connections = connections
        self._handshakes: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.create_task(self._accept())

    def close(self) -> None:
        """Accept no more, and end the handshakes under way."""
        self._accepting.cancel()
        for task in self._handshakes:
            task.cancel()

    async def wait_closed(self) -> None:
        """Return once none of them is under way."""
        await asyncio.wait({self._accepting, *self._handshakes})

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(self._listener)
            except OSError as error:  # there are no descriptors left, or whoever connected has gone
                log.warning("a connection cannot be accepted: %s", error)
                await asyncio.sleep(_PAUSE_WITHOUT_DESCRIPTORS)
                continue
            handshake = _Handshake()
            if not self._connections.admit(handshake):
                accepted.close()  # nothing can be said before the handshake
                continue
            task = handshake.task = asyncio.create_task(self._shake_hands(accepted, handshake))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, accepted: socket.socket, handshake: "_Handshake") -> None:
        # Whatever goes wrong is the peer's business, and so is it if there was no time or no place for it: the connection is closed then.
        try:
            with contextlib.suppress(OSError):
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: self._make(handshake),
                    accepted,
                    ssl=self._tls,
                    ssl_handshake_timeout=self._connections.limits.head_seconds,
                )
        finally:
            self._connections.forget(handshake)


class _Handshake:
    """One that is under way. It has a deadline of its own."""

    task: "asyncio.Task[None] | None" = None

    def look(self, now: float) -> None:
        pass

    def abort(self) -> None:
        if self.task is not None:
            self.task.cancel()
