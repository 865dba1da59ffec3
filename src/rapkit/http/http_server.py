"""Serve an ASGI app on a local port until a signal stops it."""

import asyncio
import contextlib
import errno
import gc
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial

import uvicorn
from starlette.types import ASGIApp

from rapkit.errors import ConfigError, RapkitError
from rapkit.http.connections import Connections
from rapkit.http.handshakes import TlsListener
from rapkit.http.http_protocol import HttpProtocol
from rapkit.http.limits import HttpLimits
from rapkit.http.tls import Tls

_PATIENCE_WITH_CANCELLED = 2.0
_TICK = 0.1

log = logging.getLogger("rapkit.http")


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there, for `serve_until_signal`; port 0 takes one that is free. `ConfigError` if it cannot be had."""
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
                f"Port {port} on {host} is taken. Stop what uses it, or choose another port, with --port or in the settings."
            ) from None
        raise ConfigError(f"Cannot listen on {host} port {port}: {error.strerror or error}.") from None
    return listener


def url_of(host: str, listener: socket.socket, scheme: str = "http") -> str:
    """Where a listener on this host is reached."""
    address = host if ":" not in host else f"[{host}]"
    return f"{scheme}://{address}:{listener.getsockname()[1]}"


def serve_until_signal(
    app: ASGIApp,
    listener: socket.socket,
    lifespan: AbstractAsyncContextManager[object],
    *,
    on_start: Callable[[], None],
    ending: str,
    on_stop: Callable[[], None] = lambda: None,
    tls: Tls | None = None,
    limits: HttpLimits | None = None,
) -> None:
    """Serve `app` inside `lifespan` until SIGINT or SIGTERM, then leave it in order; a second signal cuts that short.

    `lifespan` is the app's whole life: the app is sent no lifespan events. What it raises when it is entered is raised here. `on_start` is
    called once it is entered, `on_stop` at the first signal, before requests under way are waited for. `ending` is told in the log then:
    what gets how long to end, like "calls get 3 s to end".
    """
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        try:
            runner.run(_serve(_Server(app, limits, tls), listener, lifespan, on_start, ending, on_stop))
        except RapkitError:
            raise
        except Exception as error:
            # A service has no operator at the terminal who could run it again to see the cause.
            log.critical("serving has ended, and nobody foresaw why", exc_info=error)
            raise


async def _serve(
    server: "_Server",
    listener: socket.socket,
    lifespan: AbstractAsyncContextManager[object],
    on_start: Callable[[], None],
    ending: str,
    on_stop: Callable[[], None],
) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, server.stop_or_hurry, ending, on_stop)
    with contextlib.suppress(asyncio.CancelledError), _modules_left_alone():
        async with lifespan:
            on_start()
            await server.serve(sockets=[listener])
            server.end_with(asyncio.current_task())
    await _leave_behind_what_does_not_end()


@contextlib.contextmanager
def _modules_left_alone() -> Iterator[None]:
    """Have the garbage collector look at nothing that was there before: it stays anyway, and to look at it costs a twentieth of a call."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _config(app: ASGIApp, tls: Tls | None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        lifespan="off",  # it is entered by us, so that a store that does not open is an error of ours, told in our words
        ws="none",  # else an Upgrade is answered by whatever library happens to be installed, or not at all
        access_log=False,
        log_config=None,
        log_level="warning",  # that it starts and stops we say ourselves
        timeout_graceful_shutdown=5,
        server_header=False,
        date_header=False,
        **({} if tls is None else tls.uvicorn_options),
    )


@contextlib.asynccontextmanager
async def serve_in_background(
    app: ASGIApp, listener: socket.socket, limits: HttpLimits | None = None
) -> AsyncIterator[None]:
    """Serve `app` beside whatever else this process does, as long as the context lasts. The app is sent no lifespan events."""
    server = _Server(app, limits)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started and not serving.done():
            await asyncio.sleep(0.001)
        yield
    finally:
        server.should_exit = True
        await serving


async def _leave_behind_what_does_not_end() -> None:
    """End the process if something in it does not let itself be cancelled: the event loop would wait for it for ever.

    What it was at is in the store, and dealt with after the next start.
    """
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if not others:
        return
    _, pending = await asyncio.wait(others, timeout=_PATIENCE_WITH_CANCELLED)
    if pending:
        log.warning("%d tasks do not end although they were cancelled, and are left behind", len(pending))
        logging.shutdown()
        os._exit(0)


class _Server(uvicorn.Server):
    """A server with limits, that leaves signals to us: after its own shutdown there is still work to be ended in order."""

    _task: "asyncio.Task[None] | None" = None

    def __init__(self, app: ASGIApp, limits: HttpLimits | None, tls: Tls | None = None) -> None:
        self._connections = Connections(limits or HttpLimits())
        super().__init__(_config(app, tls))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen; as uvicorn does it, with a bound on the number of connections and on the time of TLS handshakes."""
        await self.lifespan.startup()
        loop, config = asyncio.get_running_loop(), self.config
        factory = partial(
            HttpProtocol,
            connections=self._connections,
            config=config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
            _loop=loop,
        )
        if (tls := config.ssl) is None:
            self.servers = [
                await loop.create_server(factory, sock=each, backlog=config.backlog) for each in sockets or ()
            ]
        else:
            make = lambda handshake: factory(handshake=handshake)  # noqa: E731
            self.servers = [TlsListener(each, make, tls, self._connections) for each in sockets or ()]  # type: ignore[misc]
        self.started = True

    async def on_tick(self, counter: int) -> bool:
        """Called by uvicorn every tenth of a second, one after the other."""
        self._connections.tick(_TICK)
        return await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop_or_hurry(self, ending: str, on_stop: Callable[[], None]) -> None:
        """At the first signal end in order, at the second at once."""
        if not self.should_exit:
            log.info("stopping: %s; a second Ctrl-C does not wait for them", ending)
            self.should_exit = True
            on_stop()
            return
        self.force_exit = True
        if self._task is not None:
            self._task.cancel()

    def end_with(self, task: "asyncio.Task[None] | None") -> None:
        """What is left to be ended is this task's, so it is what a second signal cuts short, also one that has come already."""
        self._task = task
        if self.force_exit and task is not None:
            task.cancel()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not to be had on this platform
        return None
    return uvloop.new_event_loop
