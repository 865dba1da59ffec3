"""`rapkit ask`."""

import functools
import sys
import time
from collections.abc import Mapping
from typing import Any

import click

from rapkit.cli.agent_api import AgentRefused, AgentTimeout, AgentUnreachable
from rapkit.cli.agent_selection import AgentSelection, ReachedAgent, agent_options, reach_agent
from rapkit.cli.ask.answer_wait import AnswerOutcome, AnswerWait, WaitStart
from rapkit.cli.ask.resume import beginning_of
from rapkit.cli.command_hints import CommandHints
from rapkit.cli.options import in_seconds
from rapkit.cli.threads.questions import show_authorization, show_question
from rapkit.cli.threads.terminal_writer import TerminalWriter, print_json, when_it_works
from rapkit.cli.threads.thread_lookup import complete_thread, find_thread, path_of
from rapkit.errors import ConfigError
from rapkit.logs import set_up_logging
from rapkit.printable import printable

_CODES = {"answered": 0, "sent": 0, "stopped": 1, "late": 3, "asks": 4}
_INTERRUPTED = 130
_OF_THE_THREAD = ("status", "pending_calls", "choices", "oauth", "missing_toolsets")
_PATIENCE = 15.0
_TO_ASK = 3.0  # a time that is shorter is for the answer, if the agent is slow to take the question
_LAST_LOOK = 5.0  # at the thread when the time is over, for those who want to know what it is at


@click.command()
@click.argument("text", required=False)
@click.option(
    "--thread",
    metavar="THREAD",
    shell_complete=complete_thread,
    help='Go on in this thread: its id, an end of it, or "latest".  [default: a new one]',
)
@click.option("--user-id", metavar="ID", help="The user a new thread works for, which tools are told.")
@click.option("--timeout", callback=in_seconds, metavar="DURATION", help="How long to wait, like 45s or 5m.")
@click.option("--no-wait", is_flag=True, help="Print the thread's id and end. It is answered all the same.")
@click.option("--resume", is_flag=True, help="Say nothing new: wait for what --thread is at, or print its last answer.")
@click.option("--wait-for-user", is_flag=True, help="Wait on when a person is asked something, instead of exit code 4.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object about what became of it.")
@agent_options
def command(
    selection: AgentSelection,
    text: str | None,
    thread: str | None,
    user_id: str | None,
    timeout: float | None,
    no_wait: bool,
    resume: bool,
    wait_for_user: bool,
    as_json: bool,
) -> None:
    """Ask an agent something and print its answer: for scripts, and in a hurry.

    TEXT is what to say; without it, or with -, standard input is read. The agent is the one that runs, or the one of rapkit.toml, which
    then runs as long as this command. Standard output has the answer and nothing else.

    \b
    rapkit ask "Will it rain in Oslo?"
    git diff | rapkit ask --timeout 2m -
    rapkit ask --thread latest "And tomorrow?"

    \b
    Exit code: 0  an answer, or with --no-wait: it is on disk
               1  the thread stopped without one
               2  it could not be asked
               3  no answer came in time
               4  a person is asked something first
             130  Ctrl-C
    After 3, 4 and 130 the thread goes on: wait again with --resume.

    \b
    --json     thread_id, message_id
               outcome: answered, sent, stopped, late or asks
               text, seq: the answer, and its line in the journal
               problem: why there is none
               usage: what the model took for it; cost in US dollars
               status, pending_calls, choices, oauth, missing_toolsets:
               the thread's
    """  # noqa: D301 - to click, a backspace means: leave the lines of this paragraph as they are
    _check_options(text, thread, user_id, resume=resume, no_wait=no_wait, waits=timeout is not None or wait_for_user)
    said = None if resume else _text(text)
    set_up_logging("text", "warning")
    begun = time.monotonic()
    ends_at = None if timeout is None else begun + timeout
    try:
        with reach_agent(selection, working=not no_wait, ends_at=ends_at and max(ends_at, begun + _TO_ASK)) as agent:
            asking = _AskCommand(agent, said, ends_at, waits_for_user=wait_for_user)
            try:
                thread_id = asking.ask(thread, user_id)
                outcome = AnswerOutcome("sent") if no_wait else asking.wait()
            except KeyboardInterrupt:
                asking.interrupted()
                sys.exit(_INTERRUPTED)
            code = _CODES[outcome.word]
            if outcome.word == "late":
                agent.leave_at_once()
            if as_json:
                print_json(asking.as_json(outcome))
            elif outcome.text is not None:
                click.echo(printable(outcome.text))
            elif no_wait:
                click.echo(thread_id)
            asking.explain(outcome, timeout)
    except AgentTimeout:
        if as_json:
            print_json(_document(AnswerOutcome("late")))
        _tell(f"rapkit: The agent did not answer within {timeout:g} s. {_perhaps(selection.said)}")
        code = _CODES["late"]
    sys.exit(code)


def _check_options(
    text: str | None, thread: str | None, user_id: str | None, *, resume: bool, no_wait: bool, waits: bool
) -> None:
    """`UsageError` for what cannot be meant together; `waits` if it was said how to wait."""
    if thread is None and resume:
        raise click.UsageError("--resume needs a --thread.")
    if thread is not None and user_id is not None:
        raise click.UsageError("--user-id is for new threads. A thread keeps the user it was begun for.")
    if no_wait and (resume or waits):
        raise click.UsageError("--no-wait waits for nothing: leave out --resume, --timeout and --wait-for-user.")
    if resume and text is not None:
        raise click.UsageError("--resume says nothing new: leave out the text.")


def _text(given: str | None) -> str:
    if given is None and sys.stdin.isatty():
        raise click.UsageError('Say what to ask, like "Will it rain?", or give it on standard input.')
    if given is None or given == "-":
        try:
            given = sys.stdin.buffer.read().decode()
        except UnicodeDecodeError:
            raise ConfigError("What came on standard input is not UTF-8, so it is no text.") from None
    if not given.strip():
        raise click.UsageError("There is nothing to ask: the text is empty.")
    return given


def _tell(line: str) -> None:
    # Only what we say ourselves begins at the edge.
    click.echo(printable(line).replace("\n", "\n  "), err=True)


def _perhaps(said: CommandHints) -> str:
    return f"Perhaps it was asked all the same: see {said.threads('list')}"


def _document(outcome: AnswerOutcome, thread: Mapping[str, Any] | None = None, **known: Any) -> dict[str, Any]:
    """What `--json` prints."""
    about = {
        "thread_id": None,
        "message_id": None,
        "outcome": outcome.word,
        "text": outcome.text,
        "seq": outcome.seq,
        "problem": outcome.problem or None,
        "usage": None,
        **known,
    }
    return about | {key: (thread or {}).get(key) for key in _OF_THE_THREAD}


class _AskCommand:
    """One message to a thread, and what becomes of it."""

    def __init__(self, agent: ReachedAgent, text: str | None, ends_at: float | None, *, waits_for_user: bool) -> None:
        self._agent = agent
        self._api = agent.api
        self._text = text
        self._ends_at = ends_at
        self._waits_for_user = waits_for_user
        self._thread_id = ""
        self._beginning = WaitStart()
        self._awaiting: AnswerWait | None = None

    def ask(self, thread: str | None, user_id: str | None) -> str:
        """Say it, once and durably; the id of the thread."""
        body = {"text": self._text, "user_id": user_id}
        if thread is None:
            made = self._api.post("threads", {key: value for key, value in body.items() if value}, patience=_PATIENCE)
            self._thread_id = made["thread_id"]
            self._note(f"thread {self._thread_id}")
            return self._thread_id
        found = find_thread(self._api, thread, self._agent.said)
        self._thread_id = found["thread_id"]
        if self._text is None:
            self._beginning = beginning_of(self._api, found)
            return self._thread_id
        sent = self._api.post(path_of(self._thread_id, "messages"), {"text": self._text}, patience=_PATIENCE)
        self._beginning = WaitStart(str(found["length"]), sent["message_id"])
        return self._thread_id

    def wait(self) -> AnswerOutcome:
        """For the answer to that, and no other; or if nothing was said, for what the thread is at."""
        if not self._agent.works:
            _tell(self._nobody_works)
        self._awaiting = AnswerWait(
            self._api,
            self._thread_id,
            self._beginning,
            said=self._agent.said,
            ends_at=self._ends_at,
            waits_for_user=self._waits_for_user,
            tell=_tell,
            show=self._note,
        )
        return self._awaiting.wait()

    def interrupted(self) -> None:
        """Say what becomes of it when the command stops waiting; on a terminal not behind the ^C."""
        self._note("")
        _tell(f"Not waiting any longer. {self.what_next()}")

    def _note(self, line: str) -> None:
        """Show what goes on meanwhile on the terminal."""
        if sys.stderr.isatty():
            _tell(line)

    # What became of it

    def as_json(self, outcome: AnswerOutcome) -> Any:
        """What `--json` prints."""
        return _document(
            outcome,
            self._as_it_is,
            thread_id=self._thread_id,
            message_id=self._awaiting.message_id if self._awaiting else self._beginning.message_id,
            usage=self._awaiting.usage if self._awaiting else None,
        )

    @functools.cached_property
    def _as_it_is(self) -> Any:
        """The thread at last; None if the agent does not answer just now. What we know is true all the same."""
        self._api.ends_at = max(self._api.ends_at or 0.0, time.monotonic() + _LAST_LOOK)
        try:
            return self._api.get(path_of(self._thread_id))
        except (AgentUnreachable, AgentTimeout, AgentRefused):
            return None

    def explain(self, outcome: AnswerOutcome, timeout: float | None) -> None:
        """Say on standard error why there is no answer, and what to do; and what the model had to do without."""
        if outcome.word != "sent":
            self._tell_of_missing_tools()
        match outcome.word:
            case "sent" if not self._agent.works:
                _tell(f"rapkit: {self._nobody_works}")
            case "stopped":
                _tell(f"rapkit: {self._thread} did not answer. {outcome.problem} See: {self._show}")
            case "late":
                _tell(f"rapkit: {self._thread} did not answer within {timeout:g} s. {self.what_next()}")
                for call in (self._as_it_is or {}).get("pending_calls", ()):
                    if problem := call.get("callback_problem"):
                        _tell(f"{call['name']}: {problem}")
            case "asks":
                self._show_what_is_asked()

    def _tell_of_missing_tools(self) -> None:
        if self._agent.is_ours:
            return  # its log says so here
        for each in (self._as_it_is or {}).get("missing_toolsets", ()):
            _tell(f"rapkit: The tools of {each['server']} were missing: {each['reason']}")

    @property
    def _nobody_works(self) -> str:
        return f"Nobody works on threads now: it is answered {when_it_works(self._agent)}."

    @property
    def _thread(self) -> str:
        return f"Thread {self._thread_id}"

    def what_next(self) -> str:
        """What becomes of the thread when the command stops waiting, and how to wait again."""
        if not self._thread_id:
            return _perhaps(self._agent.said)
        goes_on = f"goes on {when_it_works(self._agent)}" if self._agent.is_ours else "goes on"
        return f"The thread {goes_on}. Wait for its answer: {self._resume}"

    @property
    def _resume(self) -> str:
        return self._agent.said.ask(f"--thread {self._thread_id} --resume")

    @property
    def _show(self) -> str:
        return self._agent.said.threads(f"show {self._thread_id}")

    def _show_what_is_asked(self) -> None:
        _tell(f"rapkit: {self._thread} asks a person first.")
        thread = self._as_it_is
        if thread is None:
            _tell(f"The agent does not say what just now. See: {self._show}")
            thread = {"choices": (), "oauth": ()}
        writer = TerminalWriter(error=True)
        for question in thread["choices"]:
            show_question(writer, self._thread_id, question, self._agent.said, named=len(thread["choices"]) > 1)
        for each in thread["oauth"]:
            show_authorization(writer, each)
        _tell(f"Then: {self._resume}")
