"""Claude's extended thinking with a token budget, and what it requires of a conversation.

A round of calls and answers at the end has to begin with what was thought, or the question is refused. A pair of call and answer that we
made up has no thoughts, nor has a reply of another model. Adaptive thinking, which newer models have, asks for nothing of the kind.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic_ai.messages import ModelMessage, ModelResponse, ThinkingPart, ToolReturnPart
from pydantic_ai.models import Model as PydanticModel
from pydantic_ai.settings import ModelSettings

# Where a setting can hold what is sent as `thinking`, in the order in which they count.
_HOLDERS = ("extra_body", "bedrock_additional_model_requests_fields")
_OFF: dict[str, Any] = {"thinking": False, "anthropic_thinking": {"type": "disabled"}}


def thinks_by_budget(model: PydanticModel[Any], settings: ModelSettings) -> bool:
    """Whether the model is asked with extended thinking."""
    given = cast("Mapping[str, Any]", settings)
    held = (given[holder].get("thinking") for holder in _HOLDERS if isinstance(given.get(holder), Mapping))
    for told in (*held, given.get("anthropic_thinking")):
        if isinstance(told, Mapping):
            return told.get("type") == "enabled"
    profile = cast("Mapping[str, Any]", model.profile)
    if not given.get("thinking") or "anthropic_supports_adaptive_thinking" not in profile:
        return False
    return not (
        profile["anthropic_supports_adaptive_thinking"] or profile.get("bedrock_supports_adaptive_thinking", False)
    )


def may_think(history: Sequence[ModelMessage]) -> bool:
    """Whether the round of calls and answers at the end, if there is one, begins with thoughts."""
    began: ModelResponse | None = None
    for message in reversed(history):
        if isinstance(message, ModelResponse):
            began = message
        elif not any(isinstance(part, ToolReturnPart) for part in message.parts):
            break
    if began is None:
        return True
    first = began.parts[0]
    return isinstance(first, ThinkingPart) and bool(first.signature)


def without_thinking(settings: ModelSettings) -> ModelSettings:
    """The settings for a question that cannot be put with extended thinking."""
    # Turned off and not just left out: the model's own settings are filled in again where one is missing.
    given = {name: _OFF.get(name, value) for name, value in settings.items()}
    for holder in _HOLDERS:
        if isinstance(held := given.get(holder), Mapping):
            given[holder] = {name: value for name, value in held.items() if name != "thinking"}
    return cast("ModelSettings", given)
