"""Keys for what is kept secret at rest.

The first key seals, all of them open: put a new key in front and keep the old one as long as something sealed with it may be stored.
A sealed blob is `version | key id | nonce | ciphertext`, AES-256-GCM-SIV: random nonces, no limit on messages that matters.
"""

import base64
import binascii
import hashlib
import os
import secrets
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from rapkit.errors import ConfigError, WrongKey

VARIABLE = "RAPKIT_SECRET_KEY"
_VERSION = b"\x01"
_ID_BYTES = 4
_NONCE_BYTES = 12
_HEADER_BYTES = len(_VERSION) + _ID_BYTES
_MAKE_ONE = 'Make one with: python -c "import secrets; print(secrets.token_urlsafe(32))"'


class Keyring:
    """Seals with the first key, opens with any."""

    def __init__(self, *keys: bytes) -> None:
        if not keys:
            raise ConfigError(f"{VARIABLE} holds no key. {_MAKE_ONE}")
        for key in keys:
            if len(key) < 32:
                raise ConfigError(f"A secret key needs 32 bytes, this one has {len(key)}. {_MAKE_ONE}")
        self._keys = keys
        self._ciphers = {_key_id(key): AESGCMSIV(_derive(key, b"rapkit seal")) for key in keys}
        first = next(iter(self._ciphers))
        self._sealer = self._ciphers[first]
        self._header = _VERSION + first

    @classmethod
    def parse(cls, text: str) -> "Keyring":
        """Keys as base64, newest first, separated by commas or white space."""
        return cls(*(_decode(word) for word in text.replace(",", " ").split()))

    @classmethod
    def random(cls) -> "Keyring":
        """A key nobody else has: for what does not outlive the process."""
        return cls(secrets.token_bytes(32))

    def seal(self, plain: bytes) -> bytes:
        """Encrypt and authenticate."""
        nonce = os.urandom(_NONCE_BYTES)
        return self._header + nonce + self._sealer.encrypt(nonce, plain, None)

    def open(self, sealed: bytes) -> bytes:
        """Decrypt what `seal` made with any of the keys; `WrongKey` otherwise."""
        cipher = self._ciphers.get(sealed[len(_VERSION) : _HEADER_BYTES])
        if cipher is None or not sealed.startswith(_VERSION):
            raise WrongKey(
                f"Something in the store was sealed with a key that is not at hand. "
                f"If the key was changed, put the old one behind the new one in {VARIABLE}, separated by a comma."
            )
        nonce_end = _HEADER_BYTES + _NONCE_BYTES
        try:
            return cipher.decrypt(sealed[_HEADER_BYTES:nonce_end], sealed[nonce_end:], None)
        except (InvalidTag, ValueError):
            raise WrongKey("Something in the store was changed after it was sealed, or is damaged.") from None

    def derive(self, purpose: str) -> list[bytes]:
        """A key of its own for another purpose, one for each key here, newest first."""
        return [_derive(key, purpose.encode()) for key in self._keys]


def load_keyring(beside: Path | None) -> Keyring:
    """The keys of `RAPKIT_SECRET_KEY`; without it, of the file `<beside>.key`, made on first use and readable by its owner alone."""
    text = os.environ.get(VARIABLE)
    if text is not None:
        return Keyring.parse(text)
    if beside is None:
        return Keyring.random()
    path = beside.with_name(beside.name + ".key")
    if not path.exists():
        _make_key_file(path)
    return Keyring.parse(path.read_text())


def _make_key_file(path: Path) -> None:
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(base64.urlsafe_b64encode(secrets.token_bytes(32)) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        # A link fails if the file is there already: two processes that start together end up with one key.
        os.link(fresh, path)
    except FileExistsError:
        pass
    finally:
        fresh.unlink()


def _decode(word: str) -> bytes:
    try:
        return base64.b64decode(word.replace("-", "+").replace("_", "/") + "=" * (-len(word) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(f"A secret key is not base64. {_MAKE_ONE}") from None


def _derive(key: bytes, purpose: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=purpose).derive(key)


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(b"rapkit key id" + key).digest()[:_ID_BYTES]
