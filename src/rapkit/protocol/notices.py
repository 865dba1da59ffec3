"""Notices from a runtime to a tool server: thread closed, call cancelled, session migrating, choice made."""

from typing import TypeVar

from pydantic import Field, ValidationError

from rapkit.errors import InvalidMessage
from rapkit.protocol.fields import HttpUrl, Id
from rapkit.protocol.message import Message
from rapkit.protocol.problems import problems

LARGEST_INDEX = 2**53 - 1
"""The largest integer every JSON reader keeps exactly."""


class ThreadClosed(Message):
    """A thread will call no more (CLO-1). Its id is untrusted, and no file name (CLO-7)."""

    thread_id: Id = Field(description="the group_id of the closed thread")


class CallCancelled(Message):
    """Nobody waits for a call, or listens to a subscription, any more (CAN-1)."""

    thread_id: Id = Field(description="the group_id of the thread that called")
    tool_call_id: Id = Field(description="the id of the cancelled invocation")


class Migrate(Message):
    """A session moves; the server hands what it keeps for it to the server at the destination (MIG-1)."""

    session_id: Id = Field(description="the session that moves")
    destination_url: HttpUrl = Field(description="the server it moves to, an absolute http or https URL")


class ChoiceMade(Message):
    """The user's answer to a `user_choice`.

    `selected` is any integer here: whether there is such a choice is known to the tool that asked, and a wrong one must become
    an error result (CHO-2), not a refused message.
    """

    id: Id = Field(description="the id of the user_choice, which is that of the invocation")
    selected: int = Field(ge=-LARGEST_INDEX, le=LARGEST_INDEX, description="the index of the chosen answer, from 0")


def parse_thread_closed(body: bytes) -> ThreadClosed:
    """The body of a POST to /close_thread, or InvalidMessage."""
    return _parse("thread_closed", ThreadClosed, body)


def parse_call_cancelled(body: bytes) -> CallCancelled:
    """The body of a POST to /cancel_tool_call, or InvalidMessage."""
    return _parse("call_cancelled", CallCancelled, body)


def parse_migrate(body: bytes) -> Migrate:
    """The body of a POST to /migrate, or InvalidMessage."""
    return _parse("migrate", Migrate, body)


def parse_choice_made(body: bytes) -> ChoiceMade:
    """The body of a POST to a `response_url`, or InvalidMessage."""
    return _parse("choice_made", ChoiceMade, body)


M = TypeVar("M", bound=Message)


def _parse(label: str, model: type[M], body: bytes) -> M:
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise InvalidMessage("\n".join(problems(label, model, error))) from None
