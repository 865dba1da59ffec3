import base64
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from rapkit.delivery.signatures import headers, verify
from rapkit.errors import ConfigError

OLD = "whsec_" + base64.b64encode(b"o" * 24).decode()
NEW = "whsec_" + base64.b64encode(b"n" * 32).decode()
BODY = '{"type":"tool_result","text":"Grüße"}'.encode()
NOW = 1_700_000_000.0


def test_without_a_secret_a_message_still_has_an_id_and_a_time() -> None:
    assert headers("msg_1", 1_700_000_000.9, BODY) == {"webhook-id": "msg_1", "webhook-timestamp": "1700000000"}


def test_the_signature_is_the_one_the_standard_gives_as_example() -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

    signed = headers("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}', [secret])

    assert signed["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_another_implementation_accepts_our_signature() -> None:
    signed = headers("msg_1", time.time(), BODY, [NEW])

    assert Webhook(NEW).verify(BODY, signed) == {"type": "tool_result", "text": "Grüße"}


def test_while_secrets_rotate_both_sides_need_only_one_in_common() -> None:
    both = headers("msg_1", NOW, BODY, [OLD, NEW])

    assert len(both["webhook-signature"].split(" ")) == 2
    assert verify(both, BODY, [OLD], NOW)
    assert verify(both, BODY, [NEW], NOW)
    assert verify(headers("msg_1", NOW, BODY, [OLD]), BODY, [NEW, OLD], NOW)
    assert not verify(headers("msg_1", NOW, BODY, [OLD]), BODY, [NEW], NOW)


def test_header_names_are_compared_without_regard_to_case() -> None:
    signed = {name.title(): value for name, value in headers("msg_1", NOW, BODY, [NEW]).items()}

    assert verify(signed, BODY, [NEW], NOW)


def test_a_changed_id_time_or_body_is_noticed() -> None:
    signed = headers("msg_1", NOW, BODY, [NEW])

    assert not verify(signed, BODY + b" ", [NEW], NOW)
    assert not verify(signed | {"webhook-id": "msg_2"}, BODY, [NEW], NOW)
    assert not verify(signed | {"webhook-timestamp": "1700000001"}, BODY, [NEW], NOW)


@pytest.mark.parametrize(
    ("age", "accepted"), [(0, True), (300, True), (301, False), (-300, True), (-301, False), (1e9, False)]
)
def test_a_message_is_accepted_only_near_its_time(age: float, accepted: bool) -> None:
    """CB-12."""
    assert verify(headers("msg_1", NOW, BODY, [NEW]), BODY, [NEW], NOW + age, tolerance=300) is accepted


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_missing_header_is_a_no(name: str) -> None:
    signed = headers("msg_1", NOW, BODY, [NEW])
    del signed[name]

    assert not verify(signed, BODY, [NEW], NOW)


def test_without_secrets_nothing_is_verified() -> None:
    assert not verify(headers("msg_1", NOW, BODY), BODY, [], NOW)
    assert not verify(headers("msg_1", NOW, BODY, [NEW]), BODY, [], NOW)


def test_a_body_that_is_not_text_is_a_no() -> None:
    assert not verify(headers("msg_1", NOW, b"{}", [NEW]), b"\xff\xfe", [NEW], NOW)


@given(st.text(), st.one_of(st.text(), st.just("1700000000")), st.text(), st.binary())
def test_nothing_a_stranger_sends_raises(message_id: str, stamp: str, signature: str, body: bytes) -> None:
    given = {"webhook-id": message_id, "webhook-timestamp": stamp, "webhook-signature": signature}

    assert not verify(given, body, [NEW], NOW)


@pytest.mark.parametrize(
    "odd",
    [
        {"webhook-id": "\ud800"},
        {"webhook-timestamp": "9" * 5000},
        {"webhook-timestamp": "1700000000.0"},
        {"webhook-timestamp": "-1700000000"},
        {"webhook-timestamp": "\u0661"},
        {"webhook-signature": "v1,\ud800"},
        {"webhook-signature": "v1"},
        {"webhook-signature": "v1,,, v2,x"},
    ],
)
def test_a_header_of_odd_shape_is_a_no(odd: dict[str, str]) -> None:
    assert not verify(headers("msg_1", NOW, BODY, [NEW]) | odd, BODY, [NEW], NOW)


@pytest.mark.parametrize(
    "secret",
    ["", "whsec_", "hunter2", "whsec_" + "!" * 40, "whsec_c2hvcnQ=", OLD[:20] + " " + OLD[20:], "whsec_" + "A" * 200],
)
def test_a_secret_that_is_none_says_how_to_make_one(secret: str) -> None:
    with pytest.raises(ConfigError, match="openssl rand -base64 32") as caught:
        headers("msg_1", NOW, BODY, [secret])

    assert secret not in str(caught.value) or secret in ("", "whsec_")


def test_prefix_and_padding_are_optional() -> None:
    padded = "whsec_" + base64.b64encode(b"n" * 32).decode()
    bare = padded.removeprefix("whsec_").rstrip("=")

    assert headers("msg_1", NOW, BODY, [bare]) == headers("msg_1", NOW, BODY, [padded])
