"""A page carried out as a reader would: its files are written, its commands given to one shell, its servers left running.

How pages are written for it is in CONTRIBUTING.md.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.docs.blocks import Block, blocks_of
from tests.docs.ports import Ports
from tests.docs.session import Command, commands_of, fits

PATIENCE = 60.0
"""How long a command may take, in seconds."""

GIVEN = Path(__file__).parent / "given"
"""What a page takes for granted, in a folder of its name: a file of the reader's, and `plan.yaml`, which stands in for a real model."""

_SHELLS = ("console", "sh")
_SHIM = """#!{python}
from rapkit import settings
from rapkit.cli import main, rapkit

settings.DEFAULT_PORT = {agent}
rapkit.context_settings["default_map"] = {{"serve": {{"port": {server}}}}}
main()
"""


def is_walked(page: Path) -> bool:
    """Whether there is something to carry out on it."""
    return any(block.language in _SHELLS and not block.not_run for block in blocks_of(page))


def walk(page: Path, folder: Path) -> None:
    """Carry it out, or fail at the first command that does not do what the page says."""
    home = folder / "home"
    ports = Ports()
    given = GIVEN / page.stem
    if given.exists():
        shutil.copytree(given, home)
    home.mkdir(exist_ok=True)
    with _shell(folder, home, ports, given / "plan.yaml") as shell:
        for block in blocks_of(page):
            if block.title:
                file = home / block.title
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(ports.to_real(block.text))
            elif block.not_run is None and block.language in _SHELLS:
                _carry_out(block, shell, ports)


def _carry_out(block: Block, shell: "_Shell", ports: Ports) -> None:
    if block.language == "sh":
        printed, code = shell.run_script(ports.to_real(block.text))
        assert code == 0, f"{block.place}: a command of the script failed:\n{ports.to_shown(printed)}"
        return
    for command in commands_of(block.text):
        where = f"{block.place}: $ {command.text}\n"
        if command.stays:
            _leave_running(command, shell, ports, where)
            continue
        printed, code = shell.run(ports.to_real(command.text))
        printed = ports.to_shown(printed)
        if command.shown:
            assert fits(command.shown, printed), f"{where}printed\n{printed}\nThe page says\n{_joined(command)}"
        shell.failed = (where, printed) if code else None
    assert shell.failed is None, "{}failed:\n{}".format(*shell.failed)


def _leave_running(command: Command, shell: "_Shell", ports: Ports, where: str) -> None:
    job = shell.start(ports.to_real(command.text.removesuffix(" &")))

    def ready() -> bool:
        said = ports.to_shown(job.printed)
        return fits(command.shown, said, whole=False) if command.shown else "http://" in said

    _eventually(lambda: ready() or not job.alive, lambda: f"{where}printed\n{job.printed}\nnot\n{_joined(command)}")
    assert ready(), f"{where}ended, having printed\n{ports.to_shown(job.printed)}\nThe page says\n{_joined(command)}"
    if command.interrupted:
        job.send(signal.SIGINT)
        _eventually(lambda: not job.alive, lambda: f"{where}does not end at Ctrl-C")


def _joined(command: Command) -> str:
    return "\n".join(command.shown)


class _Job:
    """A command in the background, in a process group of its own."""

    def __init__(self, group: int, output: Path) -> None:
        self._group = group
        self._output = output

    @property
    def printed(self) -> str:
        return self._output.read_text()

    @property
    def alive(self) -> bool:
        try:
            os.killpg(self._group, 0)
        except ProcessLookupError:
            return False
        return True

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._group, number)


class _Shell:
    """One bash for a whole page: what it exports and where it goes lasts."""

    def __init__(self, bash: "subprocess.Popen[str]", folder: Path) -> None:
        self._bash = bash
        self._folder = folder
        self._count = 0
        self._code = 0
        self.jobs: list[_Job] = []
        self.failed: tuple[str, str] | None = None

    def run(self, text: str) -> tuple[str, int]:
        """What it prints, and its exit code, once it has ended. `$?` is that of the command before."""
        printed, said = self._give(f"(exit {self._code})\n{text}", "$?")
        self._code = int(said)
        return printed, self._code

    def run_script(self, text: str) -> tuple[str, int]:
        """The same for several commands, none of which may fail."""
        text = f"__failed=0; trap '__failed=1' ERR\n{text}\ntrap - ERR"
        printed, said = self._give(text, "$__failed")
        return printed, int(said)

    def start(self, text: str) -> _Job:
        """Leave it running."""
        output = self._folder / f"job-{len(self.jobs) + 1}"
        output.touch()
        _, group = self._give(f"{text} > {output} 2>&1 &", "$!")
        self.jobs.append(_Job(int(group), output))
        return self.jobs[-1]

    def _give(self, text: str, wanted: str) -> tuple[str, str]:
        self._count += 1
        output, answer = self._folder / f"output-{self._count}", self._folder / f"answer-{self._count}"
        assert self._bash.stdin is not None
        # The answer is there whole or not at all.
        told = f"printf '%s' \"{wanted}\" > {answer}.part; mv {answer}.part {answer}"
        self._bash.stdin.write(f"{{\n{text}\n}} > {output} 2>&1 < /dev/null; {told}\n")
        self._bash.stdin.flush()
        _eventually(
            lambda: answer.exists() or self._bash.poll() is not None,
            lambda: f"it takes more than {PATIENCE:.0f} s: {text}\n{output.read_text()}",
        )
        assert answer.exists(), f"the shell ended at: {text}"
        return output.read_text(), answer.read_text()


@contextlib.contextmanager
def _shell(folder: Path, home: Path, ports: Ports, plan: Path) -> Iterator[_Shell]:
    programs = folder / "bin"
    programs.mkdir()
    shim = programs / "rapkit"
    shim.write_text(_SHIM.format(python=sys.executable, agent=ports.real("8700"), server=ports.real("8001")))
    shim.chmod(0o755)
    environment = {
        "PATH": os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "COLUMNS": "100",
        "PYTHONUNBUFFERED": "1",  # so that what is printed and what is complained of stand in order
        **{key: os.environ[key] for key in ("PYTHONPATH", "TMPDIR") if key in os.environ},
    }
    if plan.exists():
        environment["RAPKIT_MODEL"] = f"scripted:{plan}"
    with (folder / "shell").open("wb") as complaints:
        bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=home,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=complaints,
            stderr=complaints,
            text=True,
            start_new_session=True,
        )
    shell = _Shell(bash, folder)
    try:
        shell.run("set -m")  # jobs have numbers, and take Ctrl-C
        yield shell
    finally:
        for job in shell.jobs:
            job.send(signal.SIGKILL)
        bash.kill()
        bash.communicate()


def _eventually(happened: Callable[[], bool], complaint: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, complaint()
        time.sleep(0.02)
