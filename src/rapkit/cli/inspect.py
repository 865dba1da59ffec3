"""`rapkit inspect`."""

import click
from rich.console import Console
from rich.text import Text

from rapkit.cli.remote import fetch_toolset
from rapkit.protocol import ToolDefinition, dump
from rapkit.secret import read_secret


@click.command()
@click.argument("url")
@click.option("--token", help="The token to send: env:VARIABLE, file:PATH or the token itself.")
@click.option("--json", "as_json", is_flag=True, help="Print the toolset document as it is.")
def command(url: str, token: str | None, as_json: bool) -> None:
    """Show what the tool server at URL offers. The toolset is validated; what is wrong with it is listed."""
    document = fetch_toolset(url, read_secret(token) if token else None)
    if as_json:
        click.echo(dump(document).decode())
        return
    console = Console(highlight=False)
    console.print(Text(document.name, "bold"), Text(f"  {document.description or ''}"), sep="")
    console.print(Text(f"endpoint {document.endpoint}   version {document.version or 'not given'}", "dim"))
    for tool in document.tools:
        console.print()
        _show(console, tool)


def _show(console: Console, tool: ToolDefinition) -> None:
    traits = _traits(tool)
    console.print(Text(tool.name, "bold cyan"), Text(f"  ({', '.join(traits)})" if traits else "", "yellow"), sep="")
    for line in tool.description.splitlines():
        console.print(Text(f"  {line}"))
    properties = tool.inputSchema.get("properties", {})
    required = tool.inputSchema.get("required", [])
    for name, schema in properties.items():
        shape = _shape(schema) if isinstance(schema, dict) else "anything"
        note = "" if name in required else _default(schema)
        about = schema.get("description", "") if isinstance(schema, dict) else ""
        console.print(Text(f"  {name}", "green"), Text(f": {shape}{note}", "dim"), Text(f"  {about}"), sep="")


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


def _shape(schema: dict[str, object]) -> str:
    values = schema.get("enum")
    if isinstance(values, list):
        return " | ".join(map(repr, values))
    kind = schema.get("type", "anything")
    return " | ".join(map(str, kind)) if isinstance(kind, list) else str(kind)


def _default(schema: object) -> str:
    if isinstance(schema, dict) and "default" in schema:
        return f" = {schema['default']!r}"
    return ", optional"
