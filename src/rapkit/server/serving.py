"""Serving a toolset on a port of this machine."""

import asyncio
import contextlib
import errno
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import uvicorn

from rapkit.errors import ConfigError
from rapkit.server.callers import is_loopback_host

if TYPE_CHECKING:
    from rapkit.server.toolset import Toolset

log = logging.getLogger("rapkit.server")


def serve(toolset: "Toolset", host: str, port: int, *, on_start: Callable[[str], None] = lambda _url: None) -> None:
    """Serve until SIGINT or SIGTERM, then end in order. `on_start` is told the URL once requests are accepted.

    `ConfigError` if it cannot be served that way: the port is taken, or it would be open to strangers.
    """
    toolset.document("http://localhost")  # an unusable toolset is found before the port is
    if toolset.callers.local_only and not is_loopback_host(host):
        raise ConfigError(
            f"{host} can be reached from other machines, and no token is configured: anybody could call your tools. "
            "Configure a token (--token, or Toolset(tokens=...)), or listen on 127.0.0.1."
        )
    with _listen(host, port) as listener, asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(toolset, listener, host, on_start))


async def _serve(toolset: "Toolset", listener: socket.socket, host: str, on_start: Callable[[str], None]) -> None:
    server = _Server(
        uvicorn.Config(
            toolset.app,
            lifespan="off",  # it is entered here, so that a store that does not open is an error of ours, told in our words
            access_log=False,
            log_config=None,
            timeout_graceful_shutdown=5,
            server_header=False,
            date_header=False,
        )
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, server.stop_or_hurry, asyncio.current_task())
    address = host if ":" not in host else f"[{host}]"
    with contextlib.suppress(asyncio.CancelledError):
        async with toolset.lifespan(loopback_callbacks=is_loopback_host(host)):
            on_start(toolset.public_url or f"http://{address}:{listener.getsockname()[1]}")
            await server.serve(sockets=[listener])


class _Server(uvicorn.Server):
    """A server that leaves signals to us: after its own shutdown there is still work to be ended in order."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop_or_hurry(self, task: "asyncio.Task[None] | None") -> None:
        """At the first signal end in order, at the second at once."""
        if self.should_exit and task is not None:
            task.cancel()
        self.should_exit = True


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not to be had on this platform
        return None
    return uvloop.new_event_loop


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"Port {port} on {host} is taken. Stop what uses it, or choose another with --port."
            ) from None
        raise ConfigError(f"Cannot listen on {host} port {port}: {error.strerror or error}.") from None
    return listener
