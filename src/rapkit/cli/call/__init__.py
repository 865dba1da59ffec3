"""`rapkit call`."""

import json
import secrets
import sys
import threading
import time
from urllib.parse import urlsplit

import click

from rapkit.cli.arguments import read_arguments
from rapkit.cli.call.callback_listener import CallbackListener
from rapkit.cli.call.keyboard import Typed
from rapkit.cli.call.outgoing_call import OutgoingCall
from rapkit.cli.call.question_prompt import QuestionPrompt
from rapkit.cli.call.termination import Terminated, raise_on_first_signal
from rapkit.cli.credentials import Credentials, credential_options
from rapkit.cli.options import in_seconds
from rapkit.cli.progress import PROGRESS, read_progress
from rapkit.cli.tool_server_client import fetch_toolset
from rapkit.errors import ConfigError, DeliveryError
from rapkit.http.authentication import is_loopback_host
from rapkit.printable import printable
from rapkit.protocol import (
    Callback,
    OAuthRequest,
    SubscriptionEvent,
    ToolDefinition,
    ToolResult,
    ToolsetDocument,
    UserChoice,
    ViewUpdate,
    dump,
)
from rapkit.protocol.content import is_error_text

_LAST_WORDS = 2.0
_LONGEST_VIEW = 100


@click.command()
@click.argument("url")
@click.argument("operation")
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE | KEY:=JSON]...")
@credential_options
@click.option("--callback-url", metavar="URL", help="Have the answer sent there instead of waiting for it here.")
@click.option(
    "--timeout",
    callback=in_seconds,
    metavar="DURATION",
    help="How long to wait for the answer, like 45s or 5m.  [default: for ever]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the messages as they come, one a line.")
def command(
    url: str,
    operation: str,
    arguments: tuple[str, ...],
    credentials: Credentials,
    callback_url: str | None,
    timeout: float | None,
    as_json: bool,
) -> None:
    """Call OPERATION of the tool server at URL and wait for its answer, or for all that a subscription sends.

    If you stop waiting, with Ctrl-C or after --timeout, the server is told to cancel the call: nobody else could be sent the answer. A
    second Ctrl-C does not wait for that. With --callback-url the call goes on, whatever happens here.

    What the tool asks meanwhile, you are asked on the terminal. Standard output has what it answers, and nothing else.

    Values are read as the types the tool's schema gives them; after := stands JSON.

    \b
    rapkit call http://127.0.0.1:8001 forecast city=Oslo days=3
    rapkit call http://127.0.0.1:8001 label issue=7 tags:='["bug", "urgent"]'

    \b
    Exit code: 0  a result
               1  a result that is an error, or a subscription that ended with one
               2  the call could not be made
               3  no answer came in time
             130  Ctrl-C
    """  # noqa: D301 - to click, a backspace means: leave the lines of this paragraph as they are
    document = fetch_toolset(url, credentials).document
    tool = _find(document, operation, url)
    invocation = {
        "operation": operation,
        "arguments": read_arguments(arguments, tool),
        "id": f"call_{secrets.token_hex(6)}",
        "group_id": f"cli_{secrets.token_hex(6)}",
        "toolset_version": document.version,
    }
    call = OutgoingCall(url, document.endpoint, invocation, credentials)
    if callback_url:
        call.send(callback_url)
        click.echo(f"accepted as {call.id}; the answer goes to {callback_url}", err=True)
        return
    if not is_loopback_host(urlsplit(url).hostname or ""):
        raise ConfigError(
            f"{url} is on another machine and could not send its answer to this one. "
            "Give --callback-url with an address that it can reach."
        )
    try:
        code = _call_and_wait(call, timeout, as_json)
    except Terminated as told:
        code = told.exit_code
    sys.exit(code)


def _find(document: ToolsetDocument, operation: str, url: str) -> ToolDefinition:
    for tool in document.tools:
        if tool.name == operation:
            return tool
    known = ", ".join(tool.name for tool in document.tools)
    raise ConfigError(f"toolset {document.name!r} at {url} has no operation {operation!r}. It offers: {known}.")


def _call_and_wait(call: OutgoingCall, timeout: float | None, as_json: bool) -> int:
    """The exit code, once it has ended or it is time; or `Terminated`. If it has not ended by then, it is cancelled."""
    ends_at = None if timeout is None else time.monotonic() + timeout
    with CallbackListener() as listener, raise_on_first_signal():
        answering = QuestionPrompt(call, listener.hand_on, as_json=as_json)
        try:
            call.send(listener.url)
            while message := listener.next(_left(ends_at)):
                if isinstance(message, Typed):
                    answering.typed(message)
                    continue
                ended = call.heard(message)
                if as_json:
                    click.echo(dump(message).decode())
                if isinstance(message, UserChoice):
                    answering.ask(message)
                elif not as_json:
                    with answering.aside(over=ended):
                        _show(message)
                if ended:
                    return 1 if _is_error(message) else 0
        except DeliveryError:
            if not call.was_refused:
                call.cancel()  # perhaps it came there all the same, and only the acknowledgement was lost
            raise
        except BaseException as left:
            # Also when the output is closed, as after `| head -1`.
            if isinstance(left, Terminated) and sys.stderr.isatty():
                click.echo(err=True)  # not behind the ^C
            _cancel(call, listener, "not waiting any longer")
            raise
        with answering.aside(over=True):
            _cancel(call, listener, f"no {'end' if call.is_subscription else 'answer'} within {timeout:g} s")
    return 3


def _cancel(call: OutgoingCall, listener: CallbackListener, why: str) -> None:
    if call.has_ended:
        return
    problem = call.cancel()
    if problem is not None:
        click.echo(f"{why}; the call {call.id} goes on, for the server could not be told: {problem}", err=True)
        return
    click.echo(f"{why}; cancelled the call {call.id} on the server", err=True)
    if call.is_subscription:
        return
    # What it still has to say is that it was cancelled, and that is retried for days unless it is received.
    ends_at = time.monotonic() + _LAST_WORDS
    while message := listener.next(_left(ends_at)):
        if not isinstance(message, Typed) and call.heard(message):
            return


def _left(ends_at: float | None) -> float | None:
    return None if ends_at is None else min(max(0.0, ends_at - time.monotonic()), threading.TIMEOUT_MAX)


def _show(message: Callback) -> None:
    """What comes of a call: what it answers on standard output, what goes on meanwhile on standard error."""
    match message:
        case ToolResult() | SubscriptionEvent():
            click.echo(printable(_answer_of(message)))
        case OAuthRequest():
            click.echo(f"It needs your authorisation: {printable(message.auth_url)}", err=True)
        case ViewUpdate():
            click.echo(printable(_view_of(message)), err=True)


def _answer_of(message: ToolResult | SubscriptionEvent) -> str:
    if isinstance(message, ToolResult) and message.text is None:
        # Images are named, not shown: their bytes mean nothing to a terminal.
        return "\n".join(item.text if item.type == "text" else f"[{item.mediaType}]" for item in message.content or ())
    return message.text or ""


def _is_error(message: Callback) -> bool:
    """Whether the last message of a call says that it failed. Results and events have no other mark for that than how they begin."""
    return isinstance(message, ToolResult | SubscriptionEvent) and is_error_text(_answer_of(message))


def _view_of(message: ViewUpdate) -> str:
    """A view in one line."""
    progress = read_progress(message.content) if message.view_type == PROGRESS else None
    if progress is not None:
        return progress.in_words
    content = message.content
    text = " ".join((content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)).split())
    return f"{message.view_type}: {text if len(text) <= _LONGEST_VIEW else f'{text[: _LONGEST_VIEW - 1]}…'}"
