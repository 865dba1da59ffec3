"""Every endpoint that takes a body, with bodies nobody should send."""

import contextlib
import json
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import assume
from hypothesis import strategies as st

from tests.fuzz.garbage import ODD_BODIES, mutations, readable, texts, values_of
from tests.fuzz.hunt import few_or_many, hunt
from tests.fuzz.target import Sent, Target

NOTICES = ("/cancel_tool_call", "/close_thread")
POSTS = ("/invoke", *NOTICES)


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
        result = target.result(target.send(message))
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
            assert target.result(Sent(group_id, id)).text is not None
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


@pytest.mark.parametrize("operation", ["echo", "ask", "act", "count", "news", "wait_for_ever"])
def test_odd_callback_urls(target: Target, operation: str) -> None:
    arguments = {"text": "x"} if operation == "echo" else {"topic": "x"} if operation == "news" else {}
    for url in CALLBACK_URLS:
        message = target.invocation(operation=operation, arguments=arguments, callback_url=url)
        assert target.post("/invoke", json.dumps(message).encode()).status in (200, 400), url
        target.close(message["group_id"])


@pytest.mark.parametrize("body", ODD_BODIES.values(), ids=ODD_BODIES.keys())
def test_odd_bodies(target: Target, body: bytes) -> None:
    for path in POSTS:
        refusal = 413 if len(body) > 1024 * 1024 else 400
        allowed = (refusal, 200) if refusal == 400 or path != "/invoke" else (refusal,)
        assert target.post(path, body).status in allowed, path
