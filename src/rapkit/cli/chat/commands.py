"""The chat's slash commands: `/threads`, `/switch` and the like."""

import asyncio
import difflib
import re
import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from rapkit.cli.agent_api import AgentApi, AgentRefused
from rapkit.cli.chat.background_feed import in_thread
from rapkit.cli.chat.block import Block, clipped
from rapkit.cli.chat.journal_renderer import note, problem, short_id
from rapkit.cli.chat.picker import Picker
from rapkit.cli.chat.toolbar import ago
from rapkit.cli.threads.thread_lookup import matching, path_of
from rapkit.errors import RapkitError

if TYPE_CHECKING:
    from rapkit.cli.chat.session import Chat

COMMANDS = {
    "threads": ("", "list the latest threads"),
    "switch": ("[N or ID]", "go to another thread, by its number in that list or its id"),
    "new": ("", "begin another thread with your next message"),
    "answer": ("", "show a question again that you left open"),
    "cancel": ("[CALL]", "cancel a pending call or a subscription"),
    "close": ("", "close this thread: it takes nothing more"),
    "help": ("", "show this"),
    "quit": ("", "leave (Ctrl-D does so too)"),
}
_KEYS = (
    ("Enter", "sends your line"),
    ("Alt-Enter, Ctrl-J", "begins another one"),
    ("↑ ↓", "what you typed before"),
    ("Ctrl-C", "clears the line; on an empty one it leaves"),
)
_COMMAND = re.compile(r"/([A-Za-z]*)(?:\s+(.*))?\s*", re.DOTALL)
_NO_THREADS = "There are no threads yet. Say something to begin one."
_LISTED = 20
_WIDEST_STATUS = 8
_WIDE = 60
_BESIDE_A_LINE = 6
_LONGEST_QUOTE = 200
_NOT_FOUND = 404
_TAKE_NOTHING = ("", "exit", *(name for name, (argument, _) in COMMANDS.items() if not argument))
_ENDING = ("close", "quit", "exit")


class Commands:
    """The commands of a chat. `ids` are the threads of the last list, in its order."""

    def __init__(self, chat: "Chat") -> None:
        self._chat = chat
        self.ids: list[str] = []

    def read(self, text: str) -> tuple[str, str] | None:
        """A command and what stands behind it; None if this is a message."""
        return read_command(text)

    async def carry_out(self, name: str, argument: str) -> None:
        """Do it. What goes wrong is printed. What stands behind one that takes nothing is given back, and nothing is ended by it."""
        too_much = bool(argument) and name in _TAKE_NOTHING
        try:
            if not too_much or name not in _ENDING:
                await self._do(name, argument)
        except RapkitError as error:
            self._chat.print([problem(str(error))])
        except Exception as error:  # noqa: BLE001 - whatever it is, it is no reason to end what the user is at
            what = clipped(str(error), _LONGEST_QUOTE) or "it does not say why"
            self._chat.print([problem(f"/{name} could not be carried out: {type(error).__name__}, {what}.")])
        if too_much:
            self._chat.print([problem(too_much_said(name, argument))])
            self._chat.give_back(argument)

    async def _do(self, name: str, argument: str) -> None:
        match name:
            case "threads":
                await self._threads()
            case "switch":
                await self._switch(argument)
            case "new":
                self._chat.begin()
            case "answer":
                self._chat.ask_again()
            case "cancel":
                await self._cancel(argument)
            case "close":
                await self._close()
            case "help" | "":
                self._help()
            case "quit" | "exit":
                self._chat.leave()
            case _:
                self._chat.print([problem(unknown_command(name))])

    def _help(self) -> None:
        summaries = {name: summary for name, (_, summary) in COMMANDS.items()}
        summaries["quit"] = f"leave: {self._chat.when_left} (Ctrl-D does so too)"
        rows = [(f"/{name} {argument}".strip(), summaries[name]) for name, (argument, _) in COMMANDS.items()]
        widest = max(len(left) for left, _ in (*rows, *_KEYS)) + 2
        blocks = []
        for group in (rows, _KEYS):
            blocks.append(Block(""))
            for left, summary in group:
                if self._chat.columns < _WIDE:
                    blocks += [Block(left, "  ", "cyan"), Block(summary, "    ")]
                else:
                    blocks.append(Block(summary, f"  {left.ljust(widest)}", mark_style="cyan"))
        self._chat.print(blocks)

    async def _threads(self) -> None:
        listed = await self._list()
        if not listed:
            self._chat.print([note(_NO_THREADS)])
            return
        blocks = [Block("")]
        for number, (id, line) in enumerate(zip(self.ids, self._lines(listed), strict=True), start=1):
            is_here = id == self._chat.displayed.id
            mark = f"{'*' if is_here else ' '} {number:2} "
            text = clipped(line, self._chat.columns - len(mark))
            blocks.append(Block(text, mark, "bold" if is_here else "", whole=True))
        self._chat.print([*blocks, Block("/switch N goes to one of them.", "  ", "dim")])

    async def _list(self) -> list[tuple[dict[str, Any], str]]:
        """The latest threads, with the first words of each."""
        api = self._chat.api
        threads = (await in_thread(lambda: api.get("threads", limit=_LISTED)))["threads"]
        self.ids = [thread["thread_id"] for thread in threads]
        words = await asyncio.gather(*(in_thread(partial(_first_words, api, each)) for each in threads))
        return list(zip(threads, words, strict=True))

    def _lines(self, listed: list[tuple[dict[str, Any], str]]) -> Iterator[str]:
        """A line for each of them; on a narrow screen without its age."""
        widest = max((len(short_id(thread["thread_id"])) for thread, _ in listed), default=0)
        for thread, words in listed:
            status = ("asks you" if thread["asks_user"] else thread["status"]).ljust(_WIDEST_STATUS)
            age = f"{ago(time.time() - thread['created_at']):>7}" if self._chat.columns >= _WIDE else ""
            yield f"{short_id(thread['thread_id']).ljust(widest)}  {status}{age}  {clipped(words, 200)}"

    async def _switch(self, argument: str) -> None:
        if argument:
            await self._go_to(self._meant(argument))
            return
        listed = await self._list()
        if not listed:
            self._chat.print([note(_NO_THREADS)])
            return

        def picked(number: int) -> None:
            self._chat.start(self.carry_out("switch", str(number + 1)))

        lines = [clipped(line, self._chat.columns - _BESIDE_A_LINE) for line in self._lines(listed)]
        self._chat.picker = Picker("/switch", "Which thread?", lines, picked)

    async def _go_to(self, thread_id: str) -> None:
        try:
            await self._chat.follow(thread_id)
        except AgentRefused as error:
            if error.status != _NOT_FOUND:
                raise
            raise RapkitError(f"{error} /threads lists those that there are.") from error

    def _meant(self, argument: str) -> str:
        """A thread's id, from its number, from its end, or from what a child's has more than its parent's."""
        numbered = {str(number): id for number, id in enumerate(self.ids, start=1)}
        if argument in numbered:
            return numbered[argument]
        if argument.startswith("-") and self._chat.displayed.id:
            return self._chat.displayed.id + argument
        ending = [id for id in self.ids if id.endswith(argument.removeprefix("…"))]
        return ending[0] if len(ending) == 1 else argument

    async def _cancel(self, argument: str) -> None:
        displayed = self._chat.displayed
        await self._chat.look()
        calls = [*displayed.pending, *displayed.subscriptions]
        if not calls:
            self._chat.print([note("Nothing is pending here, so there is nothing to cancel.")])
            return
        if argument:
            calls = _meant_calls(argument, calls)
        if len(calls) == 1:
            await self._cancel_call(calls[0]["call_id"])
        else:

            def picked(number: int) -> None:
                self._chat.start(self.carry_out("cancel", calls[number]["call_id"]))

            self._chat.picker = Picker("/cancel", "Cancel which?", [call["display"] for call in calls], picked)

    async def _cancel_call(self, call_id: str) -> None:
        api, thread_id = self._chat.api, self._thread()
        await in_thread(lambda: api.post(path_of(thread_id, "calls", call_id, "cancel")))
        self._chat.print([note(f"{self._chat.displayed.transcript.name(call_id)} is being cancelled.")])

    async def _close(self) -> None:
        api, thread_id = self._chat.api, self._thread()
        await in_thread(lambda: api.post(path_of(thread_id, "close")))

    def _thread(self) -> str:
        if self._chat.displayed.id is None:
            raise RapkitError("There is no thread yet: your first message begins one. /threads lists others.")
        return self._chat.displayed.id


class CommandCompleter(Completer):
    """Completes commands, and threads behind /switch."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def get_completions(self, document: Document, _event: CompleteEvent) -> Iterable[Completion]:
        """What could be meant."""
        typed = document.text_before_cursor
        if typed.startswith("/switch "):
            begun = typed.removeprefix("/switch ").lstrip()
            for id in self._commands.ids:
                if id.startswith(begun):
                    yield Completion(id, -len(begun))
        elif typed.startswith("/") and " " not in typed:
            for name, (argument, summary) in COMMANDS.items():
                if name.startswith(typed[1:].lower()):
                    yield Completion(f"/{name}{' ' if argument else ''}", -len(typed), f"/{name}", summary)


def read_command(text: str) -> tuple[str, str] | None:
    """A command and what stands behind it; None if this is a message, such as one about `/usr/bin`."""
    found = _COMMAND.fullmatch(text)
    return (found[1].lower(), (found[2] or "").strip()) if found else None


def unknown_command(name: str) -> str:
    """What to say of a command that there is not."""
    close = difflib.get_close_matches(name, COMMANDS, n=1)
    meant = f"Did you mean /{close[0]}?" if close else "/help lists them."
    return f"There is no command /{name}. {meant} To say it to the agent, begin with a space."


def _meant_calls(given: str, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those with this name, or whose id begins or ends so; `RapkitError` if there is none."""
    named = [call for call in calls if call["name"] == given]
    ids = matching(given, [call["call_id"] for call in calls])
    if found := named or [call for call in calls if call["call_id"] in ids]:
        return found
    possible = "\n".join(f"  {call['call_id']}  {clipped(call['display'], _LONGEST_QUOTE)}" for call in calls)
    quoted = clipped(given, _LONGEST_QUOTE)
    raise RapkitError(f"There is no pending call or subscription {quoted!r}. There are:\n{possible}")


def too_much_said(name: str, argument: str) -> str:
    """What to say of something behind a command that takes nothing."""
    what = "takes nothing, and was not carried out" if name in _ENDING else "takes nothing"
    return f"/{name} {what}; what follows was not sent: {clipped(argument, _LONGEST_QUOTE)}"


def _first_words(api: AgentApi, thread: dict[str, Any]) -> str:
    if thread["task"]:
        return str(thread["task"])
    entries = api.get(path_of(thread["thread_id"], "history"), limit=1)["entries"]
    return str(entries[0].get("text", "")) if entries else ""
