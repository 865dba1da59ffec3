"""Serving a toolset on a port of this machine."""

import asyncio
import contextlib
import contextvars
import errno
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import uvicorn

from rapkit.errors import ConfigError
from rapkit.logs import set_up_logging
from rapkit.server.callers import is_loopback_host

if TYPE_CHECKING:
    from rapkit.server.toolset import Toolset

_PATIENCE_WITH_CANCELLED = 2.0
_LOADING = contextvars.ContextVar("loading", default=False)

log = logging.getLogger("rapkit.server")


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


def serve(toolset: "Toolset", host: str, port: int, *, on_start: Callable[[str], None] | None = None) -> None:
    """Serve until SIGINT or SIGTERM, then end in order. `on_start` is told the URL once requests are accepted; by default people are.

    `ConfigError` if it cannot be served that way: the port is taken, or it would be open to strangers.
    """
    if is_loading():
        raise ConfigError('tools.run() is called while the file is loaded. Put it under: if __name__ == "__main__":')
    _check(toolset, host)
    if not logging.getLogger().hasHandlers():
        set_up_logging("text", "info")
    tell = on_start or (lambda url: print(announcement(toolset, url), file=sys.stderr, flush=True))  # noqa: T201
    with _listen(host, port) as listener, asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(toolset, listener, host, tell))


def announcement(toolset: "Toolset", url: str) -> str:
    """What people are told when the server listens at this URL."""
    count = len(toolset.tools)
    public = f" (for callers {toolset.public_url})" if toolset.public_url else ""
    served = "No token is configured: only callers on this machine are served."
    if not toolset.callers.local_only:
        served = "Only callers with a token are served."
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
            f"{host} can be reached from other machines, and no token is configured: anybody could call your tools. "
            "Configure a token (--token, or Toolset(tokens=...)), or listen on 127.0.0.1."
        )


async def _serve(toolset: "Toolset", listener: socket.socket, host: str, on_start: Callable[[str], None]) -> None:
    server = _Server(
        uvicorn.Config(
            toolset.app,
            lifespan="off",  # it is entered here, so that a store that does not open is an error of ours, told in our words
            ws="none",  # else an Upgrade is answered by whatever library happens to be installed, or not at all
            access_log=False,
            log_config=None,
            log_level="warning",  # that it starts and stops we say ourselves
            timeout_graceful_shutdown=5,
            server_header=False,
            date_header=False,
        )
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, server.stop_or_hurry, toolset.durations.grace)
    address = host if ":" not in host else f"[{host}]"
    with contextlib.suppress(asyncio.CancelledError):
        async with toolset.lifespan(loopback_callbacks=is_loopback_host(host)):
            on_start(f"http://{address}:{listener.getsockname()[1]}")
            await server.serve(sockets=[listener])
            server.end_with(asyncio.current_task())
    await _leave_behind_what_does_not_end()


async def _leave_behind_what_does_not_end() -> None:
    """End the process if something in it does not let itself be cancelled: the event loop would wait for it for ever.

    Its calls are in the store, and dealt with after the next start.
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
    """A server that leaves signals to us: after its own shutdown there is still work to be ended in order."""

    _task: "asyncio.Task[None] | None" = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop_or_hurry(self, grace: float) -> None:
        """At the first signal end in order, at the second at once."""
        if not self.should_exit:
            log.info("stopping: calls that run get %g s to end; a second Ctrl-C does not wait for them", grace)
            self.should_exit = True
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
