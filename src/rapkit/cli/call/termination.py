"""Handle SIGINT and SIGTERM while there is still something to clean up."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType

_HEARD = ("SIGINT", "SIGTERM", "SIGHUP")
_AT_ONCE = 0.25
"""Who starts us may pass on a signal that we got already, as timeout(1) does. Within this time, in seconds, the second is the first."""


class Terminated(BaseException):
    """A signal told the command to end; `exit_code` is what shells expect then. Like `KeyboardInterrupt` it is not an error."""

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.exit_code = 128 + number


@contextlib.contextmanager
def raise_on_first_signal(now: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """The first signal that tells us to end raises `Terminated`, wherever we are; a second one ends the process at once.

    Signals that the parent process ignores stay ignored. `now` is the clock that tells the second from the first that came twice.
    """
    numbers = [getattr(signal, name) for name in _HEARD if hasattr(signal, name)]
    heard = {number: before for number in numbers if (before := signal.getsignal(number)) is not signal.SIG_IGN}
    first_at: float | None = None

    def tell(number: int, _frame: FrameType | None) -> None:
        nonlocal first_at
        if first_at is None:
            first_at = now()
            raise Terminated(number)
        if now() - first_at > _AT_ONCE:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    for number in heard:
        signal.signal(number, tell)
    try:
        yield
    finally:
        for number, before in heard.items():
            signal.signal(number, before)
