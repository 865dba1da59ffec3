"""A page that does not do what it says is found out."""

import contextlib
from pathlib import Path

import pytest

from tests.cli.command import eventually
from tests.docs.blocks import blocks_of
from tests.docs.session import Command, commands_of, fits
from tests.docs.walk import walk

FENCE = "```"


def page(folder: Path, text: str) -> Path:
    file = folder / "page.md"
    file.write_text(text.replace("'''", FENCE))
    return file


def test_a_session_is_commands_with_what_they_print() -> None:
    text = "$ one \\\n    two\nsaid\n\n$ rapkit serve x.py\nat …\n^C\n$ sleep 9 &\n"

    one, serve, sleep = commands_of(text)

    assert one == Command("one \\\n    two", ("said",))
    assert serve == Command("rapkit serve x.py", ("at …",), interrupted=True)
    assert (one.stays, serve.stays, sleep.stays) == (False, True, True)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("a", "a\n"),
        ("a", "\na  \n\n"),
        ("a … c", "a b c"),
        ("a\n…\nz", "a\nz"),
        ("a\n…\nz", "a\nb\nc\nz"),
        ("due 2026-11-17 08:00:00 UTC", "due 2031-01-01 00:00:01 UTC"),
        ("one  two", "one      two"),
        ("a + (b)", "a + (b)"),
    ],
)
def test_what_was_printed_fits(shown: str, printed: str) -> None:
    assert fits(tuple(shown.split("\n")), printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [("a", "b"), ("a", "a\nb"), ("a\nb", "a"), ("a", "ab"), ("a …", "b c"), ("a\n…", "b"), ("a.c", "abc")],
)
def test_what_was_printed_does_not_fit(shown: str, printed: str) -> None:
    assert not fits(tuple(shown.split("\n")), printed)


def test_a_page_is_walked_in_one_shell_with_its_files_and_ports(tmp_path: Path) -> None:
    text = """
'''text title="settings.txt"
http://127.0.0.1:8001/x
'''

'''sh
export NAME=me
test "$NAME" = me
'''

'''console
$ cat settings.txt; echo $NAME
http://127.0.0.1:8001/x
me
$ grep -q 8001 settings.txt
$ echo $?
1
$ (echo http://; sleep 1000) &
$ kill -9 %1
'''

<!-- not run: it would fail -->

'''console
$ false
'''
"""
    walk(page(tmp_path, text), tmp_path)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("'''console\n$ echo one\ntwo\n'''\n", "printed\none\n\nThe page says\ntwo"),
        ("'''console\n$ false\n'''\n", r"\$ false\nfailed"),
        ("'''console\n$ false\n$ true\n'''\n", r"\$ false\nfailed"),
        ("'''sh\nfalse\ntrue\n'''\n", "a command of the script failed"),
        ("'''console\n$ echo one &\ntwo\n'''\n", "ended, having printed\none"),
        ("'''console\n$ exit\n'''\n", "the shell ended"),
    ],
)
def test_a_page_that_says_something_else_fails(text: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=complaint):
        walk(page(tmp_path, text), tmp_path)


def test_a_page_that_fails_leaves_nothing_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.docs.walk.PATIENCE", 3.0)
    text = "'''console\n$ echo $$ > pid; sleep 1000 & sleep 1000\n'''\n"

    with pytest.raises(AssertionError, match="it takes more than"):
        walk(page(tmp_path, text), tmp_path)

    session = (tmp_path / "home" / "pid").read_text().strip()
    eventually(lambda: not any(_runs_in(session, each) for each in Path("/proc").glob("[0-9]*")))


def _runs_in(session: str, process: Path) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        state, _, _, of, *_ = (process / "stat").read_text().rpartition(")")[2].split()
        return of == session and state != "Z"  # what is dead may wait to be noticed
    return False


@pytest.mark.parametrize("text", ["  '''sh\ntrue\n  '''\n", "'''sh\ntrue\n", "'''sh linenums\ntrue\n'''\n"])
def test_a_block_that_cannot_be_read_is_a_mistake(text: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="a fence"):
        blocks_of(page(tmp_path, text))
