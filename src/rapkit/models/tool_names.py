"""Rewrite tool and argument names into a form that every provider accepts.

A RAP tool may be called `repo.issues.list`, up to 128 characters; providers take 64 letters, digits, `_` and `-`, and refuse the whole
question otherwise. An argument may be called anything; there they take a dot as well.
"""

import hashlib
import re

_TAKEN = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NOT_TAKEN = re.compile(r"[^A-Za-z0-9_-]")
_TAKEN_OF_ARGUMENTS = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def provider_name(name: str) -> str:
    """The name a provider is shown. It depends on the name alone, so a conversation reads the same whatever tools there are by then."""
    return name if _TAKEN.fullmatch(name) else _similar(name)


def provider_argument(name: str) -> str:
    """The name of an argument, or of something within one, as a provider is shown it; it depends on the name alone."""
    return name if _TAKEN_OF_ARGUMENTS.fullmatch(name) else _similar(name)


def _similar(name: str) -> str:
    # The digest keeps `a.b` and `a_b` apart.
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{_NOT_TAKEN.sub('_', name)[:55]}_{digest}"
