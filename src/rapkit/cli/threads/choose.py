"""`rapkit threads choose`."""

import sys
from typing import Any

import click

from rapkit import call_ids
from rapkit.cli.agent_selection import AgentSelection, ReachedAgent, query_options, reach_agent
from rapkit.cli.command_hints import CommandHints
from rapkit.cli.threads.questions import number_of, show_authorization, show_question
from rapkit.cli.threads.terminal_writer import TerminalWriter, print_json, say_done
from rapkit.cli.threads.thread_lookup import find_call, find_thread, path_of, thread_argument
from rapkit.errors import ConfigError
from rapkit.printable import printable

_MOST_WORDS = 2


@click.command(short_help="Answer what somebody is asked.")
@thread_argument
@click.argument("words", nargs=-1, metavar="[CALL] [CHOICE]")
@click.option("--text", metavar="TEXT", help="Answer in words, where the model asks.")
@click.option("--dismiss", is_flag=True, help="Do not answer: what the question says for that case stands.")
@click.option("--json", "as_json", is_flag=True, help="Print the open questions as the HTTP API has them.")
@query_options
def choose(
    selection: AgentSelection, thread: str, words: tuple[str, ...], text: str | None, dismiss: bool, as_json: bool
) -> None:
    """Answer what a THREAD asks: with the number of a CHOICE (from 1), or its label.

    Without a choice the questions are shown, and on a terminal you are asked. CALL is which of several questions is meant, by the id of
    the call that asks, or the beginning of it: c2.

    \b
    rapkit threads choose latest
    rapkit threads choose latest 2
    rapkit threads choose latest c2 "Not now"
    rapkit threads choose latest --text "In Oslo, please."
    """  # noqa: D301 - to click, a backspace means: leave the lines of this paragraph as they are
    if len(words) > _MOST_WORDS:
        raise click.UsageError("Give at most a call and a choice. A label of several words is put in quotes.")
    with reach_agent(selection, working=False) as agent:
        found = find_thread(agent.api, thread, agent.said)
        if as_json:
            print_json({key: found[key] for key in ("thread_id", "choices", "oauth")})
            return
        question, choice = _meant(found, words, agent.said, answers=text is not None or dismiss)
        if sum((text is not None, choice is not None, dismiss)) > 1:
            raise click.UsageError("Give one answer: a choice, --text or --dismiss.")
        if question is None:
            _show_all(found, agent.said)
            return
        if choice is None and text is None and not dismiss:
            show_question(TerminalWriter(), found["thread_id"], question, None if _is_terminal() else agent.said)
            if not _is_terminal():
                return
            choice, text = _asked(question)
            if choice is None and text is None:
                click.echo("It stays open.")
                return
        _answer(agent, found["thread_id"], question, choice, text)


def _meant(found: Any, words: tuple[str, ...], said: CommandHints, *, answers: bool) -> tuple[Any, str | None]:
    """The question that is meant, and the choice. None is meant if there are several, and nothing was said of them."""
    open_ = {each["call_id"]: each for each in found["choices"]}
    if not open_:
        if found["oauth"] and not words and not answers:
            return None, None
        see = said.threads(f"show {found['thread_id']}")
        waits = f" It waits to be authorised. See: {see}" if found["oauth"] else ""
        raise ConfigError(f"Thread {found['thread_id']} asks nothing.{waits}")
    if len(words) == _MOST_WORDS:
        return open_[find_call(words[0], open_, "open question of a call")], words[1]
    if len(open_) == 1:
        question = next(iter(open_.values()))
        names_call = (
            bool(words) and words[0] not in question["choices"] and call_ids.find_call(words[0], open_) is not None
        )
        return question, None if not words or names_call else words[0]
    if words:
        return open_[find_call(words[0], open_, "open question of a call")], None
    if answers:
        raise ConfigError(f"There are several questions. Say which call is answered: {', '.join(open_)}.")
    return None, None


def _show_all(found: Any, said: CommandHints) -> None:
    writer = TerminalWriter()
    for question in found["choices"]:
        show_question(writer, found["thread_id"], question, said, named=True)
        writer.line()
    for each in found["oauth"]:
        show_authorization(writer, each)


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _asked(question: Any) -> tuple[str | None, str | None]:
    """What the user at the terminal answers: a choice, a text, or neither."""
    selection = "Your choice" if question["choices"] else "Your answer"
    while True:
        given = click.prompt(f"{selection} (nothing to leave it open)", default="", show_default=False).strip()
        if not given:
            return None, None
        try:
            number_of(given, question["choices"])
        except ConfigError as error:
            if question["in_words"] and (not question["choices"] or not given.isdigit()):
                return None, given
            click.echo(printable(str(error)), err=True)
            continue
        return given, None


def _answer(agent: ReachedAgent, thread_id: str, question: Any, choice: str | None, text: str | None) -> None:
    call_id, when = question["call_id"], {"asked_at": question["asked_at"]}
    if text is not None:
        agent.api.post(path_of(thread_id, "calls", call_id, "answer"), {"text": text, **when})
        say_done(agent, f"Answered {printable(question['prompt'])!r}.")
        return
    try:
        selected = None if choice is None else number_of(choice, question["choices"])
    except ConfigError as error:
        words = ' Or answer in words: --text "…".' if question["in_words"] and question["choices"] else ""
        raise ConfigError(f"{printable(str(error))}{words}") from None
    agent.api.post(path_of(thread_id, "calls", call_id, "choice"), {"selected": selected, **when})
    if selected is None:
        say_done(agent, f"Dismissed {printable(question['prompt'])!r}.")
        return
    say_done(agent, f"Chose {question['choices'][selected]!r} for {question['prompt']!r}.")
