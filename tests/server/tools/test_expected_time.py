from collections.abc import Callable
from typing import Any

import pytest

from rapkit import Toolset
from rapkit.errors import ConfigError
from rapkit.kernel.limits import Timeouts
from rapkit.protocol.expected_time import ANNOTATION, duration, longest_expected


def work() -> str:
    """Work."""
    return "done"


async def watch() -> Any:
    """Watch."""
    yield "x"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30 s", [30, 30]), ("2-10 min", [120, 600]), ("1.5h", [5400, 5400]), ("1 - 3 d", [86400, 259200])],
)
def test_the_expected_time_is_published(toolset: Callable[..., Toolset], text: str, seconds: list[float]) -> None:
    """Item 15 · INV-20: in the description for models, and in seconds for runtimes."""
    tools = toolset()
    tools.tool(expected=text)(work)
    tools.subscription(expected=text)(watch)

    for tool in tools.document("http://localhost").tools:
        assert tool.description.endswith(f"Expected time: {text}.")
        assert tool.annotations is not None
        assert tool.annotations.model_dump()[ANNOTATION] == seconds


@pytest.mark.parametrize(
    "text", ["", "soon", "10", "10 minutes ", "10-2 min", "0 s", "-1 s", "1h 30min", "2..10 min", 5]
)
def test_an_expected_time_that_cannot_be_read_is_refused(toolset: Callable[..., Toolset], text: Any) -> None:
    """Item 15 · INV-20"""
    with pytest.raises(ConfigError, match=r"tool 'work': expected is .*"):
        toolset().tool(expected=text)(work)


def test_what_is_said_of_a_time_fits_what_was_written(toolset: Callable[..., Toolset]) -> None:
    with pytest.raises(ConfigError, match=r"'0 s'\. It has to be more than 0\."):
        toolset().tool(expected="0 s")(work)
    with pytest.raises(ConfigError, match=r"'10-2 min'\. The second number must not be less than the first\."):
        toolset().tool(expected="10-2 min")(work)


@pytest.mark.parametrize("value", [None, 5, "5", [], [1], [1, "2"], [2, 1], [0, 0], [True, 5], [1, float("inf")]])
def test_an_annotation_of_a_stranger_that_is_none_is_ignored(value: Any) -> None:
    """Item 15"""
    assert longest_expected({ANNOTATION: value}) is None
    assert longest_expected(None) is None


def test_a_call_has_at_least_twice_the_longest_expected_time() -> None:
    """Item 15 · RUN-7: a time-out the user has set for that tool wins, and without any there is none."""
    assert Timeouts(call=60).of("work", long_running=False, expected=600) == 1200
    assert Timeouts(call=60).of("work", long_running=True, expected=10) == 600
    assert Timeouts(call=60, tools={"work": 5}).of("work", long_running=False, expected=600) == 5
    assert Timeouts().of("work", long_running=False, expected=600) is None


@pytest.mark.parametrize(
    ("seconds", "text"), [(30, "30 s"), (600, "10 min"), (5400, "1.5 h"), (259200, "3 d"), (0.5, "0.5 s")]
)
def test_a_duration_is_told_in_its_largest_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text
