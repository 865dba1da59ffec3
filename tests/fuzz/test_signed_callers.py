"""Callers who have to sign what they send, and limits on strangers."""

import json
import time

from hypothesis import strategies as st

from tests.fuzz.garbage import header_mutations, header_values, mutations, texts, values_of
from tests.fuzz.hunt import fewer_or_many, hunt
from tests.fuzz.signatures import CALLER_SECRET, STANDARD_SECRET, Signed, delivery, standard, stripe
from tests.fuzz.target import FEW_STRANGERS, Target
from tests.fuzz.wire import ask, request, talk

POSTS = ("/invoke", "/cancel_tool_call", "/close_thread")
NOTICE = b'{"thread_id": "t", "tool_call_id": "c"}'
UNSIGNED: Signed = {"Webhook-Id": None, "Webhook-Timestamp": None, "Webhook-Signature": None}
STAMPS = (
    *("", "0", "-1", "+1", "1.5", "1e9", "0x10", "\xd9\xa3", "nan", "inf", "9" * 11, "9" * 12, "9" * 5_000),
    *("2026-01-01T00:00:00Z", "\xb2", "1 000", "1_000", "true"),
)


def sign(body: bytes, secret: str = CALLER_SECRET) -> Signed:
    return standard(body, secret=secret)


@fewer_or_many
def test_any_signature(choosy: Target, examples: int) -> None:
    good = sign(NOTICE)

    def check(given: tuple[str, dict[str, str]]) -> None:
        path, headers = given
        raw = request("POST", path, NOTICE, {**good, **headers})
        assert ask(choosy.port, raw).status == 401

    stamps = st.integers().map(str).filter(lambda stamp: stamp != good["Webhook-Timestamp"]) | st.sampled_from(STAMPS)
    values = {
        "Webhook-Id": header_mutations(good["Webhook-Id"] or "") | header_values,
        "Webhook-Timestamp": stamps,
        "Webhook-Signature": header_values,
    }
    wrong = st.one_of(*(st.fixed_dictionaries({name: value}) for name, value in values.items()))
    hunt(examples, st.tuples(st.sampled_from(POSTS), wrong | st.fixed_dictionaries(values)), check)


@fewer_or_many
def test_a_signature_with_a_few_bytes_changed(choosy: Target, examples: int) -> None:
    """It proves nothing, or still the same: several may stand beside each other."""
    good = standard(
        NOTICE, secret=CALLER_SECRET, at=time.time() + 240
    )  # so that it is good until the longest hunt has ended
    signature = good["Webhook-Signature"] or ""

    def check(value: str) -> None:
        status = ask(
            choosy.port, request("POST", "/cancel_tool_call", NOTICE, {**good, "Webhook-Signature": value})
        ).status
        assert status == (200 if signature in value.split(" ") else 401)

    hunt(examples, header_mutations(f"{signature} {signature}"), check)


@fewer_or_many
def test_a_body_changed_after_it_was_signed(choosy: Target, examples: int) -> None:
    good = json.dumps(choosy.invocation()).encode()
    headers = sign(good)

    def check(given: tuple[str, bytes]) -> None:
        path, body = given
        assert choosy.post(path, body, headers).status == 401

    bodies = mutations(good).filter(lambda body: body != good)
    hunt(examples, st.tuples(st.sampled_from(POSTS), bodies), check)


@fewer_or_many
def test_any_body_that_was_signed(choosy: Target, examples: int) -> None:
    """Whoever is known may send what they like."""

    def check(given: tuple[str, bytes]) -> None:
        path, body = given
        assert choosy.post(path, body).status in (200, 400)

    bodies = st.binary(max_size=60) | values_of(texts).map(lambda value: json.dumps(value).encode())
    hunt(examples, st.tuples(st.sampled_from(POSTS), bodies | mutations(NOTICE)), check)


def test_signatures_that_are_none(choosy: Target) -> None:
    other = sign(NOTICE, STANDARD_SECRET)
    for path in POSTS:
        for headers in (
            *(UNSIGNED, other, {**sign(NOTICE), "Webhook-Id": None}, {**sign(NOTICE), "Webhook-Signature": None}),
            *({**sign(NOTICE), "Webhook-Timestamp": stamp} for stamp in STAMPS),
            *(
                {**sign(NOTICE), "Webhook-Signature": value}
                for value in ("v1,", "v1", "v1 ", "v1a,x", " ".join(["v1,x"] * 5_000))
            ),
            *({**UNSIGNED, "Authorization": value} for value in ("Bearer ", "Bearer x", "Basic eDp5", CALLER_SECRET)),
            {**UNSIGNED, "Authorization": f"Bearer {CALLER_SECRET}"},
        ):
            assert choosy.post(path, NOTICE, headers).status == 401, headers
        # Whose signature cannot be checked without the body is unauthenticated; an invocation is refused before that.
        large = ask(choosy.port, request("POST", path, b"x" * 2**21, sign(NOTICE)))
        assert large.status == (413 if path == "/invoke" else 401)


def test_headers_that_come_twice(choosy: Target) -> None:
    """One of them counts or none does, but they are never put together to something that proves more."""
    good = sign(NOTICE)
    for name in good:
        raw = request("POST", "/cancel_tool_call", NOTICE, {**good, name.lower(): "nonsense"})
        assert ask(choosy.port, raw).status in (200, 401)
        raw = request("POST", "/cancel_tool_call", NOTICE, {name.lower(): "nonsense", **good})
        assert ask(choosy.port, raw).status in (200, 401)


def test_the_metrics_are_for_callers(choosy: Target) -> None:
    assert ask(choosy.port, request("GET", "/metrics")).status == 401
    assert ask(choosy.port, request("GET", "/metrics", headers=sign(b"x"))).status == 401
    assert ask(choosy.port, request("GET", "/metrics", b"x", sign(b"x"))).status == 413
    answer = ask(choosy.port, request("GET", "/metrics", headers=sign(b"")))
    assert answer.status == 200
    assert b"rapkit_invocations_total" in answer.body


def test_a_flood_of_strangers_holds_up_nobody_who_is_known(choosy: Target) -> None:
    """Whatever strangers come for counts together. Neither callers nor sources are strangers, however much comes from them."""
    answer = request("POST", "/answer/x", b'{"id": "x", "selected": 0}')
    flood = (answer + request("GET", "/oauth/callback?state=x&code=y") + request("POST", "/hooks/github", b"{}")) * 5
    answers = [answer.check_page() for _ in range(10) for answer in talk(choosy.port, flood, expect=15)]
    refused = [n for n, answer in enumerate(answers) if answer.status == 503]

    assert len(answers) == 150
    assert {n % 3 for n in refused} == {0, 1, 2}
    assert {answers[n].headers["content-type"] for n in refused} == {"application/problem+json"}
    assert {answer.status for answer in answers} - {503} <= {400, 401, 404}
    for n in range(4 * FEW_STRANGERS):
        body = delivery("nobody hears", text=str(n))
        assert choosy.post("/hooks/stripe", body, {**UNSIGNED, **stripe(body)}).status == 200
    call = choosy.invoke("echo", text="still here")
    assert choosy.result(call).text == "still here"
