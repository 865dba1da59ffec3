"""Handle SIGINT and SIGTERM in the demo."""

import contextlib
import signal
from collections.abc import Callable, Iterator

_HEARD = ("SIGINT", "SIGTERM", "SIGHUP")


class DemoStopped(Exception):
    """A signal told the demo to end; `exit_code` is what shells expect then."""

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.exit_code = 128 + number


@contextlib.contextmanager
def raise_on_signals() -> Iterator[Callable[[], None]]:
    """Signals are noted, and do nothing by themselves; what this gives raises `DemoStopped` if there was one.

    So they never come between the start of a process and the note that it has to be ended.
    """
    noted: list[int] = []
    numbers = [getattr(signal, name) for name in _HEARD if hasattr(signal, name)]
    before = [(number, signal.signal(number, lambda number, _frame: noted.append(number))) for number in numbers]

    def check() -> None:
        if noted:
            raise DemoStopped(noted[0])

    try:
        yield check
    finally:
        for number, handler in before:
            signal.signal(number, handler)
