"""Answers to questions: at addresses that are none, with bodies that are none, and to questions that are closed."""

import json
import socket
from urllib.parse import quote

import pytest
from hypothesis import strategies as st

from rapkit.protocol.notices import LARGEST_INDEX
from tests.fuzz.garbage import ODD_BODIES, mutations, texts, values_of
from tests.fuzz.hunt import few_calls_or_many, fewer_or_many, hunt
from tests.fuzz.target import Sent, Target
from tests.fuzz.wire import DEADLINE, Answer, parse

LARGEST = 16 * 1024


class Questions:
    """There is always one that is open; whoever has answered it finds the next."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.call, self.token = target.asks()

    @property
    def good(self) -> bytes:
        return json.dumps({"id": self.call.id, "selected": 0}).encode()

    def post(self, body: bytes) -> Answer:
        """Answer. Only what is taken ends the call."""
        answer = self._target.post(f"/answer/{self.token}", body)
        if answer.status == 200:
            self.result = self._target.result(self.call).text
            self.call, self.token = self._target.asks()
        return answer

    def still_open(self) -> None:
        """What was sent until now was no answer, and one is still possible."""
        assert self._target.answer(self.token, self.call.id, 1).status == 200
        assert self._target.result(self.call).text == "right"


@fewer_or_many
def test_any_token(target: Target, examples: int) -> None:
    call, _ = target.asks()

    def check(token: bytes) -> None:
        assert target.answer(quote(token, safe=""), call.id, 0).status == 404

    base64 = st.text("abcXYZ019-_.=", max_size=200).map(str.encode)
    hunt(examples, st.binary(max_size=60) | base64 | texts.map(lambda text: text.encode(errors="replace")), check)


@fewer_or_many
def test_a_token_with_a_few_bytes_changed(target: Target, examples: int) -> None:
    questions = Questions(target)
    good = questions.token.encode()

    def check(token: bytes) -> None:
        assert target.answer(quote(token, safe=""), questions.call.id, 0).status == 404

    hunt(examples, mutations(good).filter(lambda token: token != good), check)
    questions.still_open()


def test_tokens_that_are_put_together(target: Target) -> None:
    (one, first), (_, second) = target.asks(), target.asks()
    _, state = target.acts()
    payload, _, signature = first.partition(".")
    other_payload, _, other_signature = second.partition(".")
    for token in (
        *(f"{payload}.{other_signature}", f"{other_payload}.{signature}", f"{payload}.", f".{signature}", payload, "."),
        *(
            f"{first}.",
            f"{first}.{second}",
            f"{first}{second}",
            f"{payload}={'.'}{signature}",
            f"{first}=",
            first.upper(),
        ),
        *(f"{first}/", f"/{first}", f"%00{first}", f"{first}%0a", f"{first}%20", f"../answer/{first}", f"{first}%3Fx"),
        *(state, "", "%2e%2e", "x" * 5_000, "x" * 60_000, "%ff" * 1_000, quote("ü" * 500)),
    ):
        assert target.answer(token, one.id, 0).status == (414 if len(token) > 8_000 else 404), token
    assert target.answer(f"{first}?token={second}", one.id, 0).status == 200
    assert target.result(one).text == "left"


@fewer_or_many
def test_any_body(target: Target, examples: int) -> None:
    questions = Questions(target)

    def check(body: bytes) -> None:
        assert questions.post(body).status in (400, 404)

    hunt(examples, st.binary(max_size=200) | values_of(texts).map(lambda value: json.dumps(value).encode()), check)
    questions.still_open()


@fewer_or_many
def test_a_good_answer_with_a_few_bytes_changed(target: Target, examples: int) -> None:
    questions = Questions(target)
    good = questions.good

    def check(body: bytes) -> None:
        # Written anew, because the call is another one once a change has changed nothing.
        assert questions.post(body.replace(good[8:20], questions.good[8:20])).status in (200, 400, 404)

    hunt(examples, mutations(good), check)
    questions.still_open()


@few_calls_or_many
def test_only_whole_numbers_are_choices_and_only_two_of_them_the_right_ones(target: Target, examples: int) -> None:
    """CHO-2: what is no number is refused; a choice there is none of is an error of the call."""
    questions = Questions(target)
    edges = st.sampled_from((0, 1, 2, -1, True, False, 0.0, 1.0, "0", "1", "", None, LARGEST_INDEX, LARGEST_INDEX + 1))
    selections = edges | st.integers() | values_of(texts)

    def check(selected: object) -> None:
        answer = questions.post(json.dumps({"id": questions.call.id, "selected": selected}).encode())
        if type(selected) is not int or abs(selected) > LARGEST_INDEX:
            assert answer.status == 400
            return
        assert answer.status == 200
        if selected in (0, 1):
            assert questions.result == ("left", "right")[selected]
        else:
            assert questions.result is not None
            assert questions.result.startswith("Error: ")

    hunt(examples, selections, check)
    questions.still_open()


@fewer_or_many
def test_any_id_but_that_of_the_call(target: Target, examples: int) -> None:
    questions = Questions(target)

    def check(id: object) -> None:
        assert questions.post(json.dumps({"id": id, "selected": 0}).encode()).status in (400, 404)

    close = st.sampled_from((questions.call.group_id, questions.call.id.upper(), f"{questions.call.id} ", "", None, 0))
    hunt(examples, texts | close, check)
    questions.still_open()


def test_another_call_s_id_opens_nothing(target: Target) -> None:
    (one, first), (other, second) = target.asks(), target.asks()
    assert target.answer(first, other.id, 0).status == 404
    assert target.answer(second, one.id, 0).status == 404

    assert target.answer(first, one.id, 0).status == 200
    assert target.answer(second, other.id, 1).status == 200
    assert (target.result(one).text, target.result(other).text) == ("left", "right")


def test_odd_bodies(target: Target) -> None:
    questions = Questions(target)
    large = questions.good.replace(b"{", b"{" + b" " * LARGEST)
    deep = questions.good.replace(b"}", b', "x": ' + b"[" * 5_000 + b"]" * 5_000 + b"}")
    twice = questions.good.replace(b"}", b', "selected": "no"}')
    for body in (*ODD_BODIES.values(), large, deep, twice):
        assert questions.post(body).status == (413 if len(body) > LARGEST else 400), body[:100]
    questions.still_open()


@pytest.mark.parametrize("how", ["answered", "cancelled", "closed", "expired"])
def test_a_question_whose_call_has_ended(target: Target, how: str) -> None:
    call = target.invoke("ask", **({"expires_in": 0.001} if how == "expired" else {}))
    token = target.token(target.question(call))
    match how:
        case "answered":
            assert target.answer(token, call.id, 0).status == 200
        case "cancelled":
            target.cancel(call)
        case "closed":
            target.close(call.group_id)
    text = target.result(call).text

    for body in (b"", b"null", b"{}", *(json.dumps({"id": id, "selected": 1}).encode() for id in (call.id, "other"))):
        answer = target.post(f"/answer/{token}", body)
        # A repetition is recognised for some time.
        assert answer.status in ((200, 400, 410) if how == "answered" else (400, 404, 410))
    assert target.result(call).text == text


def test_many_answers_at_once_are_one(target: Target) -> None:
    """The first counts, and whoever was second is told the same."""
    call, token = target.asks()
    raw = _raw_answers(call, token)
    connections = [socket.create_connection(("127.0.0.1", target.port), timeout=DEADLINE) for _ in raw]
    try:
        for connection, sent in zip(connections, raw, strict=True):
            connection.sendall(sent)
        statuses = {_status(connection) for connection in connections}
    finally:
        for connection in connections:
            connection.close()

    assert statuses == {200}
    assert target.result(call).text in ("left", "right")


def _raw_answers(call: Sent, token: str) -> list[bytes]:
    bodies = [json.dumps({"id": call.id, "selected": n % 2}).encode() for n in range(20)]
    head = f"POST /answer/{token} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(bodies[0])}\r\n\r\n".encode()
    return [head + body for body in bodies]


def _status(connection: socket.socket) -> int:
    received = b""
    while not (answers := parse(received)[0]):
        received += connection.recv(1000)
    return answers[0].check().status
