import json
from typing import Any

import pytest
from pydantic import ValidationError

from rapkit.errors import InvalidMessage
from rapkit.protocol import BadInvocation, Invocation, ViewUpdate, dump, parse_callback, parse_invocation

HEAD = '{"operation":"f","id":"c1","callback_url":"http://a/","group_id":"t1","arguments":'


def arguments(text: str) -> Any:
    message = parse_invocation(f"{HEAD}{text}}}".encode())
    return message.arguments if isinstance(message, Invocation) else message.problem


def nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1E400"])
def test_numbers_json_does_not_have_are_a_problem_wherever_they_are(number: str) -> None:
    for text in (f'{{"a":{number}}}', f'{{"a":[[{{"b":{number}}}]]}}'):
        assert arguments(text).startswith("invocation.arguments: holds a number that is not finite")


def test_integers_keep_every_digit_as_far_as_floats_reach() -> None:
    assert arguments(f'{{"a":{2**1024 - 1}}}') == {"a": 2**1024 - 1}
    assert arguments(f'{{"a":{2**1024}}}').startswith("invocation.arguments: holds an integer beyond 1.8e308")
    with pytest.raises(InvalidMessage, match="not JSON"):
        arguments(f'{{"a":{"9" * 5000}}}')


def test_nesting_is_bounded() -> None:
    assert arguments(nested(64)) == json.loads(nested(64))
    assert arguments(nested(65)).startswith("invocation.arguments: is nested deeper than 64 levels")
    with pytest.raises(InvalidMessage, match="recursion limit"):
        arguments(nested(500))


def test_a_field_that_is_ignored_may_be_anything_the_reader_can_read() -> None:
    assert isinstance(parse_invocation(f'{HEAD}{{}},"x":{nested(100)},"y":NaN}}'.encode()), Invocation)


def test_deep_or_endless_nesting_never_raises_anything_else() -> None:
    for opening in (b"[", b'{"a":', b'[{"type":'):
        for prefix in (b"", b'{"type":"view_update","content":', b'{"type":'):
            with pytest.raises(InvalidMessage):
                parse_callback(prefix + opening * 100_000)


def test_nulls_inside_are_kept() -> None:
    message = parse_invocation(f'{HEAD}{{"a":null,"b":[null,{{"c":null}}]}}}}'.encode())

    assert not isinstance(message, BadInvocation)
    assert json.loads(dump(message))["arguments"] == {"a": None, "b": [None, {"c": None}]}


@pytest.mark.parametrize("content", [object(), {1: 2}, (1, 2), {"a": {3}}, b"x", "\ud800", {"\ud800": 1}, float("nan")])
def test_what_could_not_be_sent_cannot_be_put_in(content: Any) -> None:
    with pytest.raises(ValidationError):
        ViewUpdate(group_id="t1", view_type="v", content=content)
