"""Users who come back from a provider, or pretend to."""

import json
import socket
from urllib.parse import quote, urlencode

import pytest
from hypothesis import strategies as st

from tests.fuzz.garbage import mutations, texts
from tests.fuzz.hunt import few_calls_or_many, fewer_or_many, hunt
from tests.fuzz.target import Target
from tests.fuzz.wire import DEADLINE, NOT_HTTP, Answer, parse, request, visit

CALLBACK = "/oauth/callback"


def come_back(target: Target, query: str) -> Answer:
    return visit(target.port, f"{CALLBACK}?{query}")


class Links:
    """There is always one that waits for its user."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.call, self.state = target.acts()

    def renew(self) -> None:
        self.call, self.state = self._target.acts()

    def still_works(self) -> None:
        """Nobody has used it until now."""
        page = come_back(self._target, f"state={self.state}&code=one")
        assert page.status == 200
        assert b"No access to nowhere was obtained." in page.body
        assert (
            _result(self._target, self)
            == "Error: nowhere: no token was given: no connection to it is possible. Try again later."
        )


def _result(target: Target, links: Links) -> str | None:
    return target.result(links.call).text


def _quoted(raw: bytes) -> str:
    """As it goes over the wire: what no request line can carry is escaped, the rest is not."""
    return "".join(chr(byte) if 33 <= byte < 127 else f"%{byte:02x}" for byte in raw)


@fewer_or_many
def test_any_query(target: Target, examples: int) -> None:
    """All who come with garbage see the same page, so nothing of it is on it."""
    links = Links(target)
    nothing = come_back(target, "")
    names = st.sampled_from(("state", "code", "error", "error_description", "iss", "scope", "state[]", "STATE")) | texts
    fields = st.lists(st.tuples(names, texts), max_size=6)
    queries = fields.map(lambda each: urlencode(each, errors="replace")) | st.binary(max_size=80).map(_quoted)
    raw = st.text(st.characters(min_codepoint=33, max_codepoint=255, exclude_characters="\x7f"), max_size=60)

    def check(query: str) -> None:
        page = come_back(target, query)
        assert page.status == 400
        assert page.body == nothing.body or json.loads(page.body)["detail"] == NOT_HTTP

    hunt(examples, queries | raw, check)
    links.still_works()


@fewer_or_many
def test_a_state_with_a_few_bytes_changed(target: Target, examples: int) -> None:
    links = Links(target)
    good = links.state.encode()

    def check(state: bytes) -> None:
        assert come_back(target, f"state={quote(state, safe='')}&code=x").status == 400

    hunt(examples, mutations(good).filter(lambda state: state != good), check)
    links.still_works()


@few_calls_or_many
def test_a_good_query_with_a_few_bytes_changed(target: Target, examples: int) -> None:
    """Whatever comes of it: if the state is still the right one it was used, and the call is told."""
    links = Links(target)

    def check(change: bytes) -> None:
        page = come_back(target, _quoted(change.replace(b"STATE", links.state.encode())))
        assert page.status in (200, 400)
        if page.status == 200:
            text = _result(target, links)
            assert text is not None
            assert text.startswith("Error: nowhere: ")
            links.renew()

    hunt(examples, mutations(b"code=abc&state=STATE&scope=a+b&iss=%C3%BC"), check)
    links.still_works()


@few_calls_or_many
def test_the_right_state_with_any_code_or_error(target: Target, examples: int) -> None:
    """OAU-2: the flow ends, once, and neither what came nor the state is shown to anybody."""

    def check(fields: dict[str, str]) -> None:
        call, state = target.acts()
        query = urlencode({"state": state, **fields}, errors="replace")
        page = come_back(target, query)
        if not (fields.get("code") or fields.get("error")):
            assert page.status == 400  # a field without a value is none
            return
        assert page.status == 200
        assert b"No access" in page.body or b"You declined" in page.body
        assert state.encode() not in page.body
        text = target.result(call).text
        assert text is not None
        assert text.startswith("Error: nowhere: ")
        assert all(len(value) < 12 or value not in text for value in fields.values())
        assert come_back(target, query).status == 410

    known = st.sampled_from(("access_denied", "server_error", "invalid_scope", "temporarily_unavailable", ""))
    codes = st.fixed_dictionaries({"code": texts}, optional={"error": known | texts, "error_description": texts})
    hunt(examples, codes | st.fixed_dictionaries({"error": known | texts}), check)


def test_queries_that_are_none(target: Target) -> None:
    links = Links(target)
    _, token = target.asks()
    good = f"state={links.state}"
    for query in (
        *(good, "code=x", f"{good}{links.state}&code=x", f"state={token}&code=x"),
        *(f"{good}&code=x&{good}", f"{good}&state=&{good}&code=x", f"{good}&code=x&code=x", f"{good}&error=a&error=b"),
        *(f"{good}%00&code=x", f"state=%20{links.state}&code=x", f"{good}+&code=x", f"{good};code=x"),
        *(f"{good}&code=%ff%fe", f"{good}&code=%ED%A0%80", f"{good}&code=\xff", f"{good}&code=x&%ff=%ff"),
        *(f"{good}&code=x{'&a=b' * 50}", f"{'&' * 1_000}{good}&code=x", f"{good}&code={'x' * 17_000}"),
        *(f"state={'x' * 17_000}&code=x", f"state={'x' * 60_000}&code=x"),
    ):
        assert come_back(target, query).status == (414 if len(query) > 8_000 else 400), query
    links.still_works()


@pytest.mark.parametrize("how", ["used", "declined", "cancelled", "closed"])
def test_a_link_whose_call_has_ended(target: Target, how: str) -> None:
    links = Links(target)
    match how:
        case "used":
            assert come_back(target, f"state={links.state}&code=x").status == 200
        case "declined":
            assert come_back(target, f"state={links.state}&error=access_denied").status == 200
        case "cancelled":
            target.cancel(links.call)
        case "closed":
            target.close(links.call.group_id)
    assert _result(target, links)

    for query in (f"state={links.state}&code=x", f"code=y&state={links.state}", f"state={links.state}&error=z"):
        assert come_back(target, query).status == 410


def test_many_who_come_back_at_once_are_one(target: Target) -> None:
    links = Links(target)
    raw = request("GET", f"{CALLBACK}?state={links.state}&code=x")
    connections = [socket.create_connection(("127.0.0.1", target.port), timeout=DEADLINE) for _ in range(10)]
    try:
        for connection in connections:
            connection.sendall(raw)
        statuses = [_page(connection).status for connection in connections]
    finally:
        for connection in connections:
            connection.close()

    assert statuses.count(200) == 1
    assert set(statuses) <= {200, 410, 503}
    assert _result(target, links)


def _page(connection: socket.socket) -> Answer:
    received = b""
    while not (answers := parse(received)[0]):
        received += connection.recv(65536)
    return answers[0].check_page()


def test_a_link_that_is_merely_looked_at_still_works(target: Target) -> None:
    links = Links(target)
    for method in ("HEAD", "POST", "PUT", "OPTIONS"):
        raw = request(method, f"{CALLBACK}?state={links.state}&code=x", b"{}")
        with socket.create_connection(("127.0.0.1", target.port), timeout=DEADLINE) as connection:
            connection.sendall(raw)
            assert connection.recv(100).startswith(b"HTTP/1.1 405 ")
    links.still_works()
