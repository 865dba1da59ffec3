"""An invocation as it is kept: who called, and the body exactly as it came.

The ids under which it is kept are hashes, so that no caller can choose one that collides with another's, whatever is in its fields.
"""

import hashlib
from base64 import urlsafe_b64encode
from dataclasses import dataclass

from rapkit.mailbox import NewBox
from rapkit.protocol import BadInvocation, Invocation, parse_invocation


def call_kind(toolset: str) -> str:
    """The kind of box an invocation is. Toolsets that share a store have calls of their own."""
    return f"call/{toolset}"


@dataclass(frozen=True, slots=True)
class Call:
    """A received invocation: to whom, and from which authenticated caller."""

    toolset: str
    caller: str
    message: Invocation | BadInvocation
    body: bytes

    @property
    def box_id(self) -> str:
        """The same (caller, callback_url, group_id, id) is the same box (INV-17)."""
        message = self.message
        return _digest("c", self.toolset, self.caller, message.callback_url, message.group_id, message.id)

    def to_box(self) -> NewBox:
        """The box to keep it in."""
        message = self.message
        return NewBox(
            id=self.box_id,
            kind=call_kind(self.toolset),
            state=b"\n".join((self.caller.encode(), self.body)),
            parent=thread_key(self.toolset, self.caller, message.group_id),
            name=message.id,
        )

    @classmethod
    def from_state(cls, toolset: str, state: bytes) -> "Call":
        """Read what `to_box` wrote."""
        caller, _, body = state.partition(b"\n")
        return cls(toolset, caller.decode(), parse_invocation(body), body)


def thread_key(toolset: str, caller: str, group_id: str) -> str:
    """The key of a thread: callers cannot reach each other's, even if they use the same group ids."""
    return _digest("t", toolset, caller, group_id)


def _digest(prefix: str, *parts: str) -> str:
    # No part contains a NUL: messages with control characters in their ids or URLs are refused before they get here.
    digest = hashlib.sha256("\0".join(parts).encode()).digest()
    return f"{prefix}_{urlsafe_b64encode(digest[:18]).decode()}"
