"""Run work in a daemon thread, which does not delay the end of the program as an executor's threads would."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def run_in_daemon_thread(work: Callable[P, T], *given: P.args, **options: P.kwargs) -> "Future[T]":
    """Begin; the future has what it comes to."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # or a caller could cancel it, and it could not be set below

    def run() -> None:
        try:
            result = work(*given, **options)
        except BaseException as error:  # noqa: BLE001 - the waiting caller gets it
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, daemon=True).start()
    return future
