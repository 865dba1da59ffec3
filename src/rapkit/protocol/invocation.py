"""The invocation message, and how to report one that is invalid.

An error in an invocation travels by callback, not by status (INV-10). So a broken one is still worth reading: as long as it
says where the answer goes and whose it is, the caller gets a BadInvocation to answer.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from rapkit.errors import InvalidMessage
from rapkit.protocol.fields import HttpUrl, Id
from rapkit.protocol.json_value import MAX_INTEGER_BITS, JsonObject
from rapkit.protocol.message import Message
from rapkit.protocol.problems import problems

_Ancestors = Annotated[tuple[Id, ...], Field(strict=False, max_length=1000, fail_fast=True)]


def _null_is_empty(value: Any) -> Any:
    return {} if value is None else value


class Invocation(Message):
    """A call: what to do, and where and under which ids the answer goes.

    `callback_url` is the caller's string, verbatim (CB-1), and a secret: a holder of it can speak into the conversation.
    """

    operation: Id = Field(description="the name of the tool to run")
    arguments: Annotated[JsonObject, BeforeValidator(_null_is_empty, json_schema_input_type=JsonObject | None)] = Field(
        default_factory=dict, description="an object with the tool's arguments; null and absent mean {}"
    )
    id: Id = Field(description="the id of the call")
    call_id: Id | None = Field(None, description="a second id of the call, echoed back")
    callback_url: HttpUrl = Field(
        description="where the answer is POSTed, an absolute http or https URL of at most 4096 characters", repr=False
    )
    group_id: Id = Field(description="the id of the thread that calls")
    thread_ancestors: _Ancestors | None = Field(
        None, description="the group ids from the root thread down to the calling thread's parent"
    )
    user_id: Id | None = Field(None, description="the user the thread works for")
    toolset_version: Id | None = Field(None, description="the version of the toolset the caller knows")


@dataclass(frozen=True, slots=True, kw_only=True)
class BadInvocation:
    """An invocation that cannot run but can be answered: these ids and this URL are usable, `problem` says what is wrong.

    `operation` and `arguments` are whatever was sent, None if nothing was.
    """

    callback_url: str
    group_id: str
    id: str
    call_id: str | None
    operation: Any
    arguments: Any
    problem: str

    def __repr__(self) -> str:
        return f"BadInvocation(group_id={self.group_id!r}, id={self.id!r}, problem={self.problem!r})"


class _Envelope(Message):
    """What an answer needs."""

    callback_url: HttpUrl
    group_id: Id
    id: Id


def parse_invocation(body: bytes) -> Invocation | BadInvocation:
    """The invocation in a POST's body, or what is left of it to answer to.

    Raises InvalidMessage only if `callback_url`, `group_id` or `id` is unusable, so that no error could be delivered. An integer is used
    as text where an optional field wants text; an optional field that is still unusable is ignored. Of a key that occurs twice the last
    one counts.
    """
    try:
        return Invocation.model_validate_json(body)
    except ValidationError as error:
        refused = error
    try:
        fields = from_json(body)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise InvalidMessage(_say(refused))
    optional = {name: _usable(name, fields.get(name)) for name in _OPTIONAL}
    try:
        return Invocation.model_validate(fields | optional)
    except ValidationError as error:
        problem = _say(error)
    try:
        envelope = _Envelope.model_validate(fields)
    except ValidationError:
        raise InvalidMessage(problem) from None
    return BadInvocation(
        callback_url=envelope.callback_url,
        group_id=envelope.group_id,
        id=envelope.id,
        call_id=optional["call_id"],
        operation=fields.get("operation"),
        arguments=fields.get("arguments"),
        problem=problem,
    )


_STRICT = ConfigDict(strict=True)
_ID: TypeAdapter[str] = TypeAdapter(Id, config=_STRICT)
_ANCESTORS: TypeAdapter[tuple[str, ...]] = TypeAdapter(_Ancestors, config=_STRICT)
_OPTIONAL: dict[str, TypeAdapter[Any]] = {
    "call_id": _ID,
    "thread_ancestors": _ANCESTORS,
    "user_id": _ID,
    "toolset_version": _ID,
}


def _usable(name: str, value: Any) -> Any:
    if isinstance(value, list):
        value = [_as_text(each) for each in value]
    try:
        return _OPTIONAL[name].validate_python(_as_text(value))
    except ValidationError:
        return None


def _as_text(value: Any) -> Any:
    return str(value) if type(value) is int and value.bit_length() <= MAX_INTEGER_BITS else value


def _say(error: ValidationError) -> str:
    return "\n".join(problems("invocation", Invocation, error))
