"""Resolve secrets that settings reference instead of containing."""

import os
from pathlib import Path

from rapkit.errors import ConfigError

_VARIABLES: set[str] = set()


def secret_variables() -> frozenset[str]:
    """The environment variables that secrets were read from: nothing for programs that we start."""
    return frozenset(_VARIABLES)


def read_secret(reference: str) -> str:
    """What `env:VARIABLE` or `file:path` refers to, without space or line breaks around it; anything else is the secret itself."""
    kind, separator, rest = reference.partition(":")
    if separator and kind == "env":
        value = os.environ.get(rest, "").strip()
        if not value:
            state = "empty" if rest in os.environ else "not set"
            raise ConfigError(f"The environment variable {rest} is {state}, and a secret is to come from it.")
        _VARIABLES.add(rest)
        return value
    if separator and kind == "file":
        try:
            return Path(rest).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"No secret can be read from {rest}: {error}.") from None
    return reference


def read_bearer(reference: str) -> str:
    """A secret that is to be sent as a bearer token; `ConfigError`, which does not repeat it, if no header can hold it."""
    token = read_secret(reference)
    if not (token.isascii() and token.isprintable()):
        raise ConfigError("The token cannot be sent: it has characters other than printable ASCII, such as a newline.")
    return token
