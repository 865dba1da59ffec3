"""What nobody foresaw is a sentence, too; the traceback is for those who ask for it."""

from pathlib import Path

import pytest

from rapkit.cli import new
from tests.cli.agent_home import command
from tests.cli.command import Outcome

SEE_MORE = "Run it again with RAPKIT_TRACEBACK=1 to see how it came about, and please report it.\n"


def fail_with(problem: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_project(_name: object) -> None:
        raise problem

    monkeypatch.setattr(new, "write_project", write_project)


def run(traceback: str = "") -> Outcome:
    return command("new", "my-tools", environment={"RAPKIT_TRACEBACK": traceback})


def test_it_is_one_sentence_and_exit_code_70(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(TypeError("no\nsuch\x1b[31m thing."), monkeypatch)
    line = fail_with.__code__.co_firstlineno + 2

    outcome = run()

    what = f"TypeError: no such\N{REPLACEMENT CHARACTER}[31m thing ({Path(__file__).name}, line {line})"
    assert outcome == Outcome(70, "", f"rapkit: Nobody foresaw this: {what}. {SEE_MORE}")


def test_of_a_group_the_first_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(ExceptionGroup("several", [ExceptionGroup("more", [KeyError("city")]), OSError("full")]), monkeypatch)

    assert run().err == f"rapkit: Nobody foresaw this: KeyError: 'city'. {SEE_MORE}"


def test_who_wants_the_traceback_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(TypeError("no such thing"), monkeypatch)

    with pytest.raises(TypeError, match="no such thing"):
        run("1")
