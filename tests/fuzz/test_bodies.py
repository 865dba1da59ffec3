"""Every endpoint that takes a body, with bodies nobody should send."""

import contextlib
import json
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import assume
from hypothesis import strategies as st

from tests.fuzz.hunt import few_or_many, hunt
from tests.fuzz.target import Target

NOTICES = ("/cancel_tool_call", "/close_thread")
POSTS = ("/invoke", *NOTICES)

texts = st.text(st.characters(exclude_categories=()), max_size=30)  # lone surrogates and NUL included
numbers = st.integers() | st.floats() | st.integers(min_value=10**300, max_value=10**400)
readable = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def values_of(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.none() | st.booleans() | numbers | texts,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
        max_leaves=15,
    )


def stays_here(body: bytes) -> bool:
    """Whether an invocation in it would be answered on this machine: a fuzzer must not make the server dial strangers."""

    def check(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        for key, value in pairs:
            if key == "callback_url" and isinstance(value, str):
                assume(_is_here(value))
        return dict(pairs)

    with contextlib.suppress(ValueError, RecursionError):
        json.loads(body, object_pairs_hook=check)
    return True


def _is_here(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
        return not url.lower().lstrip().startswith("http") or host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


@st.composite
def mutations(draw: st.DrawFn, good: bytes) -> bytes:
    """A good body with a few bytes changed, inserted, left out or doubled, or cut off."""
    body = bytearray(good)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(body)))
        match draw(st.sampled_from(("change", "insert", "leave out", "double", "cut"))):
            case "change" if at < len(body):
                body[at] = draw(st.integers(0, 255))
            case "insert":
                body[at:at] = draw(st.binary(max_size=6) | st.sampled_from((b'"', b"\\u0000", b"\\ud800", b"{", b"]")))
            case "leave out":
                del body[at : at + draw(st.integers(1, 20))]
            case "double":
                body[at:at] = body[at : at + draw(st.integers(1, 60))]
            case "cut":
                del body[at:]
    return bytes(body)


@few_or_many
@pytest.mark.parametrize("path", POSTS)
def test_any_bytes(target: Target, path: str, examples: int) -> None:
    def check(body: bytes) -> None:
        assert target.post(path, body).status in (200, 400)

    hunt(examples, st.binary(max_size=200).filter(stays_here), check)


@few_or_many
@pytest.mark.parametrize("path", POSTS)
def test_any_json(target: Target, path: str, examples: int) -> None:
    def check(value: object) -> None:
        assert target.post(path, json.dumps(value).encode()).status in (200, 400)

    hunt(examples, values_of(texts), check)


@few_or_many
@pytest.mark.parametrize("path", POSTS)
def test_good_messages_with_a_few_bytes_changed(target: Target, path: str, examples: int) -> None:
    invocation = target.invocation(call_id="second", thread_ancestors=["root"], user_id="u1")
    notice = {"thread_id": "thread_x", "tool_call_id": "call_x"}
    good = json.dumps(invocation if path == "/invoke" else notice).encode()

    def check(body: bytes) -> None:
        assume(stays_here(body))
        assert target.post(path, body).status in (200, 400)

    hunt(examples, mutations(good), check)


@few_or_many
def test_a_wrong_invocation_that_can_be_answered_is_accepted_and_answered(target: Target, examples: int) -> None:
    """INV-10: errors travel by callback, not by status."""
    values = values_of(
        readable
    )  # with half a character in it the whole is not UTF-8, and nobody can read the ids either
    known = st.sampled_from(("echo", "total", "picky", "plain", "nothing"))
    arguments = st.dictionaries(
        st.sampled_from(("text", "numbers", "word", "times", "size")) | readable, values, max_size=5
    )
    changes = st.fixed_dictionaries(
        {"operation": known | values, "arguments": arguments | values},
        optional={
            "call_id": readable | values,
            "thread_ancestors": st.lists(readable, max_size=3) | values,
            "user_id": readable | values,
            "extra": values,
        },
    )

    def check(changed: dict[str, Any]) -> None:
        message = target.invocation(**changed)
        assert target.post("/invoke", json.dumps(message).encode()).status == 200
        result = target.result(message["group_id"], message["id"])
        assert result.text is not None
        assert "Traceback" not in result.text
        assert "File " not in result.text

    hunt(examples, changes, check)


@few_or_many
def test_an_invocation_that_cannot_be_answered_is_refused_in_words(target: Target, examples: int) -> None:
    """Only what could never be answered is refused with a status (the ids and the URL)."""
    field = st.sampled_from(("callback_url", "group_id", "id"))
    # No text that could be a URL of somebody else's machine.
    bad = st.none() | st.booleans() | st.integers() | st.floats() | st.lists(texts) | st.just("") | st.just("\ud800")

    def check(change: tuple[str, object]) -> None:
        key, value = change
        answer = target.post("/invoke", json.dumps(target.invocation(**{key: value})).encode())
        assert answer.status == 400
        assert key in answer.detail or "JSON" in answer.detail

    hunt(examples, st.tuples(field, bad), check)


@few_or_many
def test_any_ids(target: Target, examples: int) -> None:
    """What is accepted comes back exactly as it was sent; what is not accepted is a clear no."""

    def check(ids: tuple[str, str]) -> None:
        group_id, id = ids
        message = target.invocation(group_id=group_id, id=id)
        if target.post("/invoke", json.dumps(message).encode()).status == 200:
            assert target.result(group_id, id).text is not None
        for path in NOTICES:
            notice = {"thread_id": group_id, "tool_call_id": id}
            assert target.post(path, json.dumps(notice).encode()).status in (200, 400)

    hunt(examples, st.tuples(texts, texts), check)


CALLBACK_URLS = (
    "http://127.0.0.1:1/x",
    "http://127.0.0.1:0/",
    "http://127.0.0.1:99999/",
    "http://127.0.0.1:-1/",
    "http://127.0.0.1:٣/",
    "http://[::1]:1/",
    "http://[::1",
    "http://[::1%25lo]:1/",
    "http://user:password@127.0.0.1:1/",
    "http://localhost:1/\x00",
    "http://localhost:1/ü\u2028",
    "http://localhost:1/a b",
    "http://localhost:1/\r\nX-Injected: 1",
    "HTTP://LOCALHOST:1/",
    "http:///no-host",
    "http://",
    "http:127.0.0.1",
    "//127.0.0.1/x",
    "ftp://127.0.0.1/",
    "file:///etc/passwd",
    "unix:///var/run/docker.sock",
    "http://0x7f000001:1/",
    "http://2130706433:1/",
    "http://169.254.169.254/latest/meta-data",
    "http://10.0.0.1/",
    "http://localhost:1/" + "x" * 5000,
    "http://127.0.0.1:1/#fragment",
    "http://127.0.0.1:1?no=path",
    "javascript:alert(1)",
)


@pytest.mark.parametrize("url", CALLBACK_URLS)
def test_odd_callback_urls(target: Target, url: str) -> None:
    message = target.invocation(callback_url=url)
    assert target.post("/invoke", json.dumps(message).encode()).status in (200, 400)


GOOD_BUT = '{"operation": "echo", "id": "i", "group_id": "g", "callback_url": "http://127.0.0.1:1/", "arguments": %s}'

ODD_BODIES = {
    "nothing": b"",
    "a byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": "{}".encode("utf-16"),
    "not UTF-8": b'{"thread_id": "\xff\xfe"}',
    "overlong UTF-8": b'{"thread_id": "\xc0\xaf"}',
    "a lone surrogate": rb'{"thread_id": "\ud800", "tool_call_id": "\udfff", "id": "\ud800"}',
    "NUL bytes": b"\x00" * 1000,
    "NUL in ids": rb'{"thread_id": "\u0000", "tool_call_id": "\u0000"}',
    "NUL in arguments": (GOOD_BUT % r'{"text": "\u0000"}').encode(),
    "a surrogate in arguments": (GOOD_BUT % r'{"text": "\ud800"}').encode(),
    "keys twice": b'{"thread_id": "a", "thread_id": 1, "tool_call_id": "b", "tool_call_id": []}',
    "arguments twice": GOOD_BUT.replace("%s", '{}, "arguments": []').encode(),
    "NaN": (GOOD_BUT % '{"numbers": [NaN, Infinity, -Infinity]}').encode(),
    "numbers beyond floats": (GOOD_BUT % '{"numbers": [1e999, -1e999, 1E400]}').encode(),
    "an endless integer": (GOOD_BUT % ('{"numbers": [%s]}' % ("9" * 200_000))).encode(),
    "an endless fraction": (GOOD_BUT % ('{"numbers": [0.%s]}' % ("1" * 200_000))).encode(),
    "an endless exponent": (GOOD_BUT % ('{"numbers": [1e%s]}' % ("9" * 100_000))).encode(),
    "open brackets": b"[" * 500_000,
    "nested arrays": b"[" * 100_000 + b"]" * 100_000,
    "nested objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "nested arguments": (GOOD_BUT % ('{"text": ' + "[" * 5_000 + "]" * 5_000 + "}")).encode(),
    "nested in reason": (GOOD_BUT % ('{"text": ' + "[" * 100 + "]" * 100 + "}")).encode(),
    "many keys": (GOOD_BUT % json.dumps({f"key {n}": n for n in range(30_000)})).encode(),
    "a long key": (GOOD_BUT % json.dumps({"k" * 500_000: 1})).encode(),
    "a long operation": GOOD_BUT.replace("echo", "e" * 500_000).replace("%s", "{}").encode(),
    "long ids": json.dumps({"thread_id": "t" * 500_000, "tool_call_id": "c" * 500_000}).encode(),
    "a path": rb'{"thread_id": "../../../../etc/passwd", "tool_call_id": "..\\..\\"}',
    "SQL": b'{"thread_id": "x\'; DROP TABLE boxes; --", "tool_call_id": "\\" OR 1=1"}',
    "comments": b'{/* no */ "thread_id": "a"}',
    "single quotes": b"{'thread_id': 'a'}",
    "a comma too many": b'{"thread_id": "a",}',
    "two documents": b'{"thread_id": "a"}{"thread_id": "b"}',
    "blanks": b" " * 900_000,
    "a form": b"thread_id=a&tool_call_id=b",
    "XML": b"<?xml version='1.0'?><!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]><a>&b;</a>",
    "null": b"null",
    "a string": b'"invoke"',
    "one byte too many": b'"' + b"x" * (1024 * 1024 - 1) + b'"',
    "far too large": b"x" * (3 * 1024 * 1024),
}


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("body", ODD_BODIES.values(), ids=ODD_BODIES.keys())
def test_odd_bodies(target: Target, path: str, body: bytes) -> None:
    answer = target.post(path, body)
    if len(body) > 1024 * 1024:
        assert answer.status == 413
    else:
        assert answer.status in (200, 400)
