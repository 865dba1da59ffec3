"""What is installed: what the wheel and the source distribution hold, and that rapkit runs from them and nothing else."""

import email
import os
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

import pytest

import rapkit

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
INFO = f"rapkit-{rapkit.__version__}.dist-info"
HEAVY = {"pydantic", "rich", "starlette", "uvicorn", "apsw", "pyreqwest", "prompt_toolkit", "pydantic_ai"}
LONG = 600.0
"""How long it may take to install everything, or to see the demo, in seconds."""


@dataclass(frozen=True)
class Built:
    """What was built: from the sources, and a wheel from the source distribution."""

    sdist: Path
    wheel: Path
    wheel_of_sdist: Path


def build(source: Path, folder: Path, kind: str) -> Path:
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", folder, source],
        check=True,
        capture_output=True,
    )
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("built")
    sdist = build(ROOT, folder / "sdist", "sdist")
    with tarfile.open(sdist) as archive:
        archive.extraction_filter = getattr(
            tarfile, "data_filter", None
        )  # which the first ones of Python 3.11 do not have
        archive.extractall(folder / "unpacked")
    (unpacked,) = (folder / "unpacked").iterdir()
    return Built(sdist, build(ROOT, folder / "wheel", "wheel"), build(unpacked, folder / "again", "wheel"))


def files_of(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def metadata_of(wheel: Path) -> Message:
    return email.message_from_string(files_of(wheel)[f"{INFO}/METADATA"].decode())


def below(folder: Path) -> set[str]:
    """The files in a folder, as they are named from the one above."""
    files = (each for each in folder.rglob("*") if each.is_file() and "__pycache__" not in each.parts)
    return {each.relative_to(folder.parent).as_posix() for each in files}


def test_the_wheel_holds_the_whole_package_and_nothing_else(built: Built) -> None:
    names = set(files_of(built.wheel))

    assert {name for name in names if not name.startswith(f"{INFO}/")} == below(ROOT / "src" / "rapkit")
    assert {"rapkit/py.typed", "rapkit/protocol/schemas/toolset.json", f"{INFO}/licenses/LICENSE"} <= names
    assert any(name.startswith("rapkit/cli/new/templates/") for name in names)


def test_the_wheel_says_what_it_is(built: Built) -> None:
    said = metadata_of(built.wheel)
    points = files_of(built.wheel)[f"{INFO}/entry_points.txt"].decode()

    assert (said["Name"], said["Version"], said["Requires-Python"]) == ("rapkit", rapkit.__version__, ">=3.11")
    assert said["License-Expression"] == "Apache-2.0"
    assert set(said.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])
    assert len([each for each in said.get_all("Requires-Dist", []) if "extra ==" not in each]) == len(
        PROJECT["dependencies"]
    )
    assert said["Description-Content-Type"] == "text/markdown"
    assert said.get_payload() == (ROOT / "README.md").read_text()
    assert "rapkit = rapkit.cli:main" in points


def test_the_source_distribution_makes_the_same_wheel(built: Built) -> None:
    assert files_of(built.wheel_of_sdist) == files_of(built.wheel)


def test_the_source_distribution_has_the_tests_and_what_they_need(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    assert below(ROOT / "tests") <= names
    there = {name.partition("/")[0] for name in names}
    assert {"docs", "examples", "scripts", "README.md", "CHANGELOG.md", "LICENSE", "constraints.txt"} <= there
    assert not {"site", "dist", ".git", ".venv"} & there


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_nothing_heavy_is_loaded_to_say_what_there_is(option: str) -> None:
    told = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "rapkit", option], capture_output=True, check=True, text=True
    )
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in told.stderr.splitlines()}

    assert {"rapkit", "click"} <= loaded
    assert loaded.isdisjoint(HEAVY)


@pytest.mark.soak
def test_rapkit_runs_where_nothing_else_is_installed(built: Built, tmp_path: Path) -> None:
    """From the wheel, in an environment and a folder of its own, without any setting of ours."""
    place = tmp_path / "environment"
    venv.create(place, with_pip=True)
    install = ["-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt"), str(built.wheel)]
    subprocess.run([place / "bin" / "python", *install], check=True, timeout=LONG)
    home = tmp_path / "home"
    home.mkdir()

    def run(*words: str) -> str:
        ended = subprocess.run(
            [place / "bin" / "rapkit", *words],
            cwd=home,
            env={"HOME": str(home), "PATH": os.defpath},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LONG,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    assert run("--version") == f"rapkit {rapkit.__version__}\n"
    assert "demo" in run("--help")
    assert run("demo")
    assert list(home.iterdir()) == [], "the demo left something behind"
