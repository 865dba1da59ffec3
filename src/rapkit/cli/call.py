"""`rapkit call`."""

import secrets
import sys
import threading
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

import click

from rapkit.cli.arguments import read_arguments
from rapkit.cli.listener import Listener
from rapkit.cli.remote import explain, fetch_toolset, post, printable, read_token
from rapkit.errors import ConfigError, DeliveryError
from rapkit.http.callers import is_loopback_host
from rapkit.protocol import (
    Callback,
    OAuthRequest,
    SubscriptionEvent,
    ToolDefinition,
    ToolResult,
    ToolsetDocument,
    UserChoice,
    dump,
)


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

    Values are read as the types the tool's schema gives them; after := stands JSON.

    \b
    rapkit call http://127.0.0.1:8001 forecast city=Oslo days=3
    rapkit call http://127.0.0.1:8001 label issue=7 tags:='["bug", "urgent"]'

    \b
    Exit code: 0  a result
               1  a result that is an error
               2  the call could not be made
               3  no answer came in time
    """  # noqa: D301 - to click, a backspace means: leave the lines of this paragraph as they are
    if timeout is not None and not 0 < timeout <= threading.TIMEOUT_MAX:
        raise ConfigError("--timeout is a number of seconds above 0. To wait for ever, leave it out.")
    secret = read_token(token)
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
    raise ConfigError(f"toolset {document.name!r} at {url} has no operation {operation!r}. It offers: {known}.")


def _send(endpoint: str, invocation: dict[str, object], token: str | None) -> None:
    status, text = post(endpoint, invocation, token)
    if status != 200:
        raise DeliveryError(f"{endpoint} {explain(status, text)}")


def _call_and_wait(
    endpoint: str, invocation: Mapping[str, object], token: str | None, timeout: float | None, as_json: bool
) -> int:
    ends_at = None if timeout is None else time.monotonic() + timeout
    awaited = "answer"
    with Listener() as listener:
        _send(endpoint, {**invocation, "callback_url": listener.url}, token)
        while message := listener.next(None if ends_at is None else max(0.0, ends_at - time.monotonic())):
            click.echo(dump(message).decode() if as_json else printable(_in_words(message)))
            match message:
                case ToolResult() if not message.subscription:
                    return 1 if _in_words(message).startswith("Error:") else 0
                case SubscriptionEvent() if message.final:
                    return 0
            awaited = "end"
    click.echo(f"no {awaited} within {timeout:g} s; the call {invocation['id']} goes on", err=True)
    return 3


def _in_words(message: Callback) -> str:
    match message:
        case ToolResult(text=None):
            # Images are named, not shown: their bytes mean nothing to a terminal.
            return "\n".join(
                item.text if item.type == "text" else f"[{item.mediaType}]" for item in message.content or ()
            )
        case ToolResult() | SubscriptionEvent():
            return message.text or ""
        case OAuthRequest():
            return f"It needs your authorisation: {message.auth_url}"
        case UserChoice():
            choices = [f"  {number}: {choice}" for number, choice in enumerate(message.choices)]
            choices[message.default] += " (the default)"
            return "\n".join([message.prompt, *choices, f"It waits for a choice, to be sent to {message.response_url}"])
    return dump(message).decode()
