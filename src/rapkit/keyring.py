"""The keyring: keys that encrypt secrets at rest.

The first key seals, all of them open: put a new key in front and keep the old one as long as something sealed with it may be stored.
A sealed blob is `version | key id | nonce | ciphertext`, AES-256-GCM-SIV: random nonces, no limit on messages that matters.
"""

import base64
import hashlib
import os
import secrets
from collections.abc import Callable
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
_LEAST_BYTES = 32
_MAKE_ONE = (
    "Set it to the key that the store was sealed with; for a new store, make one with: "
    'python -c "import secrets; print(secrets.token_urlsafe(32))"'
)
_TAG_BYTES = 16
SEAL_BYTES = _HEADER_BYTES + _NONCE_BYTES + _TAG_BYTES
"""How much longer something is when it is sealed."""


class Keyring:
    """Seals with the first key, opens with any."""

    def __init__(self, *keys: bytes) -> None:
        self._keys = keys
        self._ciphers = {_key_id(key): AESGCMSIV(_derive(key, b"rapkit seal")) for key in keys}
        first = next(iter(self._ciphers))
        self._sealer = self._ciphers[first]
        self._header = _VERSION + first

    @classmethod
    def parse(cls, text: str, source: str = VARIABLE, advice: str = _MAKE_ONE) -> "Keyring":
        """Keys as base64, newest first, separated by commas or white space.

        `ConfigError` names the source of a text that is none, and gives the advice; it does not repeat the text.
        """
        try:
            keys = [_decode(word) for word in text.replace(",", " ").split()]
        except ValueError:
            raise ConfigError(f"A key in {source} is not base64. {advice}") from None
        if not keys:
            raise ConfigError(f"{source} holds no key. {advice}")
        shortest = min(len(key) for key in keys)
        if shortest < _LEAST_BYTES:
            raise ConfigError(f"A key in {source} needs {_LEAST_BYTES} bytes, this one has {shortest}. {advice}")
        return cls(*keys)

    @classmethod
    def random(cls) -> "Keyring":
        """A random key, for what does not outlive the process."""
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


def key_file(store: Path) -> Path:
    """Where the key of a store is kept, unless `RAPKIT_SECRET_KEY` holds it."""
    return store.with_name(f"{store.name}.key")


def load_keyring(beside: Path | None, is_sealed: Callable[[], bool] = lambda: False) -> Keyring:
    """The keys of `RAPKIT_SECRET_KEY`; without it, of the file `<beside>.key`, made on first use and readable by its owner alone.

    `is_sealed` says whether the store holds something that only its own key opens. Then no key is made: `WrongKey` says which one is
    missing.
    """
    text = os.environ.get(VARIABLE)
    if text is not None:
        return Keyring.parse(text)
    if beside is None:
        return Keyring.random()
    path = key_file(beside)
    if not path.exists():
        # In this order: another process that makes the store right now has made its key before it seals anything.
        sealed = is_sealed()
        if not path.exists():
            if sealed:
                raise WrongKey(
                    f"{beside} was sealed with a key that is missing: there is no file {path}, and {VARIABLE} is not set. "
                    f"Restore {path} from a backup, or set {VARIABLE} to the key."
                )
            _make_key_file(path)
    return read_key_file(path)


def read_key_file(path: Path) -> Keyring:
    """The keys in a file; `FileNotFoundError` if it is missing, `ConfigError` with its name if no keys can be read from it."""
    advice = (
        f"Restore {path} from a backup, or set {VARIABLE} to the key. "
        "Only if nothing was stored with it yet, delete the file: a new key is made at the next start."
    )
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}). Check its owner and permissions.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text file. {advice}") from None
    return Keyring.parse(text, str(path), advice)


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
    return base64.b64decode(word.replace("-", "+").replace("_", "/") + "=" * (-len(word) % 4), validate=True)


def _derive(key: bytes, purpose: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=purpose).derive(key)


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(b"rapkit key id" + key).digest()[:_ID_BYTES]
