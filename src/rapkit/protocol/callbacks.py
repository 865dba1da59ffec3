"""The callback messages: what a tool server POSTs to a call's callback URL."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, TypeAdapter, ValidationError, model_validator
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from rapkit.errors import InvalidMessage
from rapkit.protocol.content import MAX_ITEMS, MAX_SEGMENTS, ContentItem, DisplaySegment
from rapkit.protocol.fields import Flag, HttpUrl, Id, Text
from rapkit.protocol.json_value import Json
from rapkit.protocol.lenient_parsing import normalize_callback
from rapkit.protocol.message import Message
from rapkit.protocol.problems import problems

GroupId = Annotated[Id, Field(description="the group_id of the invocation")]
CallId = Annotated[Id, Field(description="the id of the invocation")]
SecondCallId = Annotated[Id | None, Field(description="the call_id of the invocation, where it had one")]

# One mistake in an array is enough to refuse it: to collect all of them takes seconds and gigabytes for a few megabytes of mistakes.
_Items = Annotated[tuple[ContentItem, ...], Field(strict=False, max_length=MAX_ITEMS, fail_fast=True)]
_Segments = Annotated[tuple[DisplaySegment, ...], Field(strict=False, max_length=MAX_SEGMENTS, fail_fast=True)]
_Choices = Annotated[tuple[Text, ...], Field(strict=False, min_length=1, fail_fast=True)]

_TEXT_OR_CONTENT: JsonDict = {
    "anyOf": [
        {"required": ["text"], "properties": {"text": {"type": "string"}}},
        {"required": ["content"], "properties": {"content": {"type": "array"}}},
    ]
}


class ToolResult(Message, json_schema_extra=_TEXT_OR_CONTENT):
    """The answer that completes a call.

    It has `text` or `content` or both. Either may be empty: a tool with nothing to say has still answered, and refusing
    that would leave its call open for ever. Content that is not empty wins over text for the model (CB-13).
    """

    type: Literal["tool_result"] = "tool_result"
    group_id: GroupId
    id: CallId
    call_id: SecondCallId = None
    text: Text | None = Field(None, description="the answer as text")
    content: _Items | None = Field(None, description="the answer as a list of text and image items")
    display_as: _Segments | None = Field(
        None, description="how a person sees the answer: a list of segments, best first"
    )
    subscription: Flag = Field(False, description="whether the call goes on as a subscription")

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.text is None and self.content is None:
            raise PydanticCustomError("empty", "has neither text nor content; one of them is the answer")
        return self


class SubscriptionEvent(Message):
    """Something happened that a call subscribed to (SUB-3)."""

    type: Literal["subscription_event"] = "subscription_event"
    group_id: GroupId
    tool_call_id: Id = Field(description="the id of the invocation that subscribed")
    text: Text = Field(description="what happened; structured data goes in as JSON text")
    associative: Flag = Field(False, description="whether it belongs into the subscribing thread itself")
    final: Flag = Field(False, description="whether the subscription ends with it")


class OAuthRequest(Message):
    """A person has to authorise the server before the call can go on."""

    type: Literal["oauth"] = "oauth"
    group_id: GroupId
    id: CallId
    call_id: SecondCallId = None
    auth_url: HttpUrl = Field(description="the page where the user authorises, an absolute http or https URL")


class UserChoice(Message):
    """A person has to choose before the call can go on (CHO-2)."""

    type: Literal["user_choice"] = "user_choice"
    group_id: GroupId
    id: CallId
    call_id: SecondCallId = None
    prompt: Text = Field(description="the question to the user")
    choices: _Choices = Field(description="the possible answers, at least one")
    default: int = Field(ge=0, description="the index of the choice that stands when the user makes none, from 0")
    response_url: HttpUrl = Field(description="where the answer is POSTed, an absolute http or https URL")

    @model_validator(mode="after")
    def _default_is_a_choice(self) -> Self:
        if self.default >= len(self.choices):
            raise PydanticCustomError(
                "default_out_of_range",
                "past the last choice; allowed are 0 to {last}",
                {"last": len(self.choices) - 1, "field": "default"},
            )
        return self


class ViewUpdate(Message):
    """The latest content of one of a thread's views; any JSON, null included (VIE-1)."""

    null_is_a_value: ClassVar[bool] = True

    type: Literal["view_update"] = "view_update"
    group_id: GroupId
    view_type: Id = Field(description="which view of the thread it is")
    content: Json = Field(description="what the view shows, any JSON")


Callback = ToolResult | SubscriptionEvent | OAuthRequest | UserChoice | ViewUpdate

CALLBACKS: dict[str, type[Message]] = {
    "tool_result": ToolResult,
    "subscription_event": SubscriptionEvent,
    "oauth": OAuthRequest,
    "user_choice": UserChoice,
    "view_update": ViewUpdate,
}

callback_adapter: TypeAdapter[Callback] = TypeAdapter(Annotated[Callback, Field(discriminator="type")])


def parse_callback(body: bytes) -> Callback:
    """The callback message in a POST's body, as far as it can be used; InvalidMessage says what is wrong with anything else (CB-7).

    Of a key that occurs twice the last one counts.
    """
    try:
        return callback_adapter.validate_json(body)
    except ValidationError as error:
        problem = error
    if (usable := normalize_callback(body)) is not None:
        try:
            return callback_adapter.validate_python(usable)
        except ValidationError as error:
            problem = error
    raise InvalidMessage("\n".join(problems("callback", CALLBACKS, problem)))
