"""An invocation as it is stored: the caller, and the body exactly as received.

The ids under which it is kept are hashes, so that no caller can choose one that collides with another's, whatever is in its fields.
"""

import hashlib
from base64 import urlsafe_b64encode
from dataclasses import dataclass

from rapkit.mailbox import NewBox
from rapkit.protocol import BadInvocation, Invocation, parse_invocation
from rapkit.protocol.canonical_json import canonical_json
from rapkit.server.tools.checkpoint import Checkpoint


def call_kind(toolset: str) -> str:
    """The kind of box an invocation is. Toolsets that share a store have boxes of their own."""
    return f"call/{toolset}"


def subscription_kind(toolset: str) -> str:
    """The kind of box a confirmed subscription is."""
    return f"subscription/{toolset}"


def topic_kind(toolset: str) -> str:
    """The kind of box a topic with its subscribers is."""
    return f"topic/{toolset}"


def thread_kind(toolset: str) -> str:
    """The kind of box the resources of a thread are kept beside."""
    return f"thread/{toolset}"


@dataclass(frozen=True, slots=True)
class StoredCall:
    """A received invocation: its toolset, its authenticated caller, the base URL it came to, and its trace.

    `checkpoint` is the last one that its handler has stored.
    """

    toolset: str
    caller: str
    message: Invocation | BadInvocation
    body: bytes
    base_url: str = ""
    traceparent: str = ""
    checkpoint: Checkpoint | None = None

    @property
    def box_id(self) -> str:
        """The same (caller, callback_url, group_id, id) with the same operation and arguments is the same box (INV-17).

        With other contents it is another call: taken for a repetition it would be acknowledged and never answered. The version and the
        `call_id` are no part of it, because a sender that retries may have learnt another one.
        """
        message = self.message
        contents = canonical_json([message.operation, {} if message.arguments is None else message.arguments])
        return digest("c", self.toolset, self.caller, message.callback_url, message.group_id, message.id, contents)

    def to_box(self) -> NewBox:
        """The box to keep it in."""
        message = self.message
        return NewBox(
            id=self.box_id,
            kind=call_kind(self.toolset),
            state=self.to_state(),
            parent=self.thread_key,
            name=message.id,
            share=self.caller,
        )

    def to_state(self) -> bytes:
        """All of it as bytes."""
        # Neither names, nor what comes in headers, can hold a line break.
        checkpoint = b"" if self.checkpoint is None else self.checkpoint.to_line()
        return b"\n".join(
            (self.caller.encode(), self.base_url.encode(), self.traceparent.encode(), checkpoint, self.body)
        )

    @classmethod
    def from_state(cls, toolset: str, state: bytes) -> "StoredCall":
        """Read what `to_state` wrote."""
        caller, base_url, traceparent, checkpoint, body = state.split(b"\n", 4)
        return cls(
            toolset,
            caller.decode(),
            parse_invocation(body),
            body,
            base_url.decode(),
            traceparent.decode(),
            Checkpoint.from_line(checkpoint),
        )

    @property
    def thread_key(self) -> str:
        """The key of the thread that called."""
        return thread_key(self.toolset, self.caller, self.message.group_id)


def thread_key(toolset: str, caller: str, group_id: str) -> str:
    """The key of a thread: callers cannot reach each other's, even if they use the same group ids."""
    return digest("t", toolset, caller, group_id)


def digest(prefix: str, *parts: str) -> str:
    """An id no caller can choose, for what is known by these parts."""
    # No part contains a NUL: messages with control characters in their ids or URLs are refused before they get here, and JSON escapes it.
    digest = hashlib.sha256("\0".join(parts).encode()).digest()
    return f"{prefix}_{urlsafe_b64encode(digest[:18]).decode()}"
