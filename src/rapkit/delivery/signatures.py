"""The Standard Webhooks headers: sign messages, and verify who sent one and which one it is.

The id stays the same over retries, so a receiver can tell one event delivered twice from two equal events. The
signature covers id, timestamp and body; several secrets give several signatures, so that secrets can be rotated
without losing a message.
"""

import base64
import hmac
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum

from standardwebhooks import Webhook

from rapkit.errors import ConfigError

MESSAGE_ID = "webhook-id"
TIMESTAMP = "webhook-timestamp"
SIGNATURE = "webhook-signature"

_PREFIX = "whsec_"
_SECONDS = re.compile(r"[0-9]{1,11}")


def headers(message_id: str, timestamp: float, body: bytes, secrets: Sequence[str] = ()) -> dict[str, str]:
    """The headers for one attempt: always id and timestamp, and a signature for every secret."""
    found = {MESSAGE_ID: message_id, TIMESTAMP: str(math.floor(timestamp))}
    if secrets:
        found[SIGNATURE] = " ".join(_sign(secret, message_id, timestamp, body) for secret in secrets)
    return found


class SignatureCheck(StrEnum):
    """The result of checking a signature."""

    GOOD = "good"
    STALE = "stale"
    """Signed with one of the secrets, but too long ago, or by a clock that is ahead."""
    BAD = "bad"


class IncomingSignature:
    """A message that may come in pieces, and the signature that goes with it.

    Anything missing or malformed is a plain no, whatever is sent. Without secrets nothing is ever verified.
    """

    def __init__(self, headers: Mapping[str, str], secrets: Sequence[str]) -> None:
        given = {name.lower(): value for name, value in headers.items()}
        message_id, self._stamp = given.get(MESSAGE_ID, ""), given.get(TIMESTAMP, "")
        self._is_readable = bool(message_id and message_id.isascii() and _SECONDS.fullmatch(self._stamp))
        self._given = [signature.encode(errors="replace") for signature in given.get(SIGNATURE, "").split(" ")]
        start = f"{message_id}.{self._stamp}.".encode(errors="replace")
        self._digests = [hmac.new(_key(secret), start, "sha256") for secret in secrets]

    def update(self, part: bytes) -> None:
        """The next piece of the body."""
        for digest in self._digests:
            digest.update(part)

    def check(self, now: float, tolerance: float = 300.0) -> SignatureCheck:
        """Whether all of it was signed with one of the secrets, no more than `tolerance` seconds away from `now`."""
        expected = [b"v1," + base64.b64encode(digest.digest()) for digest in self._digests]
        # Every pair is compared, so that the time taken does not tell which secret matched.
        matches = [hmac.compare_digest(ours, theirs) for ours in expected for theirs in self._given]
        if not self._is_readable or not any(matches):
            return SignatureCheck.BAD
        return SignatureCheck.GOOD if abs(now - int(self._stamp)) <= tolerance else SignatureCheck.STALE


def verify(
    headers: Mapping[str, str], body: bytes, secrets: Sequence[str], now: float, tolerance: float = 300.0
) -> bool:
    """Whether the message was signed with one of the secrets, no more than `tolerance` seconds away from `now`."""
    signed = IncomingSignature(headers, secrets)
    signed.update(body)
    return signed.check(now, tolerance) is SignatureCheck.GOOD


def _sign(secret: str, message_id: str, timestamp: float, body: bytes) -> str:
    moment = datetime.fromtimestamp(math.floor(timestamp), tz=UTC)
    return Webhook(_key(secret)).sign(message_id, moment, body.decode())


def _key(secret: str) -> bytes:
    # Decoded here, because the library skips characters that are not base64: a typo would sign with another key.
    try:
        text = secret.removeprefix(_PREFIX)
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        key = b""
    if not 24 <= len(key) <= 64:
        raise ConfigError(
            "A webhook secret is 'whsec_' and 24 to 64 random bytes in base64, and this one is not.\n"
            'Make one with: echo "whsec_$(openssl rand -base64 32)"'
        )
    return key
