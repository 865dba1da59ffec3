"""Names of tools as every provider takes them.

A RAP tool may be called `repo.issues.list`, up to 128 characters; providers take 64 letters, digits, `_` and `-`, and refuse the whole
question otherwise.
"""

import hashlib
import re

_TAKEN = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NOT_TAKEN = re.compile(r"[^A-Za-z0-9_-]")


def shown_name(name: str) -> str:
    """The name a provider is shown. It depends on the name alone, so a conversation reads the same whatever tools there are by then."""
    if _TAKEN.fullmatch(name):
        return name
    # The digest keeps `a.b` and `a_b` apart.
    return f"{_NOT_TAKEN.sub('_', name)[:55]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"
