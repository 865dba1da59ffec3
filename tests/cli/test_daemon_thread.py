"""Work in a thread that nobody has to wait for."""

import asyncio
import threading

import pytest

from rapkit.cli.daemon_thread import run_in_daemon_thread


def test_what_it_comes_to_is_told() -> None:
    assert run_in_daemon_thread(divmod, 7, 2).result() == (3, 1)
    with pytest.raises(ZeroDivisionError):
        run_in_daemon_thread(divmod, 7, 0).result()


async def test_whoever_loses_patience_leaves_no_mess() -> None:
    """pytest would tell of an exception in the thread."""
    begun, go_on = threading.Event(), threading.Event()

    def work() -> threading.Thread:
        begun.set()
        go_on.wait()
        return threading.current_thread()

    future = run_in_daemon_thread(work)
    waiting = asyncio.wrap_future(future)
    await asyncio.to_thread(begun.wait)
    waiting.cancel()
    await asyncio.sleep(0)
    go_on.set()

    (await asyncio.to_thread(future.result)).join()
