"""Short ways to write questions and to ask them."""

import base64
from dataclasses import dataclass, field
from typing import Any

from rapkit.kernel.completion import ModelTool, Question, Reply
from rapkit.kernel.conversation import Conversation, Heard, Said, SaidCall, ToolAnswer
from rapkit.models import Model
from rapkit.protocol import ImageContent, TextContent

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
FORECAST = ModelTool(
    "forecast",
    "Forecast for a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


def question(
    *turns: Heard | Said | str, tools: tuple[ModelTool, ...] = (FORECAST,), instructions: str = "Be kind."
) -> Question:
    """What a model is asked; a text is one of the user's."""
    conversation: Conversation = tuple(Heard(texts=(turn,)) if isinstance(turn, str) else turn for turn in turns)
    return Question(instructions, conversation, tools)


def said(*calls: SaidCall, text: str = "", thoughts: tuple[Any, ...] = ()) -> Said:
    """What the model said before."""
    return Said(text, calls, thoughts)


def call(id: str, tool: str = "forecast", **arguments: Any) -> SaidCall:
    """A call in what was said."""
    return SaidCall(id, tool, arguments)


def heard(*answers: ToolAnswer, texts: tuple[str, ...] = ()) -> Heard:
    """What is heard next."""
    return Heard(answers, texts)


def answer(call_id: str, text: str = "", tool: str = "forecast", image: bytes | None = None) -> ToolAnswer:
    """The answer to a call: a text, an image, or both."""
    content: list[TextContent | ImageContent] = [TextContent(text=text)] if text or image is None else []
    if image is not None:
        content.append(ImageContent(data=base64.b64encode(image).decode(), mediaType="image/png"))
    return ToolAnswer(call_id, tool, tuple(content))


@dataclass
class Asked:
    """A reply, and the pieces in which it came."""

    reply: Reply
    pieces: list[str] = field(default_factory=list)


async def ask(model: Model, asked: Question) -> Asked:
    """Make one completion."""
    pieces: list[str] = []
    reply = await model.complete(asked, pieces.append)
    assert "".join(pieces) == reply.text
    return Asked(reply, pieces)
