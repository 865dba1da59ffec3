"""A tool: a function with what it says about itself."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from rapkit.errors import ConfigError
from rapkit.protocol import Annotations, ToolDefinition
from rapkit.protocol.problems import problems
from rapkit.server.context import Context
from rapkit.server.signature import Signature, read_signature


@dataclass(frozen=True, slots=True)
class Traits:
    """What an author says about a tool beyond its signature."""

    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    long_running: bool = False
    requires_auth: str | None = None
    display: str | None = None
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    """One operation of a toolset."""

    signature: Signature
    traits: Traits

    @property
    def name(self) -> str:
        """The operation's name on the wire."""
        return self.signature.name

    @property
    def repeatable(self) -> bool:
        """Whether a handler that was lost half-way may run again."""
        return self.traits.read_only or self.traits.idempotent

    def definition(self) -> ToolDefinition:
        """The tool as the wire describes it."""
        traits = self.traits
        annotations = Annotations(
            requiresAuth=traits.requires_auth,
            readOnly=traits.read_only or None,
            destructive=traits.destructive or None,
            idempotent=traits.idempotent or None,
            longRunning=traits.long_running or None,
        )
        return ToolDefinition(
            name=self.name,
            description=self.signature.description,
            inputSchema=self.signature.input_schema,
            annotations=annotations if annotations.model_dump(exclude_none=True) else None,
            displayScript=traits.display,
        )


def make_tool(function: Callable[..., Any], name: str | None, traits: Traits) -> Tool:
    """Read the function; `ConfigError` if it cannot be a tool."""
    signature = read_signature(function, context_type=Context, name=name)
    if signature.is_generator:
        raise ConfigError(
            f"tool {signature.name!r} is a generator. A tool returns one result: collect the parts in a list and return that."
        )
    if traits.timeout is not None and not 0 < traits.timeout < float("inf"):
        raise ConfigError(f"tool {signature.name!r}: timeout is a number of seconds above 0, not {traits.timeout}.")
    tool = Tool(signature, traits)
    try:
        tool.definition()
    except ValidationError as error:
        found = "\n".join(problems("tool", ToolDefinition, error))
        raise ConfigError(f"tool {signature.name!r} cannot be described to callers:\n{found}") from None
    return tool
