"""A page carried out as a reader would: its files are written, its commands given to one shell, its servers left running.

How a page is written for it:

- A block with a title (```python title="weather.py") is a file, written when its turn comes.
- A `console` block is commands after `$`, and below each what it prints; nothing below it means anything. `…` stands for anything within a
  line, a line of it for any lines; any time is as good as another. `sh` is a script, of which no command may fail.
- The exit code is 0, unless the next command is `echo $?`.
- `rapkit serve`, `rapkit up` and what ends in `&` go on until the page ends; what is shown below them is waited for. `^C` on a line of its
  own ends them in order, `kill -9 %1` at once.
- Ports are the usual ones; each page has free ones in their place. A model that needs a key is played by `plan.yaml` among what is given.
- `<!-- not run: why -->` before a block of commands leaves it out: for what needs the outside world.
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

from tests.docs.blocks import ROOT, Block, blocks_of
from tests.docs.ports import Ports
from tests.docs.session import Command, commands_of, fits

PATIENCE = 60.0
"""How long a command may take, in seconds."""

GIVEN = Path(__file__).parent / "given"
"""What a page takes for granted, in a folder of its name: files of the reader's, and `plan.yaml`, which stands in for a real model."""

_SHELLS = ("console", "sh")
_OF_TOOLS = ("serve", "call", "inspect", "outbox")
_SHIM = """#!{python}
import sys

from rapkit.cli import main, rapkit

rapkit.context_settings["default_map"] = {{"serve": {{"port": {server}}}}}

if not set(sys.argv[1:2]) & set({of_tools}):
    from rapkit.models import registry

    real, plan = registry.open_model, {plan!r}

    def open_model(name):
        if not plan or not isinstance(name, str) or name.startswith("scripted:"):
            return real(name)
        model = real(plan)
        model._name = name
        return model

    registry.open_model = open_model

    from rapkit.settings import agent_location

    agent_location.DEFAULT_PORT = {agent}

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
        shutil.copytree(given, home, ignore=shutil.ignore_patterns("plan.yaml"))
    home.mkdir(exist_ok=True)
    (home / "examples").symlink_to(ROOT / "examples")
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
        if not command.text.startswith("echo $?"):
            shell.check()
        if command.stays:
            _leave_running(command, shell, ports, where)
            continue
        printed, code = shell.run(ports.to_real(command.text))
        printed = ports.to_shown(printed)
        if command.shown:
            assert fits(command.shown, printed), f"{where}printed\n{printed}\nThe page says\n{_joined(command)}"
        shell.failure = f"{where}failed:\n{printed}" if code else None
    shell.check()


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
        self.failure: str | None = None

    def run(self, text: str) -> tuple[str, int]:
        """What it prints, and its exit code, once it has ended. `$?` is that of the command before."""
        printed, said = self._give(f"(exit {self._code})\n{text}", "$?")
        self._code = int(said)
        return printed, self._code

    def check(self) -> None:
        """Nothing failed, unless the page goes on to show the exit code."""
        assert self.failure is None, self.failure

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
    shim.write_text(
        _SHIM.format(
            python=sys.executable,
            of_tools=_OF_TOOLS,
            plan=f"scripted:{plan}" if plan.exists() else "",
            agent=ports.real("8700"),
            server=ports.real("8001"),
        )
    )
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
        bash.kill()
        for job in shell.jobs:
            job.send(signal.SIGKILL)
        _end_session(bash.pid)
        bash.communicate()


def _end_session(session: int) -> None:
    """Kill what is left of a shell's programs: also one that was still in the foreground, when a page has failed."""
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(ProcessLookupError):
            if int(each.name) != session and os.getsid(int(each.name)) == session:
                os.kill(int(each.name), signal.SIGKILL)


def _eventually(happened: Callable[[], bool], complaint: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, complaint()
        time.sleep(0.02)
