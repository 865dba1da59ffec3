"""Stores whose key file is lost or spoiled: every command that opens one says which file that is, and makes no new key."""

import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rapkit.keyring import VARIABLE
from tests.interop.http_peer import PATIENCE
from tests.interop.processes import free_port

TOOLS = """
from rapkit import Toolset

tools = Toolset("tools")

@tools.tool
def greet() -> str:
    return "Hello."
"""

STORE = "sqlite:///kept.db"
COMMANDS = {
    "serve": ("serve", "tools.py", "--store", STORE, "--port", "0"),
    "up": ("up",),
    "wake": ("wake",),
    "outbox": ("outbox", "list", "--store", STORE),
    "doctor": ("doctor", "--json"),
}
each_command = pytest.mark.parametrize("command", COMMANDS)


def rapkit(folder: Path, *words: str, key: str | None = None) -> tuple[int, str]:
    """The exit code of a command, and all it printed."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    ended = subprocess.run(
        [sys.executable, "-m", "rapkit", *words],
        cwd=folder,
        env=environment if key is None else {**environment, VARIABLE: key},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
    )
    return ended.returncode, ended.stdout


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an agent, a toolset and a store that both may use, sealed with the key in `kept.db.key`."""
    folder = tmp_path_factory.mktemp("sealed")
    (folder / "tools.py").write_text(TOOLS)
    (folder / "plan.yaml").write_text("- say: Hello.\n")
    (folder / "rapkit.toml").write_text(
        f'[agent]\nmodel = "scripted:plan.yaml"\nport = {free_port()}\nstore = "{STORE}"\n'
    )
    assert rapkit(folder, "wake")[0] == 0
    assert (folder / "kept.db.key").exists()
    return folder


@pytest.fixture
def folder(sealed: Path, tmp_path: Path) -> Path:
    """A copy of that folder."""
    return shutil.copytree(sealed, tmp_path / "copy")


@each_command
def test_no_new_key_is_made_for_a_store_whose_key_file_is_lost(folder: Path, command: str) -> None:
    (folder / "kept.db.key").unlink()

    code, said = rapkit(folder, *COMMANDS[command])

    assert code != 0
    assert "kept.db.key" in said
    assert "from a backup" in said
    assert f"set {VARIABLE}" in said
    assert "Traceback" not in said
    assert not list(folder.glob("*.key*"))


@pytest.mark.parametrize(
    ("command", "content", "complaint"),
    [
        *((command, b"", "holds no key") for command in COMMANDS),
        ("wake", b"\xff\xfe\x80", "is not a text file"),
        ("doctor", b"secret words", "is not base64"),
    ],
)
def test_a_spoiled_key_file_is_named_and_kept(folder: Path, command: str, content: bytes, complaint: str) -> None:
    file = folder / "kept.db.key"
    file.write_bytes(content)
    before = file.read_bytes()

    code, said = rapkit(folder, *COMMANDS[command])

    assert code != 0
    assert "kept.db.key" in said
    assert complaint in said
    assert "Traceback" not in said
    assert "secret words" not in said
    assert file.read_bytes() == before


@each_command
def test_a_wrong_key_in_the_environment_leads_to_no_key_file(folder: Path, command: str) -> None:
    file = folder / "kept.db.key"
    right = file.read_text().strip()
    file.unlink()

    code, said = rapkit(folder, *COMMANDS[command], key=secrets.token_urlsafe(32))

    assert code != 0
    assert "sealed with another key" in said
    assert VARIABLE in said
    assert ".key" not in said
    assert not list(folder.glob("*.key*"))
    assert rapkit(folder, "wake", key=right)[0] == 0
