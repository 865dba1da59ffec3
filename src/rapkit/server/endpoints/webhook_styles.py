"""Webhook styles: how each source signs and identifies its deliveries (SUB-7).

A style says whether a delivery was signed with one of the secrets and which id and event it carries. Nothing here raises, whatever a
client sends, and every signature is compared with every secret, so that the time taken tells nothing.
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rapkit.delivery import signatures
from rapkit.errors import InvalidMessage
from rapkit.server.endpoints.webhook_delivery import Delivery

_TOLERANCE = 300.0
_SECONDS = re.compile(r"[0-9]{1,11}")


@dataclass(frozen=True, slots=True)
class Style:
    """A way of signing. `check_secret` raises `ConfigError` for a secret nothing could be signed with."""

    proves: Callable[[Delivery, Sequence[str], float], bool]
    name: Callable[[Delivery], Delivery]
    check_secret: Callable[[str], None] = lambda _: None


def _github_proves(delivery: Delivery, secrets: Sequence[str], _now: float) -> bool:
    expected = ["sha256=" + _hmac(secret, delivery.body) for secret in secrets]
    return _any_fits(expected, [delivery.headers.get("x-hub-signature-256", "")])


def _github_name(delivery: Delivery) -> Delivery:
    return delivery.named(delivery.headers.get("x-github-delivery"), delivery.headers.get("x-github-event"))


def _stripe_proves(delivery: Delivery, secrets: Sequence[str], now: float) -> bool:
    # t=1492774577,v1=5257a8...,v1=... while secrets are rolled; v0 and whatever comes later prove nothing here.
    pairs = [pair.strip().partition("=") for pair in delivery.headers.get("stripe-signature", "").split(",")]
    times = [value for name, _, value in pairs if name == "t"]
    if len(times) != 1 or not _SECONDS.fullmatch(times[0]) or abs(now - int(times[0])) > _TOLERANCE:
        return False
    signed = times[0].encode() + b"." + delivery.body
    return _any_fits([_hmac(secret, signed) for secret in secrets], [value for name, _, value in pairs if name == "v1"])


def _stripe_name(delivery: Delivery) -> Delivery:
    return delivery.named(_text(delivery, "id"), _text(delivery, "type"))


def _standard_proves(delivery: Delivery, secrets: Sequence[str], now: float) -> bool:
    return signatures.verify(delivery.headers, delivery.body, secrets, now, _TOLERANCE)


def _standard_name(delivery: Delivery) -> Delivery:
    return delivery.named(delivery.headers.get(signatures.MESSAGE_ID), _text(delivery, "type"))


def _standard_secret(secret: str) -> None:
    signatures.headers("", 0, b"", [secret])


STYLES = {
    "github": Style(_github_proves, _github_name),
    "stripe": Style(_stripe_proves, _stripe_name),
    "standard": Style(_standard_proves, _standard_name, _standard_secret),
}
"""By what a tool author calls them."""


def _hmac(secret: str, signed: bytes) -> str:
    return hmac.new(secret.encode(errors="surrogateescape"), signed, hashlib.sha256).hexdigest()


def _any_fits(expected: Iterable[str], given: Sequence[str]) -> bool:
    theirs = [each.encode(errors="replace") for each in given]
    fits = [hmac.compare_digest(ours.encode(), each) for ours in expected for each in theirs]
    return any(fits)


def _text(delivery: Delivery, key: str) -> str | None:
    try:
        document: Any = delivery.json
    except InvalidMessage:
        return None  # whether it has to be JSON is the handler's business
    found = document.get(key) if isinstance(document, dict) else None
    return found if isinstance(found, str) else None
