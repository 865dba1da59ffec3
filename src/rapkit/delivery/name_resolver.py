"""Resolve host names in threads, so that one name whose DNS does not answer does not delay the others.

The operating system's lookup cannot be interrupted: one that hangs keeps its thread until the system gives up, which takes up to minutes.
So every lookup has a thread of its own, the number of threads is bounded, and names share them:

- A name that resolved before may use every thread.
- A name that is asked for the first time leaves a quarter of the threads to those.
- A name whose lookup took long may use an eighth of the threads, together with all others like it.

A lookup that hangs gives its place back after a while and keeps only its thread, so that new names which hang do not keep other new names
out. There may be twice as many such threads as there are places.

A name is looked up once at a time. Requests for a name whose lookup still hangs wait for that lookup.
"""

import asyncio
import contextlib
import socket
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from enum import IntEnum

from rapkit.errors import ConfigError

_MOST_REMEMBERED = 4096


class _Trust(IntEnum):
    """What is known of a name. Names of a higher trust are looked up first."""

    SLOW = 0
    NEW = 1
    RESOLVED = 2


def system_lookup(host: str, port: int) -> list[str]:
    """Ask the operating system, in the order it prefers; blocks until it answers or gives up."""
    return [str(address[0]) for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


class NameResolver:
    """Resolves up to `threads` names at a time. A lookup that takes longer than `patience` seconds makes its name a slow one.

    To be used in one event loop. A caller that no longer wants to wait cancels its wait; the lookup goes on.
    """

    def __init__(
        self,
        threads: int = 256,
        *,
        patience: float = 2.0,
        lookup: Callable[[str, int], Sequence[str]] = system_lookup,
    ) -> None:
        if threads < 1:
            raise ConfigError(f"lookups is a number above 0, not {threads}.")
        self._lookup = lookup
        self._patience = patience
        self._most = {
            _Trust.RESOLVED: threads,
            _Trust.NEW: max(threads - threads // 4, 1),
            _Trust.SLOW: max(threads // 8, 1),
        }
        self._most_hanging = 2 * threads
        self._known: OrderedDict[str, _Trust] = OrderedDict()
        self._asked: dict[str, asyncio.Future[Sequence[str]]] = {}
        self._waiting: dict[str, int] = {}
        self._callers: Counter[str] = Counter()
        self._running: set[str] = set()

    @property
    def running(self) -> int:
        """How many threads look a name up now, those that hang included."""
        return len(self._running)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """The addresses of a name; OSError or UnicodeError if it has none or cannot have one."""
        answer = self._asked.get(host)
        if answer is None:
            answer = self._asked[host] = asyncio.get_running_loop().create_future()
            self._waiting[host] = port
            self._start_waiting()
        self._callers[host] += 1
        try:
            return await asyncio.shield(answer)
        finally:
            self._callers[host] -= 1
            if not self._callers[host]:
                del self._callers[host]
                if self._waiting.pop(host, None) is not None:  # every caller has given up before a thread was free
                    del self._asked[host]

    def _start_waiting(self) -> None:
        while (host := self._next()) is not None:
            port = self._waiting.pop(host)
            try:
                self._start(host, port)
            except RuntimeError as error:  # no thread can be started
                self._answer(host, error)

    def _next(self) -> str | None:
        """The name to look up next: the first of those with the highest trust that have a thread left."""
        running = Counter(self._trust(host) for host in self._running)
        slow, new, resolved = running[_Trust.SLOW], running[_Trust.NEW], running[_Trust.RESOLVED]
        has_place = {
            _Trust.RESOLVED: new + resolved < self._most[_Trust.RESOLVED] and slow < self._most_hanging,
            _Trust.NEW: new + resolved < self._most[_Trust.NEW] and slow + new < self._most_hanging,
            _Trust.SLOW: slow < self._most[_Trust.SLOW],
        }
        for trust in reversed(_Trust):
            if has_place[trust]:
                for host in self._waiting:
                    if self._trust(host) is trust:
                        return host
        return None

    def _start(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._patience, self._is_slow, host)

        def run() -> None:
            try:
                found: Sequence[str] | Exception = self._lookup(host, port)
            except Exception as error:  # noqa: BLE001 - it is raised where the answer is awaited
                found = error
            with contextlib.suppress(RuntimeError):  # the event loop has ended; no task waits any more
                loop.call_soon_threadsafe(end, found)

        def end(found: Sequence[str] | Exception) -> None:
            timer.cancel()
            self._running.discard(host)
            if loop.time() < timer.when():
                self._remember(host, _Trust.NEW if isinstance(found, Exception) else _Trust.RESOLVED)
            self._answer(host, found)
            self._start_waiting()

        try:
            # A daemon, so that a lookup that hangs does not keep the process from ending.
            threading.Thread(target=run, name=f"lookup of {host}", daemon=True).start()
        except RuntimeError:
            timer.cancel()
            raise
        self._running.add(host)

    def _is_slow(self, host: str) -> None:
        self._remember(host, _Trust.SLOW)
        self._start_waiting()

    def _answer(self, host: str, found: Sequence[str] | Exception) -> None:
        answer = self._asked.pop(host)
        if isinstance(found, Exception):
            answer.set_exception(found)
            answer.exception()  # asyncio complains about unretrieved errors, even if no task waits any more
        else:
            answer.set_result(found)

    def _trust(self, host: str) -> _Trust:
        return self._known.get(host, _Trust.NEW)

    def _remember(self, host: str, trust: _Trust) -> None:
        self._known[host] = trust
        self._known.move_to_end(host)
        while len(self._known) > _MOST_REMEMBERED:
            self._known.popitem(last=False)  # other parties choose the names
