"""A chat without a full terminal: lines in, lines out."""

import itertools
import secrets
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click

from rapkit.cli.agent_api import AgentApi, AgentRefused, StreamEvent
from rapkit.cli.chat.block import Block, clipped, plain
from rapkit.cli.chat.child_messages import told_with_last_words
from rapkit.cli.chat.commands import COMMANDS, read_command, too_much_said, unknown_command
from rapkit.cli.chat.displayed_thread import DisplayedQuestion, DisplayedThread
from rapkit.cli.chat.join_thread import join
from rapkit.cli.chat.journal_renderer import problem
from rapkit.cli.reconnecting_stream import ConnectionLost, Reconnected, ReconnectingStream
from rapkit.cli.threads.thread_lookup import path_of
from rapkit.errors import RapkitError

_WIDTH = 100_000  # lines are not broken: who reads them may be a program
_PATIENCE = 60.0
_DISMISS = "-"
_WIDEST_NUMBER = 9
_INSTEAD = "`rapkit threads` lists, shows, answers, cancels and closes without one."
_HELP = f"""\
Each line is a message, or the answer to a question. To say a line like these to the agent, begin it with a space:
  /help  show this
  /quit  leave (Ctrl-D does so too)
What else a chat can do needs a terminal that can move its cursor; {_INSTEAD}"""


class PlainChat:
    """Each line of standard input is a message, or the answer to a question; what comes of it is printed, and then the next one is read.

    `RapkitError` if one cannot be sent, unless there is a `prompt`: then the user is told, and goes on. Where they are `typed`,
    lines like /help are commands: who types them knows a chat, and does not mean to say them to a model.
    """

    def __init__(self, api: AgentApi, user_id: str | None, *, prompt: bool, typed: bool) -> None:
        self._api = api
        self._typed = typed
        self._user_id = user_id
        self._prompt = prompt
        self._displayed = DisplayedThread(asked_elsewhere=False)
        self._events: Iterator[StreamEvent | ConnectionLost | Reconnected] | None = None
        self._offered: set[tuple[str, float]] = set()

    def run(self, thread_id: str | None) -> None:
        """Run until the input ends, or the user leaves."""
        if thread_id is not None:
            self._displayed, blocks, after = join(self._api, thread_id, asked_elsewhere=False)
            _print(blocks)
            self._events = iter(ReconnectingStream(self._api, thread_id, after))
            self._ask_what_is_not_shown()
            self._asks()
        for number, line in self._lines():
            try:
                text = line.decode()
                command = read_command(text.rstrip()) if self._typed else None
                if command is None:
                    self._say(text.strip())
                elif not _carry_out(*command):
                    break
            except (UnicodeDecodeError, AgentRefused) as error:
                refused = isinstance(error, AgentRefused)
                if not self._prompt:
                    # No user reads along who could correct it, and what follows may depend on it.
                    why = (
                        f"was not taken: {error}"
                        if refused
                        else "is not UTF-8, so it was not sent, nor what follows it."
                    )
                    raise RapkitError(f"Line {number} of the input {why}") from error
                _print([problem(str(error) if refused else "That is not UTF-8, so it was not sent.")])
                if self._displayed.is_closed:
                    break

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """Those with something in them, with their numbers."""
        for number in itertools.count(1):
            if self._prompt:
                click.echo("> ", nl=False)
            line = sys.stdin.buffer.readline()
            if not line:
                return
            if line.strip():
                yield number, line

    def _say(self, line: str) -> None:
        question = next(iter(self._displayed.questions.values()), None)
        answer = _answer(question, line) if question else None
        if question is not None and answer is not None:
            how, body = answer
            path = path_of(str(self._displayed.id), "calls", question.call_id, how)
            self._post(path, {**body, "asked_at": question.asked_at})
            self._hear(lambda entry: bool(entry["kind"] == "chosen" and entry["call_id"] == question.call_id))
        elif question is not None and question.choices and line.isdecimal():
            _print([problem(f"There is no choice {clipped(line, _WIDEST_NUMBER)}: {_possible(question)}.")])
        elif self._displayed.id is None:
            body = {"text": line} | ({"user_id": self._user_id} if self._user_id else {})
            self._displayed = DisplayedThread(self._post("threads", body)["thread_id"], asked_elsewhere=False)
            self._events = iter(ReconnectingStream(self._api, str(self._displayed.id)))
            self._hear(lambda entry: bool(entry["kind"] == "user"))
        else:
            id = self._post(path_of(self._displayed.id, "messages"), {"text": line})["message_id"]
            self._hear(lambda entry: bool(entry["kind"] == "user" and entry.get("id") == id))

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        return self._api.post(path, body, key=secrets.token_urlsafe(), patience=_PATIENCE)

    def _hear(self, is_ours: Callable[[dict[str, Any]], bool]) -> None:
        """Print what happens, from the entry that is ours on, until the model has answered it, asks something, or has stopped."""
        begun = said = False
        status: str | None = None
        for happened in self._events or ():
            happened = told_with_last_words(self._api, happened)
            blocks = self._displayed.take(happened)
            match happened:
                case ConnectionLost(text):
                    click.echo(f"rapkit: {text} Waiting for it.", err=True)
                case StreamEvent("entry", entry):
                    if not begun and is_ours(entry):
                        begun, status = True, None
                        blocks = blocks if entry["kind"] != "user" else []
                    elif entry["kind"] == "assistant":
                        said = begun and not entry.get("calls")
                    elif entry["kind"] in ("parked", "closed"):
                        status = entry["kind"]
                    elif entry["kind"] == "ignored" and entry["what"] == "user":
                        begun, status = True, "idle"
                case StreamEvent("status", data):
                    status = data["status"]
            _print(blocks)
            if begun and (self._asks() or status in ("idle", "parked", "closed") or (said and status != "running")):
                return

    def _ask_what_is_not_shown(self) -> None:
        """Questions that are older than the lines of a thread that are shown when one comes to it."""
        transcript = self._displayed.transcript
        for each in self._displayed.questions.values():
            if not transcript.has_asked(each.call_id):
                asked = {"call_id": each.call_id, "prompt": each.prompt, "choices": each.choices}
                _print(transcript.blocks({"kind": "choice", **asked, "default": each.default}))

    def _asks(self) -> bool:
        """Whether there is a question that the user has not been asked yet; now they are."""
        new = [each for each in self._displayed.questions.values() if each.key not in self._offered]
        self._offered |= {each.key for each in new}
        if new:
            ways = [*(["a number"] if new[0].choices else []), *(["words"] if new[0].in_words else [])]
            click.echo(f"(answer with {' or '.join(ways)}; {_DISMISS} dismisses it)")
        return bool(new)


def _carry_out(name: str, argument: str) -> bool:
    """Do what a command says as far as lines can do it; False if that is to leave."""
    if argument and name in ("", "help", "quit", "exit"):
        _print([problem(too_much_said(name, argument))])
    elif name in ("quit", "exit"):
        return False
    elif name in ("", "help"):
        _print([Block(_HELP)])
    elif name in COMMANDS:
        _print([problem(f"/{name} needs a terminal that can move its cursor; {_INSTEAD}")])
    else:
        _print([problem(unknown_command(name))])
    return True


def _answer(question: DisplayedQuestion, line: str) -> tuple[str, dict[str, Any]] | None:
    """How a line answers a question; None if it does not."""
    numbers = [str(number) for number, _ in enumerate(question.choices, start=1)]
    if line in numbers:
        return "choice", {"selected": numbers.index(line)}
    if line == _DISMISS:
        return "choice", {"selected": None}
    return ("answer", {"text": line}) if question.in_words else None


def _possible(question: DisplayedQuestion) -> str:
    count = len(question.choices)
    return f"it is {'1' if count == 1 else f'one of 1 to {count}'}, or {_DISMISS} to dismiss the question"


def _print(blocks: list[Block]) -> None:
    if blocks:
        click.echo(plain(blocks, _WIDTH))
