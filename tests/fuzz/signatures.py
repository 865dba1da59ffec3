"""How callers and sources sign, made from what the standards say and not from our own code."""

import base64
import hashlib
import hmac
import itertools
import json
import time
from collections.abc import Callable, Mapping

CALLER_SECRET, STANDARD_SECRET = ("whsec_" + base64.b64encode(new_mail * 24).decode() for new_mail in (b"c", b"s"))
GITHUB_SECRET, STRIPE_SECRET = "what GitHub knows", "what Stripe knows"

Signed = dict[str, str | None]

_numbers = itertools.count()


def github(body: bytes, *, id: str | None = None, secret: str = GITHUB_SECRET) -> Signed:
    return {
        "X-Hub-Signature-256": "sha256=" + _mac(secret.encode(), body).hex(),
        "X-GitHub-Delivery": id or f"delivery_{next(_numbers)}",
        "X-GitHub-Event": "push",
    }


def stripe(body: bytes, *, at: float | None = None, secret: str = STRIPE_SECRET) -> Signed:
    stamp = f"{time.time() if at is None else at:.0f}"
    return {"Stripe-Signature": f"t={stamp},v1={_mac(secret.encode(), stamp.encode() + b'.' + body).hex()}"}


def standard(body: bytes, *, id: str | None = None, at: float | None = None, secret: str = STANDARD_SECRET) -> Signed:
    name, stamp = id or f"msg_{next(_numbers)}", f"{time.time() if at is None else at:.0f}"
    mac = _mac(base64.b64decode(secret.removeprefix("whsec_")), f"{name}.{stamp}.".encode() + body)
    signature = "v1," + base64.b64encode(mac).decode()
    return {"Webhook-Id": name, "Webhook-Timestamp": stamp, "Webhook-Signature": signature}


SOURCES: Mapping[str, Callable[[bytes], Signed]] = {
    "/hooks/github": github,
    "/hooks/stripe": stripe,
    "/hooks/standard": standard,
}
"""Who sends to which webhook, and signs how."""


def delivery(topic: str, **more: object) -> bytes:
    """What a source sends: the webhooks of `tools.py` pass it on to the topic. `id` is for Stripe, whose ids are in the body."""
    return json.dumps({"id": f"event_{next(_numbers)}", "topic": topic, **more}).encode()


def _mac(key: bytes, signed: bytes) -> bytes:
    return hmac.new(key, signed, hashlib.sha256).digest()
