"""Show log warnings of an agent in this process in the chat."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator


class _Handler(logging.Handler):
    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._show = show
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._show, record.getMessage())


@contextlib.contextmanager
def show_warnings(show: Callable[[str], None]) -> Iterator[None]:
    """Call `show`, in this event loop, with every warning and error that is logged as long as the context lasts."""
    handler = _Handler(show)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
