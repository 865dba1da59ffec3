"""`rapkit demo` in processes of its own, and what it leaves behind."""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.models.openai_server import OpenAIServer
from tests.models.replies import Call, Say

PATIENCE = 300.0
"""For a whole run, on a machine that has much else to do."""

_COMMAND = (sys.executable, "-m", "rapkit", "demo")
_NOT_OURS = re.compile(r"RAPKIT_|OPENAI_|ANTHROPIC_|(COLUMNS|LINES|NO_COLOR|FORCE_COLOR|TERM)$")
_PID = re.compile(r"pid (\d+)")


@dataclass
class DemoRun:
    """A demo without a terminal, its temporary files in `folder`, which it finds and leaves empty."""

    process: "subprocess.Popen[bytes]"
    folder: Path
    _out: Path
    _err: Path

    @property
    def out(self) -> str:
        """What it printed so far."""
        return self._out.read_text()

    @property
    def err(self) -> str:
        """What it complained about so far."""
        return self._err.read_text()

    def until(self, words: str) -> None:
        """Wait until it has printed this."""
        wait_until(lambda: words in self.out or self.process.poll() is not None)
        assert words in self.out, self.out + self.err

    def ended(self) -> int:
        """Its exit code, once it has ended."""
        return self.process.wait(PATIENCE)

    def stop(self, number: signal.Signals) -> int:
        """Send it a signal; its exit code, once it has ended."""
        self.process.send_signal(number)
        return self.ended()

    def is_gone(self) -> bool:
        """Whether nothing is left of it: neither a process it told of, nor a file."""
        return nothing_runs(self.out) and not list(self.folder.iterdir())


def nothing_runs(told: str) -> bool:
    """Whether all processes are gone that a demo has told of."""
    pids = [int(pid) for pid in _PID.findall(told)]
    assert pids, told
    return not any(map(_is_alive, pids))


def summary_of(out: str) -> dict[str, str]:
    """What was measured, by what it is about."""
    return dict(re.findall(r"^✓ (.+?)  +(.+)$", out, re.MULTILINE))


def _is_alive(pid: int) -> bool:
    """More than a zombie, which is there until whoever inherited it has a look."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return bool(state) and not state.startswith("Z")


def environment(folder: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a demo finds around it: nothing of what is configured here."""
    ours = {key: value for key, value in os.environ.items() if not _NOT_OURS.match(key)}
    return {**ours, "TMPDIR": str(folder), "PYTHONUNBUFFERED": "1", **(more or {})}


@contextlib.contextmanager
def demo(
    folder: Path, *words: str, more: Mapping[str, str] | None = None, script: str | None = None
) -> Iterator[DemoRun]:
    """One that runs, or a script that runs it. It is ended with the context."""
    temporary, out, err = folder / "tmp", folder / "out", folder / "err"
    temporary.mkdir(parents=True)
    with out.open("wb") as to_out, err.open("wb") as to_err:
        process = subprocess.Popen(
            [sys.executable, "-c", script] if script else [*_COMMAND, *words],
            cwd=folder,
            env=environment(temporary, more),
            stdin=subprocess.DEVNULL,
            stdout=to_out,
            stderr=to_err,
        )
    try:
        yield DemoRun(process, temporary, out, err)
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(PATIENCE)


def answer(body: dict[str, Any]) -> Say:
    """What a model says that does what it was told."""
    newest = json.dumps((body.get("messages") or body["input"])[-1])
    if found := re.search(r"Load-test build (\d+) for (\d+) seconds", newest):
        test = Call("load_test", {"build": int(found[1]), "seconds": int(found[2])})
        return Say("On it.", (test, Call("watch_alerts", {"service": "shop"})))
    if "cache is" in newest:
        return Say(calls=(Call("report_to_parent", {"text": "Harmless: a cold cache.", "done": True}),))
    if "Harmless" in newest:
        return Say("Then let us go.", (Call("roll_out", {"build": 42}),))
    if "takes more than a second" in newest:
        return Say("Let me see.", (Call("read_logs", {"service": "shop"}),))
    return Say("So it is.")


@contextlib.contextmanager
def provider() -> Iterator[OpenAIServer]:
    """OpenAI on this machine, in a thread, with a model that does what it was told."""
    server, ready, done = OpenAIServer(), threading.Event(), threading.Event()
    server.answering = answer

    async def serve() -> None:
        async with server:
            ready.set()
            while not done.is_set():
                await asyncio.sleep(0.05)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        yield server
    finally:
        done.set()
        thread.join()


def wait_until(happened: Callable[[], bool]) -> None:
    """For something that takes as long as a chapter."""
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
