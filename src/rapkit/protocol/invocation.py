"""A call of a tool, and what to do with one that is wrong.

An error in an invocation travels by callback, not by status (INV-10). So a broken one is still worth reading: as long as it
says where the answer goes and whose it is, the caller gets a BadInvocation to answer.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from rapkit.errors import InvalidMessage
from rapkit.protocol.fields import HttpUrl, Id
from rapkit.protocol.json_value import JsonObject
from rapkit.protocol.message import Message
from rapkit.protocol.problems import problems


class Invocation(Message):
    """A call: what to do, and where and under which ids the answer goes.

    `callback_url` is the caller's string, verbatim (CB-1), and a secret: whoever has it can speak into the conversation.
    """

    operation: Id = Field(description="the name of the tool to run")
    arguments: JsonObject = Field(description="an object with the tool's arguments, {} if it takes none")
    id: Id = Field(description="the id of the call")
    call_id: Id | None = Field(None, description="a second id of the call, echoed back")
    callback_url: HttpUrl = Field(
        description="where the answer is POSTed, an absolute http or https URL of at most 4096 characters", repr=False
    )
    group_id: Id = Field(description="the id of the thread that calls")
    thread_ancestors: Annotated[tuple[Id, ...], Field(strict=False, max_length=1000, fail_fast=True)] | None = Field(
        None, description="the group ids from the root thread down to the calling thread's parent"
    )
    user_id: Id | None = Field(None, description="the user the thread works for")
    toolset_version: Id | None = Field(None, description="the version of the toolset the caller knows")


@dataclass(frozen=True, slots=True, kw_only=True)
class BadInvocation:
    """An invocation that cannot run but can be answered: these ids and this URL are usable, `problem` says what is wrong."""

    callback_url: str
    group_id: str
    id: str
    call_id: str | None
    problem: str

    def __repr__(self) -> str:
        return f"BadInvocation(group_id={self.group_id!r}, id={self.id!r}, problem={self.problem!r})"


def _usable_or_none(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    try:
        return check(value)
    except ValidationError:
        return None


class _Envelope(Message):
    """What an answer needs."""

    callback_url: HttpUrl
    group_id: Id
    id: Id
    call_id: Annotated[Id | None, WrapValidator(_usable_or_none)] = None


def parse_invocation(body: bytes) -> Invocation | BadInvocation:
    """The invocation in a POST's body, or what is left of it to answer to.

    Raises InvalidMessage only if `callback_url`, `group_id` or `id` is unusable, so that no error could be delivered.
    Of a key that occurs twice the last one counts.
    """
    try:
        return Invocation.model_validate_json(body)
    except ValidationError as error:
        problem = "\n".join(problems("invocation", Invocation, error))
    try:
        envelope = _Envelope.model_validate_json(body)
    except ValidationError:
        raise InvalidMessage(problem) from None
    return BadInvocation(
        callback_url=envelope.callback_url,
        group_id=envelope.group_id,
        id=envelope.id,
        call_id=envelope.call_id,
        problem=problem,
    )
