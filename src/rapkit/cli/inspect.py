"""`rapkit inspect`."""

import json

import click
from rich.console import Console
from rich.text import Text

from rapkit.cli.credentials import Credentials, credential_options
from rapkit.cli.tool_server_client import fetch_toolset
from rapkit.printable import printable
from rapkit.protocol import ToolDefinition, UsableToolset, dump

_NARROWEST = 20


@click.command()
@click.argument("url")
@credential_options
@click.option("--json", "as_json", is_flag=True, help="Print the toolset document as JSON.")
def command(url: str, credentials: Credentials, as_json: bool) -> None:
    """Show what the tool server at URL offers.

    The toolset is checked against the protocol; what is wrong with it, and what agents therefore do not use, is listed.
    """
    toolset = fetch_toolset(url, credentials)
    document = toolset.document
    if as_json:
        click.echo(dump(document).decode())
        _show_problems(Console(highlight=False, stderr=True), toolset)
        return
    console = Console(highlight=False)
    title = Text.assemble((document.name, "bold"), f"  {document.description}" if document.description else "")
    _print(console, title, indent=0)
    # Not wrapped: a broken URL cannot be copied.
    console.print(Text(f"endpoint {document.endpoint}", "dim"), soft_wrap=True)
    console.print(Text(f"version  {document.version or 'not given'}", "dim"), soft_wrap=True)
    for tool in document.tools:
        console.print()
        _show(console, tool)
    if toolset.ignored or toolset.unusable:
        console.print()
        _show_problems(console, toolset)


def _show_problems(console: Console, toolset: UsableToolset) -> None:
    """What an agent does not use of it."""
    for tool in toolset.unusable:
        _print(console, Text.assemble(("left out ", "yellow"), tool.problem), indent=0)
    for line in toolset.ignored:
        _print(console, Text.assemble(("ignored  ", "yellow"), line), indent=0)


def _show(console: Console, tool: ToolDefinition) -> None:
    traits = f"  ({', '.join(_traits(tool))})" if _traits(tool) else ""
    _print(console, Text.assemble((tool.name, "bold cyan"), (traits, "yellow")), indent=0)
    _print(console, Text(tool.description), indent=2)
    required = tool.inputSchema.get("required", [])
    for name, schema in tool.inputSchema.get("properties", {}).items():
        note = "" if name in required else _default(schema)
        about = schema.get("description") if isinstance(schema, dict) else None
        line = Text.assemble((name, "green"), (f": {_shape(schema)}{note}", "dim"), f"  {about}" if about else "")
        _print(console, line, indent=4)


def _print(console: Console, text: Text, indent: int) -> None:
    text.plain = printable(text.plain)
    for line in text.wrap(console, max(_NARROWEST, console.width - indent)):
        line.rstrip()
        console.print(Text(" " * indent) + line, soft_wrap=True)


def _traits(tool: ToolDefinition) -> list[str]:
    if tool.annotations is None:
        return []
    words = {
        "readOnly": "read only",
        "destructive": "destructive",
        "idempotent": "idempotent",
        "longRunning": "long running",
    }
    given = [word for key, word in words.items() if getattr(tool.annotations, key)]
    if provider := tool.annotations.requiresAuth:
        given.append(f"needs {provider}")
    return given


def _shape(schema: object) -> str:
    match schema:
        case {"enum": list(values)}:
            return " | ".join(map(json.dumps, values))
        case {"const": value}:
            return json.dumps(value)
        case {"anyOf": list(schemas)} | {"oneOf": list(schemas)}:
            return " | ".join(map(_shape, schemas))
        case {"type": "array", "items": dict(items)}:
            return f"array of {_shape(items)}"
        case {"type": list(kinds)}:
            return " | ".join(map(str, kinds))
        case {"type": kind}:
            return str(kind)
    return "anything"


def _default(schema: object) -> str:
    if isinstance(schema, dict) and "default" in schema:
        return f" = {json.dumps(schema['default'])}"
    return ", optional"
