"""What a provider wants to see again beside text and calls: its reasoning, signed or encrypted, in the order in which it came.

A reply's thoughts are a list of JSON values: where they came from, then the reply's parts in order. Of text and calls only what the journal
does not have anyway is kept: the place between the thoughts, and a provider's own marks.
"""

from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_ai.messages import ModelResponse, ModelResponsePart, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models import Model as PydanticModel
from pydantic_core import to_jsonable_python

from rapkit.kernel.conversation import Said
from rapkit.models.naming import shown_name

_THINKING = TypeAdapter(ThinkingPart)
# Not the address, which may hold a password.
_ORIGIN = ("provider_name", "canonical_system")


def keep(response: ModelResponse) -> tuple[Any, ...]:
    """What is to go back to the provider with this reply; nothing, if it neither thought nor marked anything."""
    parts = [part for part in response.parts if isinstance(part, ThinkingPart | TextPart | ToolCallPart)]
    if not any(isinstance(part, ThinkingPart) or part.provider_details for part in parts):
        return ()
    origin = {name: getattr(response, name) for name in _ORIGIN}
    return ({"origin": origin}, *(_kept(part) for part in parts))


def _kept(part: ThinkingPart | TextPart | ToolCallPart) -> dict[str, Any]:
    if isinstance(part, ThinkingPart):
        return {"thinking": _THINKING.dump_python(part, mode="json")}
    marks = {"provider_name": part.provider_name, "provider_details": to_jsonable_python(part.provider_details)}
    return {"text": part.content, **marks} if isinstance(part, TextPart) else {"call": part.tool_name, **marks}


def restore(said: Said, model: PydanticModel[Any]) -> ModelResponse:
    """What was said, with its thoughts if they are readable, belong to just this text and these calls, and the model takes them."""
    try:
        response = _with_thoughts(said) if said.thoughts else _plain(said)
    except (ValidationError, LookupError, TypeError, AttributeError, ValueError):
        # Written by another version, or for what is no longer shown: a history without thoughts is still a good one.
        response = _plain(said)
    # Another provider's thoughts would be shown to this one as if they had been said aloud.
    response.parts = [
        part
        for part in response.parts
        if not isinstance(part, ThinkingPart) or model.accepts_stateless_artifacts(response, part)
    ]
    return response


def _plain(said: Said) -> ModelResponse:
    parts: list[ModelResponsePart] = [TextPart(said.text)] if said.text.strip() else []
    parts += [ToolCallPart(shown_name(call.name), call.arguments, call.id) for call in said.calls]
    return ModelResponse(parts)


def _with_thoughts(said: Said) -> ModelResponse:
    origin, *kept = said.thoughts
    parts: list[ModelResponsePart] = []
    calls = iter(said.calls)
    for entry in kept:
        if "thinking" in entry:
            parts.append(_THINKING.validate_python(entry["thinking"]))
        elif "text" in entry:
            parts.append(TextPart(entry["text"], **_marks(entry)))
        else:
            call = next(calls, None)
            if call is None or shown_name(call.name) != entry["call"]:
                raise LookupError("the calls are not those of the reply")
            parts.append(ToolCallPart(entry["call"], call.arguments, call.id, **_marks(entry)))
    if next(calls, None) is not None or visible_text(parts) != said.text:
        raise LookupError("the reply said something else")
    spoken = [part for part in parts if not isinstance(part, TextPart) or part.content.strip()]
    return ModelResponse(spoken, **{name: origin["origin"][name] for name in _ORIGIN})


def _marks(entry: dict[str, Any]) -> dict[str, Any]:
    return {"provider_name": entry["provider_name"], "provider_details": entry["provider_details"]}


def visible_text(parts: "list[ModelResponsePart] | tuple[ModelResponsePart, ...]") -> str:
    """The text of a reply: pieces that follow one another are joined, others stand apart."""
    text, apart = "", False
    for part in parts:
        if isinstance(part, TextPart) and part.content:
            text += ("\n\n" if apart and text else "") + part.content
            apart = False
        elif not isinstance(part, TextPart):
            apart = True
    return text
