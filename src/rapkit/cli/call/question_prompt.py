"""Prompt for answers to a call's questions on the terminal."""

import contextlib
import json
import shlex
import sys
from collections import deque
from collections.abc import Callable, Iterator

import click

from rapkit.cli.call.keyboard import Keyboard, Typed
from rapkit.cli.call.outgoing_call import OutgoingCall
from rapkit.cli.threads.questions import number_of, show_choices
from rapkit.cli.threads.terminal_writer import TerminalWriter
from rapkit.errors import ConfigError
from rapkit.printable import printable
from rapkit.protocol import UserChoice


class QuestionPrompt:
    """Has questions answered one after the other, each once. All of it is on standard error.

    Without a terminal, or when the answer would go to another server, it prints how to answer instead.
    """

    def __init__(self, call: OutgoingCall, hand_on: Callable[[Typed], None], *, as_json: bool) -> None:
        self._call = call
        self._shows = not as_json
        is_terminal = sys.stdin.isatty() and sys.stderr.isatty() and not as_json
        self._keyboard = Keyboard(hand_on) if is_terminal else None
        self._seen: set[str] = set()
        self._open: deque[UserChoice] = deque()

    def ask(self, question: UserChoice) -> None:
        """One more question. One that was asked before is the same: its server did not know that it came."""
        if question.response_url in self._seen:
            return
        self._seen.add(question.response_url)
        if self._keyboard is not None and self._call.may_answer(question):
            self._open.append(question)
            if len(self._open) == 1:
                self._show(question, self._keyboard)
            return
        if self._shows:
            _print(question)
        _say_how(question)

    def typed(self, typed: Typed) -> None:
        """Handle typed input: an answer, if a question was shown by then."""
        if typed.line is None:
            self._nobody_types()
            return
        if not self._open or self._keyboard is None or self._keyboard.is_forgotten(typed):
            return
        question = self._open[0]
        try:
            selected = number_of(typed.line, question.choices) if typed.line.strip() else question.default
        except ConfigError as error:
            click.echo(printable(str(error)), err=True)
            self._prompt()
            return
        self._answer(question, selected, self._keyboard)

    def _nobody_types(self) -> None:
        """Stop asking: from now on the questions are only printed."""
        self._keyboard = None
        if self._open:
            click.echo(err=True)  # not behind the prompt
        while self._open:
            _say_how(self._open.popleft())

    def _answer(self, question: UserChoice, selected: int, keyboard: Keyboard) -> None:
        problem, is_final = self._call.answer(question, selected)
        if not is_final:
            keyboard.listen()  # an Enter too many must not be the default of what is asked for again
        if problem is None:
            click.echo(f"Chose {printable(question.choices[selected])!r}.", err=True)
        else:
            click.echo(f"The choice was not taken: {problem}", err=True)
        if not is_final:
            self._prompt()
            return
        self._open.popleft()
        if self._open:
            self._show(self._open[0], keyboard)

    @contextlib.contextmanager
    def aside(self, *, over: bool) -> Iterator[None]:
        """Something else is printed meanwhile: not behind the prompt, which comes again, unless all is `over`."""
        if self._open:
            click.echo(err=True)
        yield
        if self._open and not over:
            self._prompt()

    def _show(self, question: UserChoice, keyboard: Keyboard) -> None:
        keyboard.listen()
        _print(question)
        self._prompt()

    def _prompt(self) -> None:
        click.echo(f"Your choice (nothing for {self._open[0].default + 1}): ", nl=False, err=True)


def _print(question: UserChoice) -> None:
    show_choices(TerminalWriter(error=True), question.prompt, question.choices, question.default, "the default")


def _say_how(question: UserChoice) -> None:
    body = json.dumps({"id": question.id, "selected": question.default})
    command = f"curl -d {shlex.quote(body)} {shlex.quote(question.response_url)}"
    label = " ".join(printable(question.choices[question.default]).split())
    click.echo(f"It waits for your choice. For {label!r}: {printable(command)}  (selected counts from 0)", err=True)
