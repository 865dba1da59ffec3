"""Signed tokens for URLs that are handed out and verified when they are used.

A token is `payload.signature`: the parts as JSON, and an HMAC-SHA256 over purpose and payload, both base64url. It hides nothing: a client
that has a token can read its parts. It only proves that we made it, for this purpose.
"""

import hashlib
import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence

from rapkit.errors import ConfigError

_LONGEST = 4096


class Signer:
    """Signs with the first key, recognises what was signed with any."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys:
            raise ConfigError("A signer needs at least one key.")
        self._keys = tuple(keys)
        self._named = {_name(key): key for key in keys}

    @property
    def newest(self) -> str:
        """The name of the key we sign with."""
        return next(iter(self._named))

    def sign(self, purpose: str, *parts: str, key: str = "") -> str:
        """A token of characters that need no escaping in a URL. The same parts always make the same token, until the keys change.

        With the name of a `key` it stays the same as long as that key is at hand, whatever keys have come before it.
        """
        payload = _encode(json.dumps(parts, separators=(",", ":")).encode())
        token = f"{payload}.{_signature(self._named.get(key, self._keys[0]), purpose, payload)}"
        if len(token) > _LONGEST:
            raise ValueError(f"A token of {len(token)} characters would not be read again; the limit is {_LONGEST}.")
        return token

    def read(self, purpose: str, token: str) -> tuple[str, ...] | None:
        """The parts that were signed for this purpose; None for anything else, whatever it is."""
        if len(token) > _LONGEST or not token.isascii():
            return None
        payload, _, signature = token.partition(".")
        # Compared as text, so that there is one spelling of a signature, and with every key, whichever fits.
        fits = [hmac.compare_digest(signature, _signature(key, purpose, payload)) for key in self._keys]
        if not any(fits):
            return None
        # From here on it is something we wrote ourselves.
        parts: list[str] = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return tuple(parts)


def _name(key: bytes) -> str:
    return hashlib.sha256(b"rapkit signer" + key).hexdigest()[:8]


def _signature(key: bytes, purpose: str, payload: str) -> str:
    # A payload contains no NUL, so the last one ends the purpose.
    return _encode(hmac.digest(key, f"{purpose}\0{payload}".encode(), "sha256"))


def _encode(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
