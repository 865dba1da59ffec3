"""Messages that are cheap to send and, without bounds, costly to refuse."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from rapkit.errors import InvalidMessage
from rapkit.protocol import ToolResult, parse_callback, parse_invocation
from rapkit.protocol.callbacks import callback_adapter

MOST_ERRORS = 5


def message(**fields: Any) -> bytes:
    return json.dumps({"type": "tool_result", "group_id": "t1", "id": "c1", **fields}).encode()


def choice(*choices: Any) -> bytes:
    fields = {"prompt": "Which?", "choices": choices, "default": 0, "response_url": "http://127.0.0.1/a"}
    return message(**{**fields, "type": "user_choice"})


@pytest.mark.parametrize(
    "body",
    [
        message(text="", display_as=[0] * 1000),
        message(text="", display_as=[{}] * 1000),
        message(content=[0] * 1000),
        message(content=[{"type": "image"}] * 1000),
        choice(*[0] * 1000),
    ],
)
def test_errors_are_not_collected(body: bytes) -> None:
    with pytest.raises(ValidationError) as refused:
        callback_adapter.validate_json(body)

    assert refused.value.error_count() <= MOST_ERRORS


@pytest.mark.parametrize("body", [message(content=[0] * 9000), choice(*[0] * 9000)])
def test_a_refusal_names_the_first_mistake_of_an_array(body: bytes) -> None:
    with pytest.raises(InvalidMessage) as refused:
        parse_callback(body)

    assert str(refused.value).count("\n") < MOST_ERRORS
    assert "[0]: a number, must be" in str(refused.value)


def test_a_result_has_a_bounded_number_of_items() -> None:
    item = {"type": "text", "text": ""}

    assert isinstance(parse_callback(message(content=[item] * 10_000)), ToolResult)
    with pytest.raises(InvalidMessage, match=r"tool_result.content: more than 10000 items"):
        parse_callback(message(content=[item] * 10_001))


def test_of_too_many_segments_the_first_are_used() -> None:
    """A client shows the first that it knows, so that the rest is no reason to refuse the result."""
    result = parse_callback(message(text="", display_as=[{"type": "text", "content": str(n)} for n in range(1001)]))

    assert isinstance(result, ToolResult)
    assert result.display_as is not None
    assert [segment.content for segment in result.display_as] == [str(n) for n in range(1000)]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"[" * 100_000 + b"]" * 100_000, "recursion limit exceeded"),
        (b"9" * 100_000, "number out of range"),
        (b"9" * 4000, "an integer beyond 1.8e308"),
        (b"NaN", "a number that is not finite"),
        (b"-Infinity", "a number that is not finite"),
        (b"1e999", "a number that is not finite"),
    ],
)
def test_what_is_no_json_or_too_deep_or_too_long_is_refused_in_a_few_words(content: bytes, problem: str) -> None:
    with pytest.raises(InvalidMessage) as refused:
        parse_callback(b'{"type":"view_update","group_id":"t1","view_type":"v","content":' + content + b"}")

    assert problem in str(refused.value)
    assert len(str(refused.value)) < 300


def test_an_invocation_with_a_huge_integer_or_deep_nesting_is_refused_in_a_few_words() -> None:
    for value in (b"9" * 100_000, b"[" * 100_000 + b"]" * 100_000):
        with pytest.raises(InvalidMessage) as refused:
            parse_invocation(b'{"operation":"x","id":"c1","arguments":{"a":' + value + b"}}")
        assert len(str(refused.value)) < 300


def test_of_equal_keys_the_last_counts_however_many_there_are() -> None:
    result = parse_callback(
        b'{"type":"tool_result","group_id":"t1","id":"c1",' + b'"text":"a",' * 50_000 + b'"text":"b"}'
    )

    assert isinstance(result, ToolResult)
    assert result.text == "b"
