"""`rapkit call`."""

import secrets
import sys
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

import click

from rapkit.cli.arguments import read_arguments
from rapkit.cli.listener import Listener
from rapkit.cli.remote import explain, fetch_toolset, post
from rapkit.errors import ConfigError, DeliveryError
from rapkit.protocol import Callback, SubscriptionEvent, ToolDefinition, ToolResult, ToolsetDocument, dump
from rapkit.secret import read_secret
from rapkit.server.callers import is_loopback_host


@click.command()
@click.argument("url")
@click.argument("operation")
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE | KEY:=JSON]...")
@click.option("--token", help="The token to send: env:VARIABLE, file:PATH or the token itself.")
@click.option("--callback-url", metavar="URL", help="Have the answer sent there instead of waiting for it here.")
@click.option("--timeout", type=float, metavar="SECONDS", help="How long to wait for the answer.  [default: for ever]")
@click.option("--json", "as_json", is_flag=True, help="Print the messages as they come, one a line.")
def command(
    url: str,
    operation: str,
    arguments: tuple[str, ...],
    token: str | None,
    callback_url: str | None,
    timeout: float | None,
    as_json: bool,
) -> None:
    """Call OPERATION of the tool server at URL and wait for its answer.

    Values are read as the types the tool's schema gives them: `city=Oslo days=3`; `k:=JSON` gives JSON.
    Exit code: 0 for a result, 1 for an error result, 2 if the call could not be made, 3 if no answer came in time.
    """
    secret = read_secret(token) if token else None
    document = fetch_toolset(url, secret)
    tool = _find(document, operation, url)
    invocation = {
        "operation": operation,
        "arguments": read_arguments(arguments, tool),
        "id": f"call_{secrets.token_hex(6)}",
        "group_id": f"cli_{secrets.token_hex(6)}",
        "toolset_version": document.version,
    }
    if callback_url:
        _send(document.endpoint, {**invocation, "callback_url": callback_url}, secret)
        click.echo(f"accepted as {invocation['id']}; the answer goes to {callback_url}", err=True)
        return
    if not is_loopback_host(urlsplit(url).hostname or ""):
        raise ConfigError(
            f"{url} is on another machine and could not send its answer to this one. "
            "Give --callback-url with an address that it can reach."
        )
    try:
        code = _call_and_wait(document.endpoint, invocation, secret, timeout, as_json)
    except KeyboardInterrupt:
        click.echo(f"not waiting any longer; the call {invocation['id']} goes on", err=True)
        code = 130
    sys.exit(code)


def _find(document: ToolsetDocument, operation: str, url: str) -> ToolDefinition:
    for tool in document.tools:
        if tool.name == operation:
            return tool
    known = ", ".join(tool.name for tool in document.tools)
    raise ConfigError(f"toolset {document.name!r} at {url} has no operation {operation!r}.\nIt offers: {known}.")


def _send(endpoint: str, invocation: dict[str, object], token: str | None) -> None:
    status, text = post(endpoint, invocation, token)
    if status != 200:
        raise DeliveryError(f"{endpoint} {explain(status, text)}")


def _call_and_wait(
    endpoint: str, invocation: Mapping[str, object], token: str | None, timeout: float | None, as_json: bool
) -> int:
    ends_at = None if timeout is None else time.monotonic() + timeout
    with Listener() as listener:
        _send(endpoint, {**invocation, "callback_url": listener.url}, token)
        while message := listener.next(None if ends_at is None else max(0.0, ends_at - time.monotonic())):
            click.echo(dump(message).decode() if as_json else _in_words(message))
            match message:
                case ToolResult() if not message.subscription:
                    return 1 if (message.text or "").startswith("Error:") else 0
                case SubscriptionEvent() if message.final:
                    return 0
    click.echo(f"no answer within {timeout:g} s; the call {invocation['id']} goes on", err=True)
    return 3


def _in_words(message: Callback) -> str:
    match message:
        case ToolResult():
            if message.text is not None:
                return message.text
            return "\n".join(getattr(item, "text", None) or f"[{item.type}]" for item in message.content or ())
        case SubscriptionEvent():
            return message.text
    return dump(message).decode()
