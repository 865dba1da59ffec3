"""Choices that could not be delivered to the tool that asked: the call keeps waiting until someone acts."""

from typing import Any

from rapkit.cli.command_hints import CommandHints

_UNDELIVERED = "Your choice could not be delivered"
_UNKNOWN_SERVER = "is not configured any more"


def is_undelivered(entry: Any) -> bool:
    """Whether an entry of a journal says that one did not get there."""
    return bool(entry["kind"] == "error" and entry["text"].startswith(_UNDELIVERED))


def what_to_do(problem: str, said: CommandHints) -> str:
    """How the choice gets there after all, for a reader of the `text` of such an entry."""
    cure = "When that is mended"
    if _UNKNOWN_SERVER in problem:
        cure = "Name that server again, with --server or in rapkit.toml. Then"
    see, again = said.outbox("list"), said.outbox("resend ID")
    return f"The call waits for it. {cure} send it again: {again}. Its ID is in: {see}"
