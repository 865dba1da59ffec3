"""A pending authorisation: what is stored between the link sent to the user and the redirect back."""

import json
import secrets
from dataclasses import asdict, dataclass, field

from rapkit.mailbox import Fact, Record

REDIRECT_PATH = "/oauth/callback"
"""Where providers send users back to, below the server's address."""
FLOW = "oauth"
"""Records of flows, beside the call that waits, by the flow's key."""
_WAITER = "waiter"


@dataclass(frozen=True, slots=True)
class PendingFlow:
    """Whose authorisation at which provider, and what proves that a code was meant for us."""

    provider: str
    user: str
    redirect_uri: str
    expires_at: float
    verifier: str = field(repr=False)

    def to_bytes(self) -> bytes:
        """For the store, which seals it."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, body: bytes) -> "PendingFlow":
        """Read what `to_bytes` wrote."""
        return cls(**json.loads(body))


@dataclass(frozen=True, slots=True)
class Flow:
    """What to commit and what to send, so that the user can authorise us.

    `record` belongs beside the call, and is to be written in the commit that sends the link; `waiter` beside the user, before that.
    """

    auth_url: str = field(repr=False)
    record: Record = field(repr=False)
    waiter: Fact


@dataclass(frozen=True, slots=True)
class Waiter:
    """A call that waits for a user's authorisation."""

    box: str
    flow: str


def state_purpose(toolset: str) -> str:
    """What the states of a toolset's flows are signed for: toolsets that share a store cannot complete each other's."""
    return f"oauth/{toolset}"


def new_verifier() -> str:
    """A PKCE code verifier (RFC 7636): 43 characters, 256 bits."""
    return secrets.token_urlsafe(32)


def waiter_kind(provider: str) -> str:
    """The kind of record, beside a user, of the calls that wait for them to authorise us there."""
    return f"{_WAITER}/{provider}"


def waiter_key(waiter: Waiter) -> str:
    """The key of such a record. The id of a box contains no slash."""
    return f"{waiter.box}/{waiter.flow}"


def read_waiter(key: str) -> Waiter:
    """Read what `waiter_key` wrote."""
    box, _, flow = key.partition("/")
    return Waiter(box, flow)
