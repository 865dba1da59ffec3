"""`rapkit threads export`."""

import base64
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pexpect
import pytest

from rapkit.cli.threads import journal_reader
from tests.cli.agent_home import Home
from tests.cli.command import PATIENCE

IMAGE = base64.b64encode(b"\x89PNG").decode()


@pytest.fixture(scope="module")
def pictured(home: Home) -> str:
    """A thread with a picture, and a fence and a stranger's colours in what the tool says."""
    invocation = home.called("weather in Öslo")
    content = [
        {"type": "text", "text": "```\n\x1b[31mHere it is:"},
        {"type": "image", "data": IMAGE, "mediaType": "image/png"},
    ]
    home.call_back(invocation, type="tool_result", content=content)
    thread_id: str = invocation["group_id"]
    home.wait(thread_id, "idle")
    return thread_id


def history(home: Home, thread_id: str) -> Any:
    return home.api.get(f"threads/{thread_id}/history")["entries"]


def test_json_is_complete(home: Home, pictured: str) -> None:
    said = json.loads(home.run("threads", "export", pictured).out)

    assert said == {"threads": [{"thread": home.look(pictured), "entries": history(home, pictured)}]}
    assert IMAGE in json.dumps(said)


def test_jsonl_is_one_entry_a_line(home: Home, pictured: str) -> None:
    out = home.run("threads", "export", pictured, "--format", "jsonl").out

    assert [json.loads(line) for line in out.splitlines()] == [
        {"thread_id": pictured, **entry} for entry in history(home, pictured)
    ]


def test_markdown_is_for_people(home: Home, pictured: str) -> None:
    out = home.run("threads", "export", pictured, "--format", "markdown").out

    assert out.startswith(f"# Thread {pictured}\n\n- status: idle\n- begun: ")
    assert "- used: 2 requests to the model, 120 tokens, $0.0012\n" in out
    assert "weather in Öslo\n\n**model**, " in out
    assert "````text\n```\n\N{REPLACEMENT CHARACTER}[31mHere it is:\n[image/png]\n````\n" in out
    assert IMAGE not in out


def test_a_long_journal_is_read_to_its_end(home: Home, pictured: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = history(home, pictured)
    monkeypatch.setattr(journal_reader, "_PAGE", 3)

    out = home.run("threads", "export", pictured, "--format", "jsonl").out

    assert len(whole) > 3
    assert [json.loads(line)["seq"] for line in out.splitlines()] == [entry["seq"] for entry in whole]


def test_a_family_is_exported_together(home: Home) -> None:
    parent = home.ask("have a child")
    home.wait(f"{parent}-000001", "idle")

    said = json.loads(home.run("threads", "export", parent, "--family").out)
    alone = json.loads(home.run("threads", "export", parent).out)

    assert [each["thread"]["thread_id"] for each in said["threads"]] == [parent, f"{parent}-000001"]
    assert len(alone["threads"]) == 1


def test_a_file_is_written_whole(home: Home, pictured: str, tmp_path: Path) -> None:
    file = tmp_path / "thread.json"

    outcome = home.run("threads", "export", pictured, "-o", str(file))

    assert (outcome.code, outcome.out, outcome.err) == (0, f"1 thread written to {file}.\n", "")
    assert json.loads(file.read_text())["threads"][0]["thread"]["thread_id"] == pictured
    assert "Öslo" in file.read_text()
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(file.stat().st_mode) == 0o666 & ~mask
    assert os.listdir(tmp_path) == ["thread.json"]  # nothing else is left


def test_what_cannot_be_written_leaves_nothing_and_the_old_file(home: Home, pictured: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()

    missing = home.run("threads", "export", pictured, "-o", str(tmp_path / "nowhere" / "thread.json"))
    folder = home.run("threads", "export", pictured, "-o", str(tmp_path / "folder"))

    assert missing.code == folder.code == 2
    assert missing.err == f"rapkit: {tmp_path}/nowhere/thread.json cannot be written: No such file or directory.\n"
    assert "cannot be written: Is a directory." in folder.err
    assert os.listdir(tmp_path) == ["folder"]


def test_somebody_who_watches_sees_how_far_it_is(home: Home, pictured: str, tmp_path: Path) -> None:
    words = ["-m", "rapkit", "threads", "export", pictured, "-o", str(tmp_path / "x.json"), "--url", home.url]
    terminal = pexpect.spawn(sys.executable, words, encoding="utf-8", timeout=PATIENCE)
    terminal.expect("4 entries")
    terminal.expect("1 thread written to")
    terminal.expect(pexpect.EOF)
    terminal.close()

    assert terminal.exitstatus == 0
