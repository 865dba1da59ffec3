"""A server with a tool that answers, one that subscribes, one that takes long, and one that destroys."""

from typing import Any

from rapkit.kernel.catalog import Catalog, Loaded
from rapkit.protocol import Annotations, ToolDefinition, ToolsetDocument

SERVER = "http://weather.test"

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


def tool(
    name: str,
    schema: dict[str, Any] | None = None,
    description: str = "…",
    annotations: Annotations | None = None,
) -> ToolDefinition:
    return ToolDefinition(
        name=name, description=description, inputSchema=schema or {"type": "object"}, annotations=annotations
    )


def toolset(*names: str, schema: dict[str, Any] | None = None, name: str = "weather") -> ToolsetDocument:
    return document(*(tool(each, schema) for each in names), name=name)


def document(*tools: ToolDefinition, name: str = "weather") -> ToolsetDocument:
    return ToolsetDocument(name=name, endpoint=f"{SERVER}/invoke", tools=tools)


CATALOG = Catalog(
    [
        Loaded(
            SERVER,
            document(
                tool("forecast", CITY),
                tool("storms", CITY),
                tool("survey", CITY, annotations=Annotations(longRunning=True)),
                tool("demolish", CITY, annotations=Annotations(destructive=True)),
            ),
        )
    ]
)
