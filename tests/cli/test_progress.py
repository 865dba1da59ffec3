"""How far a call has come, in words."""

from typing import Any

import pytest

from rapkit.cli.progress import Progress, read_progress


@pytest.mark.parametrize(
    ("content", "words", "bar"),
    [
        ({"done": 3, "total": 6, "note": "brewing"}, "3/6 brewing", "██░░"),
        ({"done": 3}, "3", ""),
        ({"done": 0.25, "total": 1.0}, "0.25/1", "█░░░"),
        ({"done": 1_500_000, "total": 3_000_000.0}, "1,500,000/3,000,000", "██░░"),
        ({"done": 7, "total": 6}, "7/6", "████"),
        ({"done": -1, "total": 6}, "-1/6", "░░░░"),
        ({"done": 3, "total": 0}, "3", ""),
        ({"done": 3, "total": "six", "note": ["brewing"]}, "3", ""),
        ({"done": 1e300, "total": 10**400}, "1e+300", ""),
        ({"done": 1, "note": " in\ntwo\tlines "}, "1 in two lines", ""),
    ],
    ids=["all", "done", "parts", "many", "too-far", "backwards", "of-nothing", "strange", "huge", "lines"],
)
def test_a_number_the_whole_and_a_note(content: dict[str, Any], words: str, bar: str) -> None:
    progress = read_progress({"call_id": "call_1", "operation": "brew", **content})
    assert progress is not None
    assert (progress.call_id, progress.in_words, progress.bar(4)) == ("call_1", words, bar)


def test_a_note_has_an_end() -> None:
    progress = read_progress({"call_id": "call_1", "done": 1, "note": "on and " * 10_000})
    assert progress is not None
    assert len(progress.in_words) < 300


@pytest.mark.parametrize("done", [None, True, "3", [3], float("nan"), float("inf"), 10**400])
def test_what_is_no_number_is_no_progress(done: object) -> None:
    assert read_progress({"call_id": "call_1", "done": done}) is None


def test_it_is_the_progress_of_a_call() -> None:
    assert read_progress({"call_id": "call_1", "done": 1}) == Progress("call_1", 1.0)
    assert read_progress({"done": 1}) is None
    assert read_progress("half") is None
