"""The user behind a call, and the box that stores what belongs to that user.

Callers cannot reach each other's users, even if they use the same ids (semantics: who may touch what). Without a `user_id` the root thread
stands in for the user; the two have different prefixes, so a thread that is called like a user gets nothing of theirs.
"""

from rapkit.mailbox import NewBox
from rapkit.protocol import BadInvocation, Invocation
from rapkit.server.invocation import StoredCall, digest


def user_kind(toolset: str) -> str:
    """The kind of box a user's things are kept beside."""
    return f"user/{toolset}"


def user_key(toolset: str, caller: str, message: Invocation | BadInvocation) -> str:
    """The key of the user a call works for, or of the root thread that stands in for one."""
    user_id: str | None = getattr(message, "user_id", None)
    if user_id is not None:
        return digest("u", toolset, caller, user_id)
    ancestors: tuple[str, ...] = getattr(message, "thread_ancestors", None) or ()
    return stand_in_box(toolset, caller, ancestors[0] if ancestors else message.group_id).id


def stand_in_box(toolset: str, caller: str, root_thread: str) -> NewBox:
    """The box of an unnamed user, for whom the root thread stands in."""
    return NewBox(id=digest("r", toolset, caller, root_thread), kind=user_kind(toolset))


def user_box(call: StoredCall) -> NewBox:
    """The box of the user a call works for."""
    return NewBox(id=user_key(call.toolset, call.caller, call.message), kind=user_kind(call.toolset))
