"""The tools of a request as they are sent to a provider."""

import logging
from typing import Any

from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from rapkit.kernel.builtins import RESERVED
from rapkit.kernel.completion import ModelTool
from rapkit.models.provider_schema import ProviderSchema, provider_schema
from rapkit.models.tool_names import provider_name

MAX_TOOLS = 128
"""What OpenAI takes; with one more it refuses the question."""

MAX_DESCRIPTION = 1024
"""Characters that OpenAI takes as the description of a tool. A schema's description may be longer."""

_log = logging.getLogger(__name__)


class ToolDefinitions:
    """The definitions of tools, with names and schemas as the provider accepts them.

    Of too many the last are left out, never built-in ones.
    """

    def __init__(self, tools: tuple[ModelTool, ...]) -> None:
        self._tools = sorted(tools, key=lambda tool: tool.name not in RESERVED)
        self._names = {provider_name(tool.name): tool.name for tool in tools}
        self._schemas = {tool.name: provider_schema(tool.input_schema) for tool in tools}

    @property
    def left_out(self) -> tuple[str, ...]:
        """The names of those that are not offered."""
        return tuple(tool.name for tool in self._tools[MAX_TOOLS:])

    def parameters(self) -> ModelRequestParameters:
        """What is sent."""
        definitions = [_definition(tool, self._schemas[tool.name]) for tool in self._tools[:MAX_TOOLS]]
        return ModelRequestParameters(function_tools=definitions)

    def name(self, shown: str) -> str:
        """The real name of a tool that the model calls; one that was not offered stays as it is."""
        return self._names.get(shown, shown)

    def real(self, name: str, arguments: Any) -> Any:
        """Arguments the model gave to a tool, under their real names."""
        return self._schemas[name].real(arguments) if name in self._schemas else arguments

    def shown(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments of a call in the history, under the names that the model was shown."""
        shown: dict[str, Any] = self._schemas[name].shown(arguments) if name in self._schemas else arguments
        return shown


def warn_of(left_out: tuple[str, ...]) -> None:
    """Tell a person which tools the model does not get."""
    _log.warning(
        "The model is offered the first %d tools only, because providers refuse more. Left out are %d: %s. Load fewer toolsets.",
        MAX_TOOLS,
        len(left_out),
        ", ".join(left_out[:20]) + (", …" if len(left_out) > 20 else ""),
    )


def _definition(tool: ModelTool, shown: ProviderSchema) -> ToolDefinition:
    schema, description = shown.schema, tool.description + shown.remark
    if len(description) > MAX_DESCRIPTION:
        own = f"\n{schema['description']}" if isinstance(schema.get("description"), str) else ""
        schema = {**schema, "description": f"…{description[MAX_DESCRIPTION - 1 :]}{own}"}
        description = description[: MAX_DESCRIPTION - 1] + "…"
    # Strict mode takes a small part of JSON Schema only, and the schemas are untrusted.
    return ToolDefinition(
        name=provider_name(tool.name), parameters_json_schema=schema, description=description, strict=False
    )
