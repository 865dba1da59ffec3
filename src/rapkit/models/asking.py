"""A question as pydantic-ai puts it to a provider."""

import json
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
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from rapkit.kernel.completion import Question, Tool
from rapkit.kernel.conversation import Answer, Heard
from rapkit.models.images import placeholder, showable
from rapkit.models.naming import shown_name
from rapkit.models.thoughts import restore
from rapkit.protocol import TextContent

# Providers refuse a blank text, and with it the whole conversation.
NOTHING = "(empty)"

_NOT_AT_THE_TOP = ("oneOf", "anyOf", "allOf", "not", "enum")


def messages(question: Question, model: PydanticModel[Any], *, takes_images: bool) -> list[ModelMessage]:
    """The conversation as the provider gets it."""
    history: list[ModelMessage] = []
    for turn in question.conversation:
        if isinstance(turn, Heard):
            parts = _heard(turn, takes_images=takes_images)
            if history and isinstance(history[-1], ModelRequest):
                # Something empty was said in between and is left out, so both are one turn.
                history[-1].parts = [*history[-1].parts, *parts]
            else:
                history.append(ModelRequest(parts, instructions=question.instructions or None))
        elif (said := restore(turn, model)).parts:
            history.append(said)
    return history


def parameters(question: Question) -> ModelRequestParameters:
    """The tools that are offered."""
    return ModelRequestParameters(function_tools=[_offered(tool) for tool in question.tools])


def _heard(heard: Heard, *, takes_images: bool) -> list[ModelRequestPart]:
    parts: list[ModelRequestPart] = [_returned(answer, takes_images=takes_images) for answer in heard.answers]
    return parts + [UserPromptPart(text if text.strip() else NOTHING) for text in heard.texts]


def _returned(answer: Answer, *, takes_images: bool) -> ToolReturnPart:
    texts: list[str] = []
    files: list[Any] = []
    for item in answer.content:
        if isinstance(item, TextContent):
            texts.append(item.text)
        elif takes_images and (image := showable(item)):
            files.append(BinaryContent(image[0], media_type=image[1]))
        else:
            texts.append(placeholder(item))
    # In one piece: some providers are sent several texts as a JSON list.
    text = "\n".join(texts)
    spoken = [text] if text.strip() else []
    content = [*spoken, *files] if files else (spoken or [NOTHING])[0]
    return ToolReturnPart(shown_name(answer.name), content, answer.call_id)


def _offered(tool: Tool) -> ToolDefinition:
    schema = {"type": "object", "properties": {}, **tool.input_schema}
    description = tool.description
    # Providers refuse these at the top of a schema, and with them the whole question. The tool's server checks them anyway.
    if unwelcome := {key: schema.pop(key) for key in _NOT_AT_THE_TOP if key in schema}:
        description += f"\nThe arguments must also match this JSON schema: {json.dumps(unwelcome, ensure_ascii=False)}"
    # Strict mode takes a small part of JSON Schema only, and the schemas are strangers'.
    return ToolDefinition(
        name=shown_name(tool.name), parameters_json_schema=schema, description=description, strict=False
    )
