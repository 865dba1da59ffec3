import json

import pytest

from rapkit.delivery.refusal_reason import refusal_reason

TOKEN = "a-token-of-some-length"


def said(detail: object, *sent: str) -> str | None:
    return refusal_reason(json.dumps({"title": "No", "detail": detail}).encode(), sent)


def test_the_reason_is_what_the_document_says_to_people() -> None:
    detail = "callback_url: http://127.0.0.1:8700 leads to 127.0.0.1, which is loopback."

    assert said(detail) == detail


@pytest.mark.parametrize(
    "document", [b"", b"no", b"{}", b"[]", b"null", b'{"detail": 5}', b'{"detail": " "}', b"[" * 5000, b"\xff"], ids=str
)
def test_what_is_no_problem_document_says_nothing(document: bytes) -> None:
    assert refusal_reason(document[:8192], ()) is None


@pytest.mark.parametrize(
    ("detail", "reason"),
    [
        (f"The token {TOKEN} is wrong.", "The token … is wrong."),
        (
            "http://127.0.0.1:8700/callback/abc.def is loopback; https://a.example?k=1 too",
            "http://127.0.0.1:8700/… is loopback; https://a.example/… too",
        ),
        (f"/callback/{'x' * 48} is loopback", "… is loopback"),
        ("one\nWARNING two\x1b[31m", "one WARNING two\N{REPLACEMENT CHARACTER}[31m"),
    ],
    ids=["token", "urls", "opaque", "controls"],
)
def test_what_is_secret_and_what_is_no_text_is_left_out(detail: str, reason: str) -> None:
    assert said(detail, f"Bearer {TOKEN}", "1") == reason


def test_a_long_reason_is_cut() -> None:
    assert len(said("why " * 1000) or "") == 400
