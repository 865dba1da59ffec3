"""Ctrl-C and SIGTERM: `rapkit serve` and `rapkit up` end in order, and at once if they are told twice."""

import json
import signal
import threading
import time
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.cli.command import TOOLS, Running, eventually, rapkit, running
from tests.cli.foreign_server import ForeignServer
from tests.cli.test_up import url_of

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
import rapkit.work.poller, rapkit.http.http_server
from rapkit import Durations, Toolset

rapkit.work.poller._PATIENCE_WITH_CANCELLED = rapkit.http.http_server._PATIENCE_WITH_CANCELLED = 0.2
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


# An agent

SCRIPT = """
- user: think
  delay: 3
  calls: [watch]
- user: think for long
  delay: 60
  say: At last.
- say: Hello.
"""


def configure(folder: Path, stranger: ForeignServer) -> None:
    """An agent that thinks before it calls the stranger's tool."""
    stranger.offer()
    (folder / "plan.yaml").write_text(SCRIPT)
    (folder / "rapkit.toml").write_text(
        f'[agent]\nmodel = "scripted:plan.yaml"\n\n[[servers]]\nurl = "{stranger.url}"\n'
    )


def begin(url: str, text: str) -> str:
    """The URL of a thread that is at it."""
    body = json.dumps({"text": text}).encode()
    with urlopen(Request(f"{url}/v1/threads", body, {"Content-Type": "application/json"})) as answer:
        thread = f"{url}/v1/threads/{json.load(answer)['thread_id']}"

    def status() -> str:
        with urlopen(thread) as look:
            return str(json.load(look)["status"])

    eventually(lambda: status() in ("running", "waiting"))
    return thread


def is_ready(url: str) -> bool:
    try:
        with urlopen(f"{url}/readyz") as answer:
            return bool(answer.status == 200)
    except OSError:
        return False  # 503, or nobody is there to be asked any more


def test_an_agent_takes_nothing_more_and_brings_to_an_end_what_runs(tmp_path: Path, stranger: ForeignServer) -> None:
    """It is not ready while the model still thinks; the call that comes of it leaves before it ends; who looked on is let go."""
    configure(tmp_path, stranger)
    with running("up", "--port", "0", folder=tmp_path) as up:
        url = url_of(up)
        eventually(lambda: is_ready(url))
        thread = begin(url, "think")
        seen: list[bytes] = []
        stream = urlopen(f"{thread}/events")
        follower = threading.Thread(target=lambda: seen.append(stream.read()), daemon=True)
        follower.start()
        up.send(signal.SIGTERM)
        eventually(lambda: not is_ready(url))

        assert up.ended() == 0
        assert "stopping: threads that run get 10 s to end" in up.err
        assert "Traceback" not in up.err
    assert [message["operation"] for message in stranger.received] == ["watch"]
    follower.join(60)
    assert b"event: status" in seen[0]


def test_an_agent_that_is_told_twice_leaves_its_work_to_the_next_start(tmp_path: Path, stranger: ForeignServer) -> None:
    configure(tmp_path, stranger)
    with running("up", "--port", "0", folder=tmp_path) as up:
        thread = begin(url_of(up), "think for long")
        up.send(signal.SIGTERM)
        eventually(lambda: "stopping" in up.err)
        asked = time.monotonic()
        up.send(signal.SIGTERM)

        assert up.ended() == 0
        assert time.monotonic() - asked < GRACE / 2
        assert "Traceback" not in up.err
    with running("up", "--port", "0", folder=tmp_path) as again:
        here = thread.replace(url_of(up), url_of(again))

        def status() -> str:
            with urlopen(here) as look:
                return str(json.load(look)["status"])

        eventually(lambda: status() == "running")
