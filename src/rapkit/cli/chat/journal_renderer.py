"""Render journal entries for people."""

import datetime
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rapkit.cli.chat.block import Block
from rapkit.cli.chat.child_messages import LAST_WORDS, ChildMessage
from rapkit.cli.chat.result_blocks import result_blocks, shortened
from rapkit.cli.progress import PROGRESS
from rapkit.protocol.display_script import describe_call

if TYPE_CHECKING:
    from collections.abc import Callable

Entry = dict[str, Any]

_EVENT_LINES = 12
_ANSWERED_LINES = 4
_CHILD_LINES = 3
_QUIET = "dim"
_WRONG = "red"
_TOLD = "yellow"


class JournalRenderer:
    """What each entry looks like. It remembers what later ones refer to, so show it a thread's entries in order.

    If questions are `asked_elsewhere`, in a picker, they are shown here once they are answered.
    """

    def __init__(self, *, asked_elsewhere: bool = False) -> None:
        self._asked_elsewhere = asked_elsewhere
        self._names: dict[str, str] = {}
        self._asked: dict[str, Entry] = {}
        self._answered: set[str] = set()
        self._heard: dict[str, ChildMessage] = {}
        self._reported: dict[str, str] = {}
        self._kinds: dict[str, Callable[[Entry], list[Block]]] = {
            "user": _user,
            "schedule": _schedule,
            "assistant": self._assistant,
            "result": self._result,
            "event": self._event,
            "released": _released,
            "unsubscribed": self._unsubscribed,
            "child": _child,
            "child_closed": self._child_closed,
            "report": self._report,
            "began": _began,
            "task": _task,
            "parent": _parent,
            "choice": self._choice,
            "chosen": self._chosen,
            "oauth": self._oauth,
            "oauth_expired": self._oauth_expired,
            "view": _view,
            "summary": _summary,
            "granted": _granted,
            "toolset_missing": _toolset_missing,
            "toolset_found": _toolset_found,
            "error": _error,
            "parked": _parked,
            "closed": _closed,
            "ignored": _ignored,
        }

    def blocks(self, entry: Entry, *, with_time: bool = False) -> list[Block]:
        """An entry for people; nothing, if it is of a kind that we do not know. `with_time` if it is news of some time ago."""
        show = self._kinds.get(entry["kind"])
        shown = show(entry) if show else []
        if shown and with_time:
            at = datetime.datetime.fromtimestamp(entry["at"]).astimezone()
            first = shown[0]
            shown = [replace(first, mark=f"{at:%H:%M:%S} {first.mark}", mark_style=_QUIET), *shown[1:]]
        return shown

    def know(self, call_id: str, name: str) -> None:
        """What a call is called, that was made before the entries that are shown."""
        self._names.setdefault(call_id, name)

    def name(self, call_id: str) -> str:
        """What a call is called."""
        return self._names.get(call_id, call_id)

    def has_asked(self, call_id: str) -> bool:
        """Whether what a call asks was among the entries that are shown."""
        return call_id in self._asked

    def _assistant(self, entry: Entry) -> list[Block]:
        text = entry.get("text", "").strip()
        said = [Block(text, apart=True)] if text else []
        calls: list[Block] = []
        for call in entry.get("calls", ()):
            self._names[call["id"]] = call["name"]
            display = call.get("display") or describe_call(call["name"], call["arguments"])
            calls.append(Block(display, "→ ", "", "cyan", apart=not said and not calls))
        return said + calls

    def child_said(self, thread_id: str, words: ChildMessage | None) -> list[Block]:
        """What was said in a child; nothing, if that was shown before, or the child has reported the same."""
        heard = self._heard.get(thread_id)
        if words is None or (heard and heard.seq >= words.seq):
            return []
        self._heard[thread_id] = words
        if self._reported.get(thread_id, "").strip() == words.text:
            return []
        said = shortened(words.text, _CHILD_LINES)
        return [Block(f"child thread {short_id(thread_id)} said: {said}", "↳ ", _QUIET)]

    def _result(self, entry: Entry) -> list[Block]:
        # That the model had been told it would take longer is not why it is late to people. That they have read otherwise is.
        given_up = entry["call_id"] in self._answered
        self._answered.add(entry["call_id"])
        return result_blocks(entry, given_up=given_up)

    def _child_closed(self, entry: Entry) -> list[Block]:
        said = self.child_said(entry["thread_id"], entry.get(LAST_WORDS))
        return [*said, Block(f"child thread {short_id(entry['thread_id'])} was closed", "↳ ", _QUIET)]

    def _report(self, entry: Entry) -> list[Block]:
        self._reported[entry["thread_id"]] = entry["text"]
        last = ", and is closed" if entry.get("closed") else ""
        text = f"child thread {short_id(entry['thread_id'])} says{last}: {_first(entry['text'])}"
        return [Block(text, "↰ ", "", "blue", apart=True)]

    def _event(self, entry: Entry) -> list[Block]:
        name = entry["name"]
        match entry.get("fate"):
            case "early":
                return [Block(f"{name}: an event came before the call was confirmed, and is kept", "◇ ", _QUIET)]
            case "threaded":
                return [Block(f"{name}: {_first(entry['text'], 2)}", "◇ ", _QUIET, "magenta", apart=True)]
        last = " (the last one)" if entry.get("final") else ""
        return [Block(f"{name}{last}: {_first(entry['text'])}", "◇ ", "", "magenta", apart=True)]

    def _unsubscribed(self, entry: Entry) -> list[Block]:
        return [Block(f"{self.name(entry['call_id'])}: no more events: {entry['reason']}", "◇ ", _QUIET)]

    def _choice(self, entry: Entry) -> list[Block]:
        self._asked[entry["call_id"]] = entry
        if self._asked_elsewhere:
            return []
        blocks = [_prompt(entry["prompt"].strip())]  # all of it: users must be able to read what they answer
        for number, choice in enumerate(entry["choices"]):
            stands = " (default)" if number == entry.get("default") else ""
            blocks.append(Block(f"{choice}{stands}", f"  {number + 1} "))
        return blocks

    def _chosen(self, entry: Entry) -> list[Block]:
        asked = self._asked.pop(entry["call_id"], None)
        question = [_prompt(shortened(asked["prompt"], _ANSWERED_LINES))] if asked and self._asked_elsewhere else []
        return [*question, _fate(entry, asked["choices"] if asked else [])]

    def _oauth(self, entry: Entry) -> list[Block]:
        return [Block(f"{self.name(entry['call_id'])} wants to be authorised by you.", "! ", "", _TOLD, apart=True)]

    def _oauth_expired(self, entry: Entry) -> list[Block]:
        return [Block(f"{self.name(entry['call_id'])} was not authorised in time.", "! ", _QUIET)]


def authorization_blocks(url: str) -> list[Block]:
    """Where the user authorises a tool. The URL has lines of its own, so that it can be copied."""
    return [Block("Open this page to authorise:", "  "), Block(url, style="underline", whole=True)]


def problem(text: str) -> Block:
    """Something that went wrong, and what to do."""
    return Block(text, "! ", _WRONG, apart=True)


def note(text: str) -> Block:
    """Something of our own, beside the conversation."""
    return Block(text, style=_QUIET, apart=True)


def short_id(thread_id: str) -> str:
    """A thread's id, short enough for a line: its end tells it apart, and that a child is one."""
    root, *children = thread_id.split("-")
    return "-".join([f"…{root[-6:]}" if len(root) > 10 else root, *children])


def _prompt(text: str) -> Block:
    return Block(text, "? ", "bold", _TOLD, apart=True)


def _fate(chosen: Entry, choices: list[str]) -> Block:
    if chosen.get("expired"):
        return Block("nobody answered in time", "✗ ", _QUIET)
    if chosen.get("dismissed"):
        return Block("dismissed", "✗ ", _QUIET)
    if chosen.get("text") is not None:
        return Block(chosen["text"], "✓ ", "", "green")
    number = int(chosen.get("selected") or 0)
    return Block(choices[number] if number < len(choices) else f"choice {number + 1}", "✓ ", "", "green")


def _first(text: str, most: int = _EVENT_LINES) -> str:
    lines = text.strip().splitlines()
    return "\n".join(lines[:most]) + (" …" if len(lines) > most else "")


def _user(entry: Entry) -> list[Block]:
    return [Block(entry["text"].strip(), "> ", "bold", "bold cyan", apart=True)]


def _schedule(entry: Entry) -> list[Block]:
    return [Block(f"{entry['schedule']}, due {entry['due']}: {_first(entry['text'])}", "@ ", "", "cyan", apart=True)]


def _released(entry: Entry) -> list[Block]:
    count = len(entry["seqs"])
    return [Block(f"{entry['name']}: {count} kept {'event is' if count == 1 else 'events are'} shown", "◇ ", _QUIET)]


def _child(entry: Entry) -> list[Block]:
    what = f"made for: {_first(entry['task'], 3)}" if entry.get("task") else "made for that event"
    return [Block(f"child thread {short_id(entry['thread_id'])} {what}", "↳ ", "", "blue")]


def _began(entry: Entry) -> list[Block]:
    call = describe_call(entry["name"], entry["arguments"])
    return [Block(f"made for an event of {call}: {_first(entry['text'])}", "◇ ", "", "magenta", apart=True)]


def _task(entry: Entry) -> list[Block]:
    return [Block(f"task of thread {short_id(entry['parent'])}: {_first(entry['text'])}", "↳ ", "", "blue", apart=True)]


def _parent(entry: Entry) -> list[Block]:
    text = f"thread {short_id(entry['parent'])} says: {_first(entry['text'])}"
    return [Block(text, "↳ ", "", "blue", apart=True)]


def _view(entry: Entry) -> list[Block]:
    if entry["view_type"] == PROGRESS:
        return []  # it changes again and again, and is over with its call
    return [Block(f"[view {entry['view_type']}: new content]", "▤ ", _QUIET)]


def _summary(entry: Entry) -> list[Block]:
    return [Block(f"Everything up to line {entry['upto']} was summed up for the model.", "… ", _QUIET, apart=True)]


def _granted(entry: Entry) -> list[Block]:
    amounts = {"slices": "slices", "tokens": "tokens", "cost": "US dollars"}
    granted = [f"{entry[key]:g} {unit}" for key, unit in amounts.items() if entry.get(key)]
    return [Block(f"granted: {', '.join(granted) or 'nothing'} more", "+ ", _QUIET)]


def _toolset_missing(entry: Entry) -> list[Block]:
    # A chat that runs its own agent says why when it starts.
    return [Block(f"the tools of {entry['server']} are missing; rapkit threads show says why", "! ", _WRONG)]


def _toolset_found(entry: Entry) -> list[Block]:
    return [Block(f"the tools of {entry['server']} are available now", "+ ", _QUIET)]


def _error(entry: Entry) -> list[Block]:
    return [Block(_first(entry["text"]), "! ", _WRONG)]


def _parked(entry: Entry) -> list[Block]:
    return [Block(f"The thread has stopped: {entry['reason']}\nA new message revives it.", "! ", _WRONG, apart=True)]


def _closed(entry: Entry) -> list[Block]:
    return [Block(f"The thread was closed (by {entry['by']}).", "- ", _QUIET, apart=True)]


def _ignored(entry: Entry) -> list[Block]:
    return [Block(f"{entry['what']} had no effect: {entry['reason']}", "- ", _QUIET)]
