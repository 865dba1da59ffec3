"""The request to a model and its reply, independent of any provider."""

from dataclasses import dataclass, field
from typing import Any

from rapkit.kernel.conversation import Conversation


@dataclass(frozen=True, slots=True)
class ModelTool:
    """A tool as a model is offered it."""

    name: str
    description: str
    input_schema: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Question:
    """One completion to be made. `for_summary`: it is to sum up the conversation, not to go on with it."""

    instructions: str
    conversation: Conversation
    tools: tuple[ModelTool, ...]
    for_summary: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """What completions took. `cost` is in US dollars, as far as the price is known."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.requests + other.requests,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cost + other.cost,
        )


@dataclass(frozen=True, slots=True)
class WantedCall:
    """A call the model wants made.

    `provider_id` is its own name for it; `arguments` is None where they are no JSON object, and `problem` then says why.
    """

    provider_id: str
    name: str
    arguments: dict[str, Any] | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model said: text, calls, or both. `thoughts` are JSON values that its provider wants to see again."""

    text: str = ""
    calls: tuple[WantedCall, ...] = ()
    thoughts: tuple[Any, ...] = ()
    usage: Usage = field(default_factory=Usage)
    model: str = ""
