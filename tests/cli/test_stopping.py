"""Ctrl-C and SIGTERM: `rapkit serve` ends in order, and at once if it is told twice."""

import signal
import time
from pathlib import Path

import pytest

from tests.cli.command import TOOLS, Running, eventually, rapkit, running

GRACE = 10  # what a toolset gives its handlers unless it says otherwise


def nap(server: Running, seconds: float, folder: Path) -> None:
    """Have a handler run."""
    started = folder / "started"
    words = ("nap", f"seconds={seconds}", f"started={started}", "--callback-url", "http://127.0.0.1:9/")
    assert rapkit("call", server.url, *words, folder=folder).code == 0
    eventually(started.exists)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_by_itself_when_asked(tmp_path: Path, number: signal.Signals) -> None:
    with running("serve", str(TOOLS), "--port", "0", folder=tmp_path) as server:
        assert server.url
        asked = time.monotonic()
        server.send(number)

        assert server.ended() == 0
        assert time.monotonic() - asked < GRACE / 2
        assert "stopping" in server.err
        assert "Traceback" not in server.err


def test_a_handler_that_runs_may_end(tmp_path: Path) -> None:
    with running("serve", str(TOOLS), "--port", "0", folder=tmp_path) as server:
        nap(server, 1.5, tmp_path)
        server.send(signal.SIGTERM)

        assert server.ended() == 0
        assert "call finished  operation=nap" in server.err


@pytest.mark.parametrize("pause", [0.0, 0.5])
def test_the_second_time_it_does_not_wait(tmp_path: Path, pause: float) -> None:
    with running("serve", str(TOOLS), "--port", "0", folder=tmp_path) as server:
        nap(server, 60, tmp_path)
        server.send(signal.SIGINT)
        eventually(lambda: "stopping" in server.err)
        time.sleep(pause)
        asked = time.monotonic()
        server.send(signal.SIGINT)

        assert server.ended() == 0
        assert time.monotonic() - asked < GRACE / 2
        assert "Traceback" not in server.err


STUBBORN = """
import asyncio, sys
from pathlib import Path
import rapkit.pump, rapkit.http.serving
from rapkit import Durations, Toolset

rapkit.pump._PATIENCE_WITH_CANCELLED = rapkit.http.serving._PATIENCE_WITH_CANCELLED = 0.2
tools = Toolset("stubborn", durations=Durations(grace=0.2))

@tools.tool
async def nap(seconds: float, started: str) -> str:
    '''Do not let anybody end it.'''
    Path(started).touch()
    while True:
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            pass

if __name__ == "__main__":
    tools.run(port=0)
"""


def test_a_handler_that_does_not_let_itself_be_cancelled_does_not_keep_the_server_alive(tmp_path: Path) -> None:
    """INV-13: its call is in the store, and the next server says what became of it."""
    script = tmp_path / "stubborn.py"
    script.write_text(STUBBORN)
    with running(folder=tmp_path, script=str(script)) as server:
        nap(server, 60, tmp_path)
        server.send(signal.SIGTERM)

        assert server.ended() == 0
        assert "do not end although they were cancelled, and are left behind" in server.err
        assert "Traceback" not in server.err
    with running(folder=tmp_path, script=str(script)) as again:
        eventually(lambda: "call finished  operation=nap" in again.err)
        assert "outcome=error" in again.err
