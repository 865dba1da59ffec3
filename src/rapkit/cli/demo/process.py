"""A process of the demo that can be killed and restarted."""

import contextlib
import http.client
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from rapkit.cli.demo.failure import DemoFailed
from rapkit.printable import printable

State = Literal["off", "starting", "alive", "killed", "ended"]

_PATIENCE = 30.0
_SOON = 10.0
_TAIL = 8
_TOO_LITTLE = 1024**2


class DemoProcess:
    """`rapkit …` with a port of its own, in a process group of its own: killed, it takes with it what it has started."""

    def __init__(
        self, name: str, words: Sequence[str], folder: Path, port: int, serves_at: str, tell: Callable[[str], None]
    ) -> None:
        self.name = name
        self.purpose = ""
        self.command = shlex.join(("rapkit", *words))
        self.port = port
        self.state: State = "off"
        self._words = tuple(words)
        self._folder = folder
        self._serves_at = serves_at
        self._tell = tell
        self.pids: list[int] = []
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the process that runs, or ran last."""
        return self.pids[-1]

    @property
    def log(self) -> Path:
        """What it has printed, in all its runs."""
        return self._folder / f"{self.name}.log"

    def start(self, **environment: str) -> None:
        """Start it, and do not wait."""
        # Nothing of the user's own configuration: the demo is the same everywhere.
        ours = {key: value for key, value in os.environ.items() if not key.startswith("RAPKIT_")}
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(  # noqa: S603 - our own command line
                [sys.executable, "-m", "rapkit", *self._words],
                cwd=self._folder,
                env={**ours, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.pids.append(self._child.pid)
        self._tell(f"+{self.pid}")
        self.state = "starting"

    def wait_until_it_serves(self, meanwhile: Callable[[], None]) -> None:
        """`meanwhile` is called again and again until it does."""
        assert self._child is not None
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline and self._child.poll() is None:
            with contextlib.suppress(OSError):
                if self.get(self._serves_at)[0] == http.client.OK:
                    self.state = "alive"
                    return
            meanwhile()
        how = "did not serve in time" if self._child.poll() is None else f"ended with exit code {self._child.poll()}"
        raise DemoFailed(f"{self.command} should serve on port {self.port}, and {how}.", self.tail())

    def kill(self) -> int | None:
        """SIGKILL, to it and what it has started. The signal that ended it; None if it did not run."""
        if self._child is None or self.state in ("killed", "ended"):
            return None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        code = self._child.wait()
        self._tell(f"-{self.pid}")
        self.state = "killed"
        return -code if code < 0 else None

    def tell_to_end(self) -> None:
        """SIGTERM."""
        assert self._child is not None
        self._child.terminate()

    def ended(self) -> int:
        """Its exit code, once it has ended."""
        assert self._child is not None
        try:
            code = self._child.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            raise DemoFailed(f"{self.name} should have ended on SIGTERM, and still runs.", self.tail()) from None
        self._tell(f"-{self.pid}")
        self.state = "ended"
        return code

    def is_reachable(self) -> bool:
        """Whether a process listens on its port."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def check_that_it_runs(self) -> None:
        """`DemoFailed` if it has ended by itself."""
        if self.state == "alive" and self._child is not None and self._child.poll() is not None:
            self.state = "ended"
            raise DemoFailed(f"{self.name} has ended by itself, with exit code {self._child.returncode}.", self.tail())

    def get(self, path: str) -> tuple[int, bytes]:
        """Ask it for something."""
        return self._ask("GET", path, None, {})

    def post(self, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """Send it something."""
        return self._ask("POST", path, body, {"Content-Type": "application/json", **headers})

    def tail(self) -> str:
        """The end of its log, with a line that says whose it is."""
        try:
            lines = self.log.read_text(errors="replace").strip().splitlines()[-_TAIL:]
        except OSError:
            lines = []
        # A log that could not be written hides the reason, unless that is the reason.
        with contextlib.suppress(OSError):
            if (free := shutil.disk_usage(self._folder).free) < _TOO_LITTLE:
                lines.append(f"There are {free // 1024} KB left on the disk of {self._folder}.")
        return "\n".join(
            (f"The last lines of {self.name}'s log:", *(f"  {printable(line)}" for line in lines or ["-"]))
        )

    def _ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        # By hand rather than with our client: no proxy of the environment may come between.
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_SOON)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.read()
        except http.client.HTTPException as error:
            raise ConnectionError(str(error)) from None
        finally:
            connection.close()


def free_port(*taken: int) -> int:
    """A free port that is none of those."""
    # Below the ports that connections are given, or one of them could take ours while its server is dead.
    for _ in range(100):
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            if port not in taken:
                return port
    raise DemoFailed("there is no free port between 20000 and 32000 on 127.0.0.1.")


def is_alive(pid: int) -> bool:
    """Whether there is such a process of ours, and not a zombie."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):  # gone, or another user's by now
        return False
    try:
        return not Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].startswith(" Z")
    except OSError:  # gone meanwhile, or there is no such table here
        return not Path("/proc/self/stat").exists()
