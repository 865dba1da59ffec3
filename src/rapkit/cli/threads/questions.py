"""Show a thread's open questions, and how to answer them."""

import time
from collections.abc import Sequence
from typing import Any

from rich.text import Text

from rapkit.cli.command_hints import CommandHints
from rapkit.cli.threads.terminal_writer import TerminalWriter
from rapkit.cli.threads.time_format import ago
from rapkit.errors import ConfigError

_INDENT = 2


def show_choices(writer: TerminalWriter, prompt: str, choices: Sequence[str], default: int | None, stands: str) -> None:
    """A question with its choices, numbered from 1 as people count; `stands` says why the default is one."""
    writer.line(Text(prompt, "bold"), indent=_INDENT, first="? ")
    for number, choice in enumerate(choices):
        note = f" ({stands})" if number == default else ""
        writer.line(choice + note, indent=_INDENT + 4, first=f"  {number + 1:>2}")


def show_question(
    writer: TerminalWriter, thread_id: str, question: Any, said: CommandHints | None, *, named: bool = False
) -> None:
    """A question, and how it is answered, unless `said` is None; `named`: the answer has to say which call it is for."""
    show_choices(writer, question["prompt"], question["choices"], question["default"], "if dismissed")
    writer.line(
        Text(f"asked {ago(question['asked_at'], time.time())} by {question['call_id']}", "dim"),
        indent=_INDENT,
        first="  ",
    )
    if said is not None:
        answer = "NUMBER" if question["choices"] else '--text "…"'
        call = f" {question['call_id']}" if named else ""
        writer.whole(f"  Answer: {said.threads(f'choose {thread_id}{call} {answer}')}")


def show_authorization(writer: TerminalWriter, authorization: Any) -> None:
    """Where to authorise a tool. The URL is not wrapped: a broken one cannot be opened."""
    writer.line(Text("A tool wants to be authorised. Open:", "bold"), indent=_INDENT, first="? ")
    writer.whole(f"  {authorization['auth_url']}")
    writer.line(Text(f"asked by {authorization['call_id']}", "dim"), indent=_INDENT, first="  ")


def number_of(given: str, choices: Sequence[str]) -> int:
    """The choice that the user means, counted from 0: by its number from 1, like 2 or #2, or by its label in any case."""
    labels = [choice.casefold() for choice in choices]
    meant = {number for number, label in enumerate(labels) if label == given.strip().casefold()}
    if given in choices:
        meant = {choices.index(given)}
    digits = given.strip().removeprefix("#")
    if digits.isascii() and digits.isdigit() and 1 <= int(digits[:9]) <= len(choices):
        if given.strip().startswith("#"):
            return int(digits) - 1
        meant.add(int(digits) - 1)
    if len(meant) == 1:
        return meant.pop()
    if meant:
        numbers = " or ".join(f"#{number + 1}" for number in sorted(meant))
        raise ConfigError(f"{given!r} could be more than one of the choices. Say {numbers}.")
    if not choices:
        raise ConfigError('This question has no choices. Answer it in words, with --text "…", or --dismiss it.')
    possible = ", ".join(f"{number} {choice!r}" for number, choice in enumerate(choices, 1))
    raise ConfigError(f"{given!r} is none of the choices: {possible}.")
