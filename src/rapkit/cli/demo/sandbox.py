"""The demo's sandbox: a temporary folder and the processes started in it, all of which are removed at the end."""

import os
import shutil
import subprocess
import sys
import tempfile
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import Self

from rapkit.cli.demo.process import DemoProcess
from rapkit.errors import ConfigError

_FILES = ("lab.py", "ops.py", "plan.yaml")
_ROOM = 50 * 1024**2


class Sandbox:
    """A folder with the tool files and the stores, and processes. Leaving it kills what still runs and deletes the folder.

    A watchdog does the same if this process is killed.
    """

    def __init__(self) -> None:
        self.processes: list[DemoProcess] = []

    def __enter__(self) -> Self:
        """From here on there is something to clean up."""
        self.folder = Path(tempfile.mkdtemp(prefix="rapkit-demo-"))
        # Python alone and no site-packages: it is there in some 20 ms.
        self._watchdog = subprocess.Popen(  # noqa: S603 - our own file
            [sys.executable, "-S", "-E", str(Path(__file__).with_name("watchdog.py")), str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
            bufsize=1,
        )
        files = resources.files("rapkit.cli.demo.files")
        for name in _FILES:
            (self.folder / name).write_bytes(files.joinpath(name).read_bytes())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left of it."""
        for process in self.processes:
            process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._tell("done")
        self._watchdog.wait()

    def add(self, name: str, *words: str, port: int, serves_at: str) -> DemoProcess:
        """A process `rapkit …` in the folder, not started yet. `serves_at` is the path that is answered once it serves."""
        process = DemoProcess(name, words, self.folder, port, serves_at, self._tell)
        self.processes.append(process)
        return process

    @property
    def pids(self) -> list[int]:
        """Of all processes that were ever started here."""
        return [pid for process in self.processes for pid in process.pids]

    def disk_use(self) -> int:
        """Bytes in the stores: everything the agent and the servers know."""
        return sum(size for path in (self.folder / ".rapkit").glob("*.db*") if (size := _size(path)))

    def _tell(self, word: str) -> None:
        assert self._watchdog.stdin is not None
        try:
            self._watchdog.stdin.write(f"{word}\n")
            if word == "done":
                self._watchdog.stdin.close()
        except BrokenPipeError:  # it was killed: go on without it
            return


def check_that_there_is_room() -> None:
    """`ConfigError` if the stores and logs would not fit: processes that cannot write cannot say why they end, either."""
    elsewhere = "Make room, or set TMPDIR to a folder that has some."
    try:
        folder = tempfile.gettempdir()
    except FileNotFoundError:
        raise ConfigError(f"The demo needs a folder for a moment, and none can be made here. {elsewhere}") from None
    free = shutil.disk_usage(folder).free
    if free < _ROOM:
        need = f"The demo needs {_ROOM // 1024**2} MB for a moment, and {folder} has {free // 1024**2} left."
        raise ConfigError(f"{need} {elsewhere}")


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size if path.is_file() else 0
    except OSError:  # a write-ahead log that went away while we looked
        return 0
