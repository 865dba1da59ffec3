"""Build the pydantic-ai request for a completion."""

import json
import re
from collections.abc import Iterator
from typing import Any

from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model as PydanticModel

from rapkit.kernel.conversation import Conversation, Heard, Said, SaidCall, ToolAnswer
from rapkit.models.images import newest_images, placeholder
from rapkit.models.reasoning_parts import has_calls, restore_reasoning
from rapkit.models.tool_definitions import ToolDefinitions
from rapkit.models.tool_names import provider_name
from rapkit.models.transcript import synthetic_call
from rapkit.protocol import ImageContent, TextContent

# Providers refuse a blank text, and with it the whole conversation.
NOTHING = "(empty)"


class ProviderRequest:
    """Builds the requests for one model.

    With `tells`, the model is told in text what it did not call for, instead of being shown a pair of call and answer.
    """

    def __init__(
        self, model: PydanticModel[Any], offered: ToolDefinitions, instructions: str, *, takes_images: bool, tells: bool
    ) -> None:
        self._model = model
        self._offered = offered
        self._instructions = instructions
        self._takes_images = takes_images
        self._tells = tells
        self._images: dict[int, tuple[bytes, str]] = {}
        self._told: dict[str, str] = {}

    def messages(self, conversation: Conversation) -> list[ModelMessage]:
        """The conversation as the provider gets it."""
        self._images = newest_images(_newest_first(conversation)) if self._takes_images else {}
        history: list[ModelMessage] = []
        for turn in conversation:
            if isinstance(turn, Heard):
                parts = self._heard(turn)
                if history and isinstance(history[-1], ModelRequest):
                    # Nothing was said in between, or nothing that is shown, so both are one turn.
                    history[-1].parts = [*history[-1].parts, *parts]
                else:
                    history.append(ModelRequest(parts, instructions=self._instructions or None))
            elif (said := restore_reasoning(self._shown(turn), self._model)).parts:
                history.append(said)
        return history

    def _shown(self, said: Said) -> Said:
        self._told = {}
        if self._tells and not has_calls(said.thoughts):
            self._told = {call.id: heading for call in said.calls if (heading := self._heading(call))}
        calls = (call for call in said.calls if call.id not in self._told)
        renamed = (SaidCall(call.id, call.name, self._offered.shown(call.name, call.arguments)) for call in calls)
        return Said(said.text, tuple(renamed), said.thoughts)

    def _heading(self, call: SaidCall) -> str:
        """What is told instead of a pair that was made up; nothing if the call is a real one."""
        about = synthetic_call(call)
        if about is None:
            return ""
        arguments = {name: value for name, value in call.arguments.items() if name != "kind"}
        shown = json.dumps(self._offered.shown(call.name, arguments), ensure_ascii=False)
        return _heading(about, provider_name(call.name), f" with {shown}" if arguments else "")

    def _heard(self, heard: Heard) -> list[ModelRequestPart]:
        parts: list[ModelRequestPart] = []
        for answer in heard.answers:
            if heading := self._told.get(answer.call_id):
                parts.append(UserPromptPart(self._content(answer, heading)))
            else:
                parts.append(ToolReturnPart(provider_name(answer.name), self._content(answer), answer.call_id))
        return parts + [UserPromptPart(text if text.strip() else NOTHING) for text in heard.texts]

    def _content(self, answer: ToolAnswer, *heading: str) -> str | list[str | BinaryContent]:
        texts = [*heading]
        files: list[BinaryContent] = []
        for item in answer.content:
            if isinstance(item, TextContent):
                texts.append(item.text)
            elif image := self._images.get(id(item)):
                files.append(BinaryContent(image[0], media_type=image[1]))
            else:
                texts.append(placeholder(item))
        # In one piece: some providers are sent several texts as a JSON list.
        text = "\n".join(texts)
        if not files:
            return text if text.strip() else NOTHING
        return [text, *files] if text.strip() else [*files]


def _heading(about: re.Match[str], name: str, arguments: str) -> str:
    match about["what"]:
        case "interrupt" | "result" as what:
            what = "event" if what == "interrupt" else what
            return f"[{what} of {name}({about['id']}){arguments}: {about['state']}]"
        case what:
            return f"[{what} of thread {about['id']}{arguments}: {about['state']}]"


def _newest_first(conversation: Conversation) -> Iterator[ImageContent]:
    for turn in reversed(conversation):
        for answer in reversed(turn.answers) if isinstance(turn, Heard) else ():
            yield from (item for item in reversed(answer.content) if isinstance(item, ImageContent))
