"""What the log says of requests from nobody knows whom."""

import base64
import logging
import secrets
from collections.abc import Mapping

import pytest
from starlette.types import Message, Scope

from rapkit.http.authentication import Callers
from rapkit.http.rejected_log import RejectedLog
from rapkit.http.requests import Refusal, read_request
from tests.log_records import ours

TOKEN = secrets.token_urlsafe(32)
SECRET = "whsec_" + base64.b64encode(secrets.token_bytes(24)).decode()
SIGNED = {"webhook-id": "m1", "webhook-timestamp": "1", "webhook-signature": "v1,none"}


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert all(each.levelno == logging.WARNING for each in ours(caplog))
    return [f"{each.message} {vars(each)['address']}" for each in ours(caplog)]


async def knock(callers: Callers, headers: Mapping[str, str], address: str | None = "192.0.2.1") -> None:
    async def receive() -> Message:
        return {"type": "http.request", "body": b"{}"}

    given = {"content-type": "application/json", "host": "127.0.0.1", **headers}
    scope: Scope = {
        "type": "http",
        "scheme": "http",
        "client": address and (address, 5),
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
    }
    with pytest.raises(Refusal) as refused:
        await read_request(scope, receive, callers, 100)
    assert refused.value.status == 401


@pytest.mark.parametrize(
    ("callers", "headers", "address", "why"),
    [
        (Callers({"anna": TOKEN}), {}, "192.0.2.1", "it has no token"),
        (Callers({"anna": TOKEN}), {"authorization": f"Bearer {TOKEN}x"}, "192.0.2.1", "its token is not known here"),
        (Callers({"anna": TOKEN}), {"authorization": f"Basic {TOKEN}"}, "192.0.2.1", "its token is not known here"),
        (Callers({"anna": TOKEN}), {}, None, "it has no token"),
        (Callers({}, {"anna": SECRET}), {}, "192.0.2.1", "it has no signature"),
        (Callers({}, {"anna": SECRET}), SIGNED, "192.0.2.1", "its signature is not good, or too old"),
        (Callers({}), {}, "192.0.2.1", "it comes from another machine, and no token is configured"),
        (
            Callers({}),
            {"host": "evil.example"},
            "127.0.0.1",
            "its Host is no loopback address, and no token is configured",
        ),
    ],
    ids=["none", "wrong", "other scheme", "socket", "unsigned", "wrongly signed", "another machine", "another name"],
)
async def test_whoever_is_not_known_is_told_of_without_what_was_shown(
    callers: Callers, headers: dict[str, str], address: str | None, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    await knock(callers, headers, address)

    assert lines(caplog) == [f"a request was refused with 401: {why} {address}"]
    assert not any(secret in repr(vars(each)) for each in ours(caplog) for secret in (TOKEN, SECRET))


async def test_whoever_tries_again_and_again_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    callers = Callers({"anna": TOKEN})
    for _ in range(100):
        await knock(callers, {})

    assert len(ours(caplog)) == 1


def test_an_address_is_told_of_once_a_minute_with_how_often_it_came(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    rejected_log = RejectedLog(lambda: now)
    for second in range(121):
        now = float(second)
        rejected_log.log_rejection("192.0.2.1", "why")

    assert lines(caplog) == [
        "a request was refused with 401: why 192.0.2.1",
        "a request was refused with 401: why; since the last of these lines, 59 more were 192.0.2.1",
        "a request was refused with 401: why; since the last of these lines, 59 more were 192.0.2.1",
    ]


def test_what_is_new_about_an_address_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Somebody who had no token, and has a wrong one now, sees that something has changed."""
    now = 0.0
    rejected_log = RejectedLog(lambda: now)
    rejected_log.log_rejection("192.0.2.1", "it has no token")
    now = 2.0
    rejected_log.log_rejection("192.0.2.1", "its token is not known here")

    assert len(ours(caplog)) == 2


def test_a_crowd_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    rejected_log = RejectedLog(lambda: now)
    for number in range(1000):
        now = number / 100
        rejected_log.log_rejection(f"2001:db8::{number:x}", "why")

    assert len(ours(caplog)) == 10


def test_an_address_that_is_none_takes_little_room(caplog: pytest.LogCaptureFixture) -> None:
    """A proxy passes on what it was told."""
    RejectedLog(lambda: 0.0).log_rejection("x" * 10_000, "why")

    assert len(lines(caplog)[0]) < 200
