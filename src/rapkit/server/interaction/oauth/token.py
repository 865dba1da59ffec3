"""A user's token from a provider, and how it is stored."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

# What an HTTP header can carry: authors put the token into one.
_USABLE = re.compile(r"[!-~]{1,16384}")


@dataclass(frozen=True, slots=True)
class Token:
    """An access token and what belongs to it. Its repr shows none of the secrets.

    `scopes` are those the provider gave, `asked` those we had asked for, `flow` the authorisation it comes from.
    """

    access_token: str = field(repr=False)
    refresh_token: str | None = field(default=None, repr=False)
    expires_at: float | None = None
    scopes: tuple[str, ...] = ()
    token_type: str = "bearer"  # noqa: S105 - a type, no password
    asked: tuple[str, ...] = ()
    flow: str = ""

    @classmethod
    def from_answer(cls, answer: object, asked: Sequence[str], now: float) -> "Token":
        """Read a token endpoint's answer. `ValueError`, without a word of it, if it has no usable token."""
        if not isinstance(answer, Mapping) or not _is_usable(answer.get("access_token")):
            raise ValueError("no usable access token")
        refresh_token = answer.get("refresh_token")
        scope, kind = answer.get("scope"), answer.get("token_type")
        return cls(
            access_token=answer["access_token"],
            refresh_token=refresh_token if _is_usable(refresh_token) else None,
            expires_at=_expiry(answer.get("expires_in"), now),
            # Separated by spaces; by commas at GitHub. Not said: as asked for.
            scopes=tuple(re.split(r"[ ,]+", scope.strip()))
            if isinstance(scope, str) and scope.strip()
            else tuple(asked),
            token_type=kind.lower() if isinstance(kind, str) else "bearer",
            asked=tuple(asked),
        )

    def expired(self, now: float, margin: float = 0.0) -> bool:
        """Whether it is over, or will be within `margin` seconds."""
        return self.expires_at is not None and self.expires_at - margin <= now

    def to_bytes(self) -> bytes:
        """For the store, which seals it."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, body: bytes) -> "Token":
        """Read what `to_bytes` wrote."""
        fields = json.loads(body)
        return cls(**{**fields, "scopes": tuple(fields["scopes"]), "asked": tuple(fields["asked"])})


def _is_usable(value: object) -> bool:
    return isinstance(value, str) and _USABLE.fullmatch(value) is not None


def _expiry(expires_in: object, now: float) -> float | None:
    # A number; a text with a number at some providers; 0 or nothing if it does not expire.
    try:
        seconds = float(expires_in) if isinstance(expires_in, int | float | str) else 0.0
    except (ValueError, OverflowError):
        return None
    return now + seconds if math.isfinite(seconds) and seconds > 0 else None
