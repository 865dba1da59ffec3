"""Extract from a problem document the reason for a refusal, in a form that is safe to log.

The text is untrusted, and its sender has seen our secrets: what was sent to it in headers, and URLs with what they carry, are left out
of it, so is what is long enough to be a secret, and what is no text. Nothing is decided by it, and no model sees it (INV-7).
"""

import json
import re
from collections.abc import Iterable

from rapkit.printable import printable

PROBLEM = "application/problem+json"
LARGEST = 8 * 1024
_LONGEST = 400
_SHORTEST_SECRET = 8
_LEFT_OUT = "…"
_REST_OF_URL = re.compile(r"(https?://[^\s/?#]+)[/?#]\S*", re.IGNORECASE)
_OPAQUE = re.compile(r"\S{48,}")


def refusal_reason(document: bytes, sent: Iterable[str]) -> str | None:
    """The `detail` of a problem document (RFC 9457) in one short line; None if there is none. `sent` are values of our headers."""
    try:
        detail = json.loads(document)["detail"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(detail, str) or not detail.strip():
        return None
    text = " ".join(printable(detail[:LARGEST]).split())
    for secret in {word for value in sent for word in value.split() if len(word) >= _SHORTEST_SECRET}:
        text = text.replace(secret, _LEFT_OUT)
    text = _OPAQUE.sub(_LEFT_OUT, _REST_OF_URL.sub(rf"\1/{_LEFT_OUT}", text))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + _LEFT_OUT
