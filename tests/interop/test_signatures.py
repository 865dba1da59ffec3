"""Callbacks of a server whose signing secret our runtime knows (item 10)."""

import base64
import hashlib
import hmac
import json
import socket
import time
from collections.abc import Mapping

import pytest

from tests.interop.conftest import Join, Up
from tests.interop.foreign_server import ForeignServer, event, result
from tests.interop.http_peer import Json, eventually, get, post
from tests.interop.processes import OurRuntime

PLAN = """
- user: work
  calls: [work]
- answer: work
  say: "It is {answer}."
- say: Fine.
"""

OLD = "whsec_" + base64.b64encode(b"o" * 32).decode()
NEW = "whsec_" + base64.b64encode(b"n" * 32).decode()
ANOTHER = "whsec_" + base64.b64encode(b"x" * 32).decode()


def signature(body: bytes, *secrets: str, at: float | None = None, message_id: str = "m1") -> dict[str, str]:
    """Standard Webhooks headers, as their specification says."""
    stamp = str(int(time.time() if at is None else at))
    signed = f"{message_id}.{stamp}.".encode() + body
    keys = [base64.b64decode(secret.removeprefix("whsec_")) for secret in secrets]
    made = [f"v1,{base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()}" for key in keys]
    return {"webhook-id": message_id, "webhook-timestamp": stamp, "webhook-signature": " ".join(made)}


def waiting(up: Up, join: Join) -> tuple[OurRuntime, str, Json]:
    server = join(ForeignServer({"work": lambda call: []}))
    table = {"url": server.url, "webhook_secret": ["env:OLD_SECRET", "env:NEW_SECRET"]}
    runtime = up(PLAN, [table], None, {"OLD_SECRET": OLD, "NEW_SECRET": NEW})
    thread = runtime.thread("work")
    (call,) = server.invocations("work", 1)
    return runtime, thread, call


def send(call: Json, body: bytes, headers: Mapping[str, str]) -> int:
    return post(call["callback_url"], body, headers)[0]


@pytest.mark.parametrize("secrets", [(OLD,), (NEW,), (ANOTHER, NEW)], ids=["old", "new", "several"])
def test_a_signed_callback_is_taken(up: Up, join: Join, secrets: tuple[str, ...]) -> None:
    """Item 10: with any of the secrets, so that they can be rotated."""
    runtime, thread, call = waiting(up, join)
    body = json.dumps(result(call, "done")).encode()

    assert send(call, body, signature(body, *secrets)) == 200

    runtime.until(thread, "It is done.")


def test_a_callback_that_is_not_signed_settles_nothing_and_is_shown(up: Up, join: Join) -> None:
    """Item 10: 401 for one that is missing or wrong, whatever its body; the call goes on waiting, and the API says why."""
    runtime, thread, call = waiting(up, join)
    body = json.dumps(result(call, "forged")).encode()
    unusable = json.dumps({**result(call, "forged"), "text": 42}).encode()
    large = json.dumps(result(call, "x" * (17 * 1024 * 1024))).encode()

    assert send(call, body, {}) == 401
    assert send(call, body, signature(body, ANOTHER)) == 401
    assert send(call, body, signature(b"another body", NEW)) == 401
    assert send(call, unusable, {}) == 401
    assert send(call, large, {}) == 401

    (pending,) = runtime.look(thread)["pending_calls"]
    assert "401" in pending["callback_problem"]
    assert "result" not in [entry["kind"] for entry in runtime.history(thread)]
    assert send(call, large, signature(large, NEW)) == 413
    runtime.until(thread, "its answer was refused: it is too large.")
    eventually(lambda: not runtime.look(thread)["pending_calls"])


def test_events_that_are_not_signed_are_shown_until_one_is(up: Up, join: Join) -> None:
    """Item 10: the API says so of a subscription too, and says it no more once the server signs again or the call has ended."""
    runtime, thread, call = waiting(up, join)

    def say(message: Json, name: str, *secrets: str) -> int:
        body = json.dumps(message).encode()
        return send(call, body, signature(body, *secrets, message_id=name))

    assert say(result(call, "Watching.", subscription=True), "m1", NEW) == 200
    eventually(lambda: runtime.look(thread)["subscriptions"])

    assert say(event(call, "one"), "m2", ANOTHER) == 401
    assert "401" in runtime.look(thread)["subscriptions"][0]["callback_problem"]
    assert say(event(call, "two", associative=True), "m3", NEW) == 200
    eventually(lambda: runtime.look(thread)["subscriptions"][0]["callback_problem"] is None)


def test_a_signed_body_that_breaks_off_is_no_wrong_signature(up: Up, join: Join) -> None:
    """Item 10: a sender whose connection breaks sends it again, and nothing is shown as wrong with its secret."""
    runtime, thread, call = waiting(up, join)
    body = json.dumps(result(call, "x" * (17 * 1024 * 1024))).encode()
    lines = [f"{name}: {value}" for name, value in signature(body, NEW).items()]
    host, _, path = call["callback_url"].removeprefix("http://").partition("/")
    head = "\r\n".join([f"POST /{path} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(body)}", *lines, "", ""])
    name, _, port = host.partition(":")

    with socket.create_connection((name, int(port)), timeout=60) as connection:
        connection.sendall(head.encode() + body[: len(body) // 2])

    eventually(lambda: 'rapkit_callbacks_total{status="503"} 1' in get(f"{runtime.url}/metrics")[1].decode())
    assert runtime.look(thread)["pending_calls"][0]["callback_problem"] is None


def test_an_old_signature_is_asked_for_again(up: Up, join: Join) -> None:
    """Item 10: 503 for a good signature of another time: an honest sender signs each attempt anew, a replay has no effect."""
    runtime, thread, call = waiting(up, join)
    body = json.dumps(result(call, "done")).encode()

    assert send(call, body, signature(body, NEW, at=time.time() - 3600)) == 503
    assert send(call, body, signature(body, NEW, at=time.time() + 3600)) == 503
    assert send(call, body, signature(body, ANOTHER, at=time.time() - 3600)) == 401
    assert "result" not in [entry["kind"] for entry in runtime.history(thread)]

    assert send(call, body, signature(body, NEW)) == 200
    runtime.until(thread, "It is done.")


def test_a_server_without_a_secret_signs_nothing(up: Up, join: Join) -> None:
    """Item 10: each server has its own secret, or none."""
    silent = join(ForeignServer({"work": lambda call: [result(call, "done")]}))
    signing = join(ForeignServer({"other": lambda call: []}))
    runtime = up(PLAN, [silent.url, {"url": signing.url, "webhook_secret": NEW}])

    runtime.until(runtime.thread("work"), "It is done.")
