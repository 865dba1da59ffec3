"""Checks are made at the same time; one that hangs or breaks takes nothing from the others."""

import threading
from collections.abc import Collection
from pathlib import Path

import pytest

from rapkit.cli.doctor import model, open_files, versions
from rapkit.cli.doctor.check_result import CheckResult
from rapkit.cli.doctor.checked_agent import CheckedAgent
from rapkit.cli.doctor.report import as_json, summary
from rapkit.cli.doctor.run_checks import CHECKS, run_checks
from tests.cli.doctor.checked_agents import checked

NOBODY = CheckedAgent(Path("rapkit.toml"), None, "There is none.", Path())


def well(_: CheckedAgent) -> list[CheckResult]:
    return [CheckResult("well", "ok", "fine")]


def ignore(_: Collection[str]) -> None:
    pass


def test_one_that_hangs_is_given_up_and_told_of() -> None:
    released = threading.Event()
    waited_for: list[Collection[str]] = []

    def hang(_: CheckedAgent) -> list[CheckResult]:
        released.wait()
        return []

    results = run_checks(NOBODY, waited_for.append, {"hangs": hang, "well": well}, patience=1.0)
    released.set()

    assert [(each.check, each.state) for each in results] == [("hangs", "failed"), ("well", "ok")]
    assert results[0].seen == "it did not end within 1 s"
    assert list(waited_for[0]) == ["hangs", "well"]
    assert list(waited_for[-1]) == ["hangs"]


def test_checks_are_made_at_the_same_time() -> None:
    met = threading.Barrier(2)

    def meet(_: CheckedAgent) -> list[CheckResult]:
        met.wait()
        return [CheckResult("met", "ok", "")]

    assert len(run_checks(NOBODY, ignore, {"one": meet, "two": meet})) == 2


def test_one_that_breaks_says_so_and_shows_nothing_of_what_it_had_in_its_hands() -> None:
    def broken(_: CheckedAgent) -> list[CheckResult]:
        raise RuntimeError("the token is xyzzy")

    results = run_checks(NOBODY, ignore, {"broken": broken, "well": well})

    assert [(each.check, each.state) for each in results] == [("broken", "skipped"), ("well", "ok")]
    assert results[0].seen == "the check itself broke: RuntimeError"
    assert "xyzzy" not in as_json(results)


def test_what_is_told_has_the_order_of_the_checks_and_not_of_their_ends() -> None:
    assert [*CHECKS][:3] == ["versions", "config", "store"]


@pytest.mark.parametrize(
    ("states", "said"),
    [
        (["ok", "skipped"], "All is well."),
        (["ok", "warning"], "1 warning. After"),
        (["failed", "warning", "warning"], "1 failed and 2 warnings. After"),
    ],
)
def test_it_all_comes_to_one_sentence(states: list[str], said: str) -> None:
    assert summary([CheckResult("x", state, "") for state in states]).startswith(said)  # type: ignore[arg-type]


# Small ones


def test_versions_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    (result,) = versions.check(NOBODY)
    assert result.state == "ok"
    assert "rapkit 0" in result.seen
    assert "Python 3" in result.seen
    assert "SQLite 3" in result.seen

    monkeypatch.setattr(versions.apsw, "sqlite_lib_version", lambda: "3.46.1")  # type: ignore[attr-defined]
    (old,) = versions.check(NOBODY)
    assert (old.state, old.do) == ("failed", "Run: pip install -U apsw")


def test_few_open_files_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 4096))

    (result,) = open_files.check(NOBODY)

    assert (result.state, result.seen) == ("warning", "up to 256 at once, which is few")
    assert result.do == "Run: ulimit -n 4096, up to 4,096 without asking anybody."


def test_a_script_is_a_model_that_needs_no_key(tmp_path: Path) -> None:
    (result,) = model.check(checked(tmp_path))
    assert result.state == "ok"
    assert result.seen.endswith("plan.yaml, a script that needs no key")


def test_a_model_that_is_asked(tmp_path: Path) -> None:
    (result,) = model.check(checked(tmp_path, ask_model=True))
    assert result.state == "ok"
    assert "plan.yaml answered: 0.0 s" in result.seen

    (tmp_path / "failing.yaml").write_text("- fail: The key is wrong.\n  retryable: false\n")
    (refused,) = model.check(checked(tmp_path, model="scripted:failing.yaml", ask_model=True))
    assert refused.state == "failed"
    assert "The key is wrong." in refused.seen
    assert refused.do == "Check the key, the name of the model and the account."


def test_a_model_without_a_key_and_one_whose_key_is_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (without,) = model.check(checked(tmp_path, model="openai:gpt-5-mini"))
    assert without.state == "failed"
    assert "set OPENAI_API_KEY" in without.seen

    monkeypatch.setenv("OPENAI_API_KEY", "sk-xyzzy-xyzzy-xyzzy")
    (untried,) = model.check(checked(tmp_path, model="openai:gpt-5-mini"))
    assert untried.state == "ok"
    assert "`--ask-model`" in untried.seen
    assert "xyzzy" not in untried.seen
