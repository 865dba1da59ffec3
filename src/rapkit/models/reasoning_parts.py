"""Store a provider's reasoning, signed or encrypted, and send it back in its original order.

A reply's thoughts are a list of JSON values: where they came from, then the reply's parts in order. Of text and calls only what the journal
does not have anyway is kept: the place between the thoughts, and a provider's own marks.
"""

from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_ai.messages import ModelResponse, ModelResponsePart, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models import Model as PydanticModel
from pydantic_core import to_jsonable_python

from rapkit.kernel.conversation import Said
from rapkit.models.tool_names import provider_name

_THINKING = TypeAdapter(ThinkingPart)
# Not the address, which may hold a password.
_ORIGIN = ("provider_name", "canonical_system")
# Between the texts of replies that were joined because nothing was heard in between.
_JOINT = "\n\n"


def store_reasoning(response: ModelResponse) -> tuple[Any, ...]:
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


def has_calls(thoughts: tuple[Any, ...]) -> bool:
    """Whether the calls of what was said are those of a reply with these thoughts."""
    return any(isinstance(entry, dict) and "call" in entry for entry in thoughts)


def restore_reasoning(said: Said, model: PydanticModel[Any]) -> ModelResponse:
    """What was said, with its thoughts if they are readable, belong to just this text and these calls, and the model takes them.

    Replies that were joined have their thoughts one after the other, each in front of its own text.
    """
    try:
        return _with_thoughts(said, model)
    except (ValidationError, LookupError, TypeError, AttributeError, ValueError):
        # Written by another version, or for what is no longer shown: a history without thoughts is still a good one.
        return ModelResponse([*_text(said.text), *_calls(said)])


def _with_thoughts(said: Said, model: PydanticModel[Any]) -> ModelResponse:
    parts: list[ModelResponsePart] = []
    origin: dict[str, Any] = {}
    rest, called = said.text, has_calls(said.thoughts)
    for reply in _replies(said.thoughts):
        response = _restored(reply, said)
        before, rest = _around(visible_text([*response.parts]), rest, last=has_calls(reply))
        # Another provider's thoughts would be shown to this one as if they had been said aloud.
        parts += [*_text(before), *(part for part in response.parts if _welcome(part, response, model))]
        origin = {name: getattr(response, name) for name in _ORIGIN}
    parts += _text(rest)
    if not called:
        parts += _calls(said)
    return ModelResponse(parts, **origin)


def _replies(thoughts: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """The thoughts of each reply of those that were joined."""
    begins = [number for number, entry in enumerate(thoughts) if "origin" in entry]
    if thoughts and begins[:1] != [0]:
        raise LookupError("nobody knows where the thoughts come from")
    return [thoughts[begin:end] for begin, end in zip(begins, [*begins[1:], len(thoughts)], strict=True)]


def _restored(reply: tuple[Any, ...], said: Said) -> ModelResponse:
    origin, *kept = reply
    parts: list[ModelResponsePart] = []
    calls = iter(said.calls)
    for entry in kept:
        if "thinking" in entry:
            parts.append(_THINKING.validate_python(entry["thinking"]))
        elif "text" in entry:
            parts.append(TextPart(entry["text"], **_marks(entry)))
        else:
            call = next(calls, None)
            if call is None or provider_name(call.name) != entry["call"]:
                raise LookupError("the calls are not those of the reply")
            parts.append(ToolCallPart(entry["call"], call.arguments, call.id, **_marks(entry)))
    if has_calls(reply) and next(calls, None) is not None:
        raise LookupError("the reply made fewer calls")
    return ModelResponse(parts, **{name: origin["origin"][name] for name in _ORIGIN})


def _around(text: str, whole: str, *, last: bool) -> tuple[str, str]:
    """What stands before and behind a reply's text in that of all that were joined; nothing is behind the `last`, which has the calls."""
    if not text.strip():
        return (whole, "") if last else ("", whole)
    if whole == text or (last and whole.endswith(_JOINT + text)):
        return whole[: -len(text)].removesuffix(_JOINT), ""
    before, found, after = (_JOINT + whole + _JOINT).partition(_JOINT + text + _JOINT)
    if last or not found:
        raise LookupError("the reply said something else")
    return before.removeprefix(_JOINT), after.removesuffix(_JOINT)


def _welcome(part: ModelResponsePart, response: ModelResponse, model: PydanticModel[Any]) -> bool:
    if isinstance(part, ThinkingPart):
        return model.accepts_stateless_artifacts(response, part)
    return not isinstance(part, TextPart) or bool(part.content.strip())


def _text(text: str) -> list[ModelResponsePart]:
    return [TextPart(text)] if text.strip() else []


def _calls(said: Said) -> list[ModelResponsePart]:
    return [ToolCallPart(provider_name(call.name), call.arguments, call.id) for call in said.calls]


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
