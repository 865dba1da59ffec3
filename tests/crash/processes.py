"""Real processes: a tool server and a sink, to be started, killed and started again."""

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import apsw

from tests.crash.history import Death

HERE = Path(__file__).parent
_PATIENCE = 30.0
_LONGEST_COMMIT_MS = 300


def _can_be_locked(store: Path) -> bool:
    db = apsw.Connection(str(store))
    db.set_busy_timeout(_LONGEST_COMMIT_MS)
    try:
        db.execute("BEGIN IMMEDIATE; ROLLBACK")
    except apsw.BusyError:
        return False
    finally:
        db.close()
    return True


def free_port() -> int:
    """A port nobody has, and nobody is given: below those that connections get, or a caller could take it while the server is dead."""
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port")


@dataclass
class Process:
    """A command on a port, run in a folder. It dies with the test, whatever becomes of that."""

    who: str
    command: list[str]
    folder: Path
    port: int
    environment: dict[str, str] = field(default_factory=dict)
    deaths: list[Death] = field(default_factory=list)
    _child: "subprocess.Popen[bytes] | None" = None

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def start(self) -> None:
        """Start it; `ready` waits until it answers."""
        assert not self.running
        with (self.folder / f"{self.who}.log").open("ab") as log:
            self._child = subprocess.Popen(
                self.command, cwd=self.folder, stdout=log, stderr=log, env={**os.environ, **self.environment}
            )

    async def ready(self) -> None:
        """Wait until it accepts connections. That it ends instead is a failure of the test."""
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            assert self.running, f"{self.who} ended by itself: {self.log()[-2000:]}"
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                await asyncio.sleep(0.02)
                continue
            writer.close()
            return
        raise AssertionError(f"{self.who} did not start within {_PATIENCE:g} s: {self.log()[-2000:]}")

    async def kill(self) -> None:
        """SIGKILL."""
        self._signal(signal.SIGKILL)
        await self._gone()

    def terminate(self) -> None:
        """SIGTERM, without waiting for what follows."""
        self._signal(signal.SIGTERM)

    async def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.terminate()
        return await self._gone()

    def pause(self) -> None:
        """SIGSTOP: the process stands still and does not know it. To the others it is as good as dead."""
        self._signal(signal.SIGSTOP)

    async def pause_beside(self, store: Path) -> None:
        """Pause it when it does not have the store locked: nobody else could write then, so nobody could keep a lease either."""
        while True:
            self.pause()
            if await asyncio.to_thread(_can_be_locked, store):
                return
            self.deaths.pop()
            self.resume()
            await asyncio.sleep(0.05)

    def resume(self) -> None:
        """SIGCONT."""
        assert self._child is not None
        self._child.send_signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._child is not None
        self.deaths.append(Death(time.monotonic(), self._child.pid, self.who))
        self._child.send_signal(number)

    async def _gone(self) -> int:
        assert self._child is not None
        return await asyncio.to_thread(self._child.wait, _PATIENCE)

    def clean_up(self) -> None:
        """Whatever happened, it does not outlive the test."""
        if self._child is not None and self._child.poll() is None:
            self._child.kill()
            self._child.wait()

    def log(self) -> str:
        path = self.folder / f"{self.who}.log"
        return path.read_text(errors="replace") if path.exists() else ""


def server_process(folder: Path, target: str, store: str, lease: float) -> Process:
    port = free_port()
    command = [sys.executable, "-m", "rapkit", "serve", target, "--port", str(port), "--store", store]
    return Process(
        "server",
        [*command, "--log-format", "json", "--log-level", "info"],
        folder,
        port,
        {"CRASH_LEASE": str(lease)},
    )


def sink_process(folder: Path, seed: int, faults: float, most_faults: int) -> Process:
    port = free_port()
    settings = [str(port), "sink.jsonl", str(seed), str(faults), str(most_faults)]
    return Process("sink", [sys.executable, str(HERE / "sink.py"), *settings], folder, port)


def complaints_in(log: str) -> list[str]:
    """What a server's log says that it should not: anything grave that is not the failure of a tool that is made to fail."""
    return [line for line in log.splitlines() if _is_grave(line)]


def _is_grave(line: str) -> bool:
    try:
        entry = json.loads(line)
    except ValueError:
        return "Traceback" in line  # else it was cut short by the kill, or is for people
    if not isinstance(entry, dict) or entry.get("level") not in ("error", "critical"):
        return False
    return not entry.get("message", "").startswith("the handler failed") or entry.get("operation") != "fail"
