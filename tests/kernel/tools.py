"""A server with a tool that answers, and one that subscribes."""

from typing import Any

from rapkit.kernel.catalog import Catalog, Loaded
from rapkit.protocol import ToolDefinition, ToolsetDocument

SERVER = "http://weather.test"

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


def tool(name: str, schema: dict[str, Any] | None = None, description: str = "…") -> ToolDefinition:
    return ToolDefinition(name=name, description=description, inputSchema=schema or {"type": "object"})


def toolset(*names: str, schema: dict[str, Any] | None = None, name: str = "weather") -> ToolsetDocument:
    tools = tuple(tool(each, schema) for each in names)
    return ToolsetDocument(name=name, endpoint=f"{SERVER}/invoke", tools=tools)


CATALOG = Catalog([Loaded(SERVER, toolset("forecast", "storms", schema=CITY))])
