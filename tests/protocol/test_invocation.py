import json
from typing import Any

import pytest

from rapkit.errors import InvalidMessage
from rapkit.protocol import BadInvocation, Invocation, dump, parse_invocation

URL = "https://agent.example.com/callback/t0k3n"


def body(**fields: Any) -> bytes:
    """An invocation with some fields changed; `...` leaves one out."""
    usual = {"operation": "forecast", "arguments": {"city": "Oslo"}, "id": "c1", "callback_url": URL, "group_id": "t1"}
    return json.dumps({key: value for key, value in (usual | fields).items() if value is not ...}).encode()


def bad(**fields: Any) -> BadInvocation:
    answer = parse_invocation(body(**fields))
    assert isinstance(answer, BadInvocation)
    return answer


def test_an_invocation_is_read_as_sent() -> None:
    """INV-1"""
    assert parse_invocation(
        body(call_id="fc_1", thread_ancestors=["root", "mid"], user_id="u1", toolset_version="7")
    ) == Invocation(
        operation="forecast",
        arguments={"city": "Oslo"},
        id="c1",
        call_id="fc_1",
        callback_url=URL,
        group_id="t1",
        thread_ancestors=("root", "mid"),
        user_id="u1",
        toolset_version="7",
    )


def test_a_peer_that_sends_nulls_and_leaves_user_id_out_is_understood() -> None:
    nulls = body(call_id=None, thread_ancestors=None, user_id=None, toolset_version=None)

    assert parse_invocation(nulls) == parse_invocation(body())


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8700",
        "HTTPS://Agent.Example.com:443/%7Ea/../b?x=1&y=%20#frag",
        "http://[::1]:9/cb",
        "http://bücher.example/ü",
    ],
)
def test_the_callback_url_stays_exactly_as_given(url: str) -> None:
    """CB-1"""
    message = parse_invocation(body(callback_url=url))

    assert isinstance(message, Invocation)
    assert message.callback_url == url
    assert json.loads(dump(message))["callback_url"] == url


@pytest.mark.parametrize("name", ["callback_url", "group_id", "id"])
@pytest.mark.parametrize("value", [..., None, "", 5, ["x"], "a\nb", "x" * 5000])
def test_without_a_way_to_answer_an_invocation_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidMessage, match=rf"invocation\.{name}: "):
        parse_invocation(body(**{name: value}))


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host/x",
        "/callback",
        "//host/x",
        "http:/host",
        "http://",
        "http:///x",
        "http://?x",
        "http://:80/",
        "http://@host/",
        "http://ho st/",
        "http://host/\\@evil/",
        "http://host/\u00a0",
        "javascript:alert(1)//http://x",
        " http://host",
    ],
)
def test_a_callback_url_is_an_absolute_http_url(url: str) -> None:
    with pytest.raises(InvalidMessage, match=r"invocation\.callback_url: not an absolute http or https URL"):
        parse_invocation(body(callback_url=url))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'"x"', b"\xff", b"{" * 100_000, b"[" * 100_000])
def test_what_is_not_a_json_object_is_refused(content: bytes) -> None:
    """TRA-1"""
    with pytest.raises(InvalidMessage, match=r"^invocation: "):
        parse_invocation(content)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"operation": ...}, "invocation.operation: missing; it is the name of the tool to run"),
        ({"operation": 3}, "invocation.operation: a number, must be a string; "),
        ({"arguments": [1]}, "invocation.arguments: an array, must be an object; "),
        ({"arguments": {"n": [float("nan")]}}, "invocation.arguments: holds a number that is not finite"),
    ],
)
def test_any_other_flaw_can_be_answered(fields: dict[str, Any], problem: str) -> None:
    """INV-10, INV-14"""
    answer = bad(call_id="fc_1", **fields)

    assert (answer.callback_url, answer.group_id, answer.id, answer.call_id) == (URL, "t1", "c1", "fc_1")
    assert answer.problem.startswith(problem)


@pytest.mark.parametrize("arguments", [..., None, {}])
def test_null_and_absent_arguments_are_no_arguments(arguments: Any) -> None:
    """Item 12 · INV-14"""
    invocation = parse_invocation(body(arguments=arguments))

    assert isinstance(invocation, Invocation)
    assert invocation.arguments == {}


@pytest.mark.parametrize(
    ("field", "sent", "used"),
    [
        ("call_id", 5, "5"),
        ("call_id", {}, None),
        ("user_id", 5, "5"),
        ("user_id", -12345678901234567890, "-12345678901234567890"),
        ("user_id", 1.5, None),
        ("user_id", True, None),
        ("user_id", "", None),
        ("user_id", "x" * 513, None),
        ("user_id", "a\nb", None),
        ("user_id", ["u1"], None),
        ("toolset_version", 7, "7"),
        ("toolset_version", [], None),
        ("thread_ancestors", ["root", 2], ("root", "2")),
        ("thread_ancestors", ["root", None], None),
        ("thread_ancestors", "root", None),
        ("thread_ancestors", ["x"] * 1001, None),
    ],
)
def test_an_optional_field_is_used_as_text_or_ignored_and_never_a_flaw(field: str, sent: Any, used: Any) -> None:
    """Item 12 · INV-14"""
    invocation = parse_invocation(body(**{field: sent}))

    assert isinstance(invocation, Invocation)
    assert getattr(invocation, field) == used
    assert invocation.arguments == parse_invocation(body()).arguments


def test_a_bad_invocation_keeps_the_usable_optional_fields_and_what_was_asked() -> None:
    """Item 12 · INV-10"""
    answer = bad(call_id=5, operation=["f"], arguments="x", user_id={})

    assert (answer.call_id, answer.operation, answer.arguments) == ("5", ["f"], "x")
    assert answer.problem.startswith("invocation.operation: an array, must be a string; ")
    assert "user_id" not in answer.problem


def test_the_callback_url_is_shown_nowhere() -> None:
    """SUB-9"""
    answer = bad(operation=3)

    assert "t0k3n" not in repr(answer) + answer.problem
    assert "t0k3n" not in repr(parse_invocation(body()))
    with pytest.raises(InvalidMessage) as refused:
        parse_invocation(body(callback_url=URL.replace("https", "ftp")))
    assert "t0k3n" not in str(refused.value)


def test_of_a_repeated_key_the_last_one_counts_also_in_a_bad_invocation() -> None:
    head = f'{{"id":"c0","callback_url":"{URL}","group_id":"t1","operation":'

    good = parse_invocation(f'{head}"f","arguments":{{"a":1}},"arguments":{{"a":2,"a":3}},"id":"c1"}}'.encode())
    answer = parse_invocation(f'{head}7,"id":"c1"}}'.encode())

    assert isinstance(good, Invocation)
    assert (good.id, good.arguments) == ("c1", {"a": 3})
    assert answer.id == "c1"
