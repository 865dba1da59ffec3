import json
import logging
import re
from collections.abc import Iterator

import pytest

from rapkit.logs import JsonLines, TextLines, set_up_logging


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def record(
    message: str = "half %s", *arguments: object, error: Exception | None = None, **extra: object
) -> logging.LogRecord:
    info = None if error is None else (type(error), error, error.__traceback__)
    made = logging.getLogger("rapkit.calls").makeRecord(
        "rapkit.calls", logging.INFO, "file.py", 1, message, arguments, info, extra=extra
    )
    made.created, made.msecs = 1_700_000_000.25, 250.0
    return made


def test_a_line_for_people_has_what_happened_and_the_ids() -> None:
    line = TextLines().format(record("half %s", "way", operation="forecast", call_id="c1", user_id=None))

    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d INFO    rapkit\.calls: half way  operation=forecast call_id=c1", line
    )


def test_a_line_without_ids_ends_with_the_message() -> None:
    assert TextLines().format(record("plain")).endswith(" INFO    rapkit.calls: plain")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("c1", "c1"),
        ("https://example.org/a?b", "https://example.org/a?b"),
        ("Grüße", "Grüße"),
        (0.5, "0.5"),
        ("", '""'),
        ("c1 outcome=ok", '"c1 outcome=ok"'),
        ("c1=c2", '"c1=c2"'),
        ('"c1"', '"\\"c1\\""'),
        ("it's", '"it\'s"'),
        ("für alle", '"für alle"'),
        ("c1\n12:00:00 INFO    rapkit.calls: call finished", '"c1\\n12:00:00 INFO    rapkit.calls: call finished"'),
        ("c1\u2028c2", '"c1\\u2028c2"'),
        ("c1\u00a0c2", '"c1\\u00a0c2"'),
        ("\x1b[2J", '"\\u001b[2J"'),
        ("\x7f\x9b", '"\\u007f\\u009b"'),
        ("\u202eabc", '"\\u202eabc"'),
        ({"a": 1}, "\"{'a': 1}\""),
    ],
)
def test_a_value_cannot_imitate_other_fields_or_lines(value: object, shown: str) -> None:
    line = TextLines().format(record("call finished", call_id=value, outcome="error"))

    assert line.endswith(f": call finished  call_id={shown} outcome=error")
    assert line.isprintable()


def test_a_quoted_value_can_be_read_back() -> None:
    value = 'a "b" \\ c\n\x00=d'
    line = TextLines().format(record("call finished", call_id=value))

    assert json.loads(line.partition("call_id=")[2]) == value


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("für alle, 世界", "für alle, 世界"),
        ("\x1b]0;owned\x07", "\\u001b]0;owned\\u0007"),
        ("done\r12:00:00 INFO", "done\\r12:00:00 INFO"),
        ("a\x9b2Jb\x85c\x7f", "a\\u009b2Jb\\u0085c\\u007f"),
        ("\u202eabc\u2066\u2028", "\\u202eabc\\u2066\\u2028"),
        ("lone \ud800", "lone \\ud800"),
        ("first\n12:00:00 INFO    rapkit.calls: forged", "first\n    12:00:00 INFO    rapkit.calls: forged"),
    ],
)
def test_a_message_cannot_act_on_the_terminal_or_imitate_a_line(message: str, shown: str) -> None:
    line = TextLines().format(record("it said %s", message, call_id="c1"))

    assert line.endswith(f" INFO    rapkit.calls: it said {shown}  call_id=c1")
    assert line.replace("\n", "").isprintable()


def test_nor_can_an_exception() -> None:
    try:
        raise ValueError("\x1b[2J\n12:00:00 INFO    rapkit.calls: forged")
    except ValueError as error:
        made = record("the handler failed", error=error)
    first, *others = TextLines().format(made).split("\n")

    assert first.endswith("the handler failed")
    assert others[-2:] == ["    ValueError: \\u001b[2J", "    12:00:00 INFO    rapkit.calls: forged"]
    assert all(line.startswith("    ") and line.isprintable() for line in others)


def test_a_line_for_machines_has_nothing_a_terminal_acts_on() -> None:
    hostile = "\x1b[2J\r\n\x9b\x7f\u202e\u2028"
    try:
        raise ValueError(hostile)
    except ValueError as error:
        line = JsonLines().format(record("it said %s", hostile, error=error, call_id=hostile))

    assert line.isprintable()
    assert line.isascii()


def test_a_line_for_machines_is_one_json_object() -> None:
    line = JsonLines().format(record("half\n%s", "way", call_id="c1", seconds=0.5, odd={1, 2}.__class__))

    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "info",
        "logger": "rapkit.calls",
        "message": "half\nway",
        "call_id": "c1",
        "seconds": 0.5,
        "odd": "<class 'set'>",
    }


def test_both_show_the_whole_of_an_exception() -> None:
    try:
        raise ValueError("broken")
    except ValueError as error:
        made = record("the handler failed", error=error)

    assert "Traceback" in TextLines().format(made)
    assert TextLines().format(made).endswith("ValueError: broken")
    exception = json.loads(JsonLines().format(made))["exception"]
    assert exception.startswith("Traceback")
    assert exception.endswith("ValueError: broken")


@pytest.mark.parametrize("style", ["text", "json"])
def test_logs_go_to_standard_error_from_the_level_on(style: str, capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging(style, "warning")
    logging.getLogger("rapkit.x").info("too quiet")
    logging.getLogger("rapkit.x").warning("loud", extra={"call_id": "c1"})
    out, err = capsys.readouterr()

    assert out == ""
    (line,) = err.splitlines()
    assert "loud" in line
    assert (json.loads(line)["call_id"] if style == "json" else line[-len("call_id=c1") :]) in ("c1", "call_id=c1")


def test_setting_up_twice_does_not_double_the_lines(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        set_up_logging("text", "info")
    logging.getLogger("rapkit.x").info("once")

    assert capsys.readouterr().err.count("once") == 1
