"""The real command in processes of its own, as a shell would start it."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PATIENCE = 60.0
"""How long anything may take that is expected to happen, in seconds."""

TOOLS = Path(__file__).parent / "tools.py"
_URL = re.compile(r"http://127\.0\.0\.1:\d+")


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str


def rapkit(*words: str, folder: Path, environment: Mapping[str, str] | None = None) -> Outcome:
    """Run it to its end."""
    ended = subprocess.run(
        _command(words),
        cwd=folder,
        env=_environment(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
    )
    return Outcome(ended.returncode, ended.stdout.decode(), ended.stderr.decode())


class Running:
    """A command that goes on until it is told to end."""

    def __init__(self, child: "subprocess.Popen[bytes]", out: Path, err: Path) -> None:
        self._child = child
        self._out = out
        self._err = err

    @property
    def out(self) -> str:
        """What it printed so far."""
        return self._out.read_text()

    @property
    def err(self) -> str:
        """What it said on standard error so far."""
        return self._err.read_text()

    @property
    def url(self) -> str:
        """Where it serves, once it does."""
        eventually(lambda: bool(_URL.search(self.err)) or not self.alive)
        found = _URL.search(self.err)
        assert found is not None, f"it does not serve: {self.err}"
        return found[0]

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._child.send_signal(number)

    def ended(self) -> int:
        """Its exit code, once it has ended."""
        return self._child.wait(PATIENCE)


@contextlib.contextmanager
def running(
    *words: str, folder: Path, environment: Mapping[str, str] | None = None, script: str | None = None
) -> Iterator[Running]:
    """Start it, or a script of one's own; it is ended with the context, whatever has happened by then."""
    number = sum(1 for _ in folder.glob("running-*.out"))
    out, err = folder / f"running-{number}.out", folder / f"running-{number}.err"
    with out.open("wb") as to_out, err.open("wb") as to_err:
        child = subprocess.Popen(
            [sys.executable, script] if script else _command(words),
            cwd=folder,
            env=_environment(environment),
            stdin=subprocess.DEVNULL,
            stdout=to_out,
            stderr=to_err,
        )
    try:
        yield Running(child, out, err)
    finally:
        if child.poll() is None:
            child.terminate()  # not killed: one that reloads has a child of its own to end
            child.terminate()
        try:
            child.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def eventually(happened: Callable[[], bool]) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def _command(words: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "rapkit", *words]


def _environment(more: Mapping[str, str] | None) -> dict[str, str]:
    ours = {
        key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "TERM")
    }
    return {**ours, **(more or {})}
