"""The thread that the chat displays: its known state, and the output for its events."""

import datetime
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rapkit.cli.agent_api import StreamEvent
from rapkit.cli.chat.block import Block
from rapkit.cli.chat.journal_renderer import JournalRenderer, authorization_blocks, note, problem, short_id
from rapkit.cli.progress import PROGRESS, Progress, read_progress
from rapkit.cli.reconnecting_stream import ConnectionLost, Reconnected

_LONG_AGO = 86_400


@dataclass(frozen=True, slots=True)
class DisplayedQuestion:
    """Something the user is asked. It is known by its call and when it was asked."""

    call_id: str
    prompt: str
    choices: tuple[str, ...]
    default: int | None
    in_words: bool
    asked_at: float

    @property
    def key(self) -> tuple[str, float]:
        """What tells it apart from every other one of its thread."""
        return self.call_id, self.asked_at


class DisplayedThread:
    """A thread, or one that begins with the first message: it has no `id` until then.

    `status` and `saying`, what the model has said of its next entry so far, come with the stream; `pending`, `subscriptions`, `children`
    and `authorizing`, the calls that need to be authorised, are as of the last `look`. `progress` is how far calls have come, by their ids.
    `away_since` is when the agent was lost, in seconds since 1970, as long as it is away.
    """

    def __init__(self, id: str | None = None, *, asked_elsewhere: bool = True) -> None:
        self.id = id
        self.status = "new" if id is None else "…"
        self.saying = ""
        self.away_since: float | None = None
        self.pending: list[dict[str, Any]] = []
        self.subscriptions: list[dict[str, Any]] = []
        self.children: list[str] = []
        self.questions: dict[str, DisplayedQuestion] = {}
        self.authorizing: set[str] = set()
        self.progress: dict[str, Progress] = {}
        self.asking_children: list[str] = []
        self.transcript = JournalRenderer(asked_elsewhere=asked_elsewhere)
        self._catching_up = False
        self._length = 0
        self._usage: dict[str, Any] = {}
        self._shown_urls: set[tuple[str, str]] = set()
        self._callback_problems: dict[str, str] = {}

    @property
    def is_closed(self) -> bool:
        """Whether it takes nothing more."""
        return self.status == "closed"

    def take(self, happened: StreamEvent | ConnectionLost | Reconnected) -> list[Block]:
        """What to print of something that happened, in order. What was streamed is printed with its entry, and so only once."""
        match happened:
            case ConnectionLost():
                self.away_since, self.saying = time.time(), ""
                return []
            case Reconnected():
                return self._is_back()
            case StreamEvent("entry", entry):
                return self._entry(entry)
            case StreamEvent("status", {"status": str(status)}):
                self.status, self._catching_up = status, False
            case StreamEvent("delta", {"text": str(text)}):
                self.saying += text
            case StreamEvent("reset"):
                self.saying = ""
            case StreamEvent("choice", data):
                self._ask(data)
            case StreamEvent("oauth", {"call_id": str(call_id), "auth_url": str(url)}):
                return self._authorization(call_id, url)
            case StreamEvent("view", {"view_type": view_type, "content": content}) if view_type == PROGRESS:
                if progress := read_progress(content):
                    self.progress[progress.call_id] = progress
        return []

    def look(self, detail: Mapping[str, Any]) -> list[Block]:
        """Take over how the thread is now, as `GET /v1/threads/{id}` has it. What to print is what the stream does not tell."""
        self.pending, self.subscriptions = detail["pending_calls"], detail["subscriptions"]
        self.children = detail["children"]
        for call in (*self.pending, *self.subscriptions):
            self.transcript.know(call["call_id"], call["name"])
        self.authorizing = {each["call_id"] for each in detail["oauth"]}
        if progress := read_progress(detail["views"].get(PROGRESS)):
            # The stream may be ahead of this. It tells all that changes; what it was before we came it does not.
            self.progress.setdefault(progress.call_id, progress)
        if detail["length"] >= self._length:  # else the stream is ahead: what it has said since is true
            self.questions = {}
            for each in detail["choices"]:
                self._ask(each)
        blocks = [block for each in detail["oauth"] for block in self._authorization(each["call_id"], each["auth_url"])]
        return blocks + self._refused_callbacks()

    def _refused_callbacks(self) -> list[Block]:
        """Which calls have been answered in vain: each is told of once, as long as that is the last word of its tool."""
        known, calls = self._callback_problems, (*self.pending, *self.subscriptions)
        found = {each["call_id"]: (each["name"], each.get("callback_problem")) for each in calls}
        self._callback_problems = {id: text for id, (_, text) in found.items() if text}
        return [problem(f"{name}: {text}") for id, (name, text) in found.items() if text and known.get(id) != text]

    def look_at_family(self, family: Mapping[str, Any]) -> list[Block]:
        """Note which relatives wait for the user; those that did not before are to be printed."""
        before, self.asking_children = self.asking_children, list(_asking(family))
        return [
            Block(
                f"child thread {short_id(id)} asks you something: /switch {id.removeprefix(self.id or '')}",
                "? ",
                apart=True,
            )
            for id in self.asking_children
            if id not in before
        ]

    def talking_children(self, family: Mapping[str, Any]) -> list[str]:
        """Children whose model has been at work since the last time. Those with a task tell their parent what they have to say."""
        found = []
        for child in family["children"]:
            id, usage = child["thread_id"], child["usage"]
            if child["for_event"] and child["status"] != "closed" and usage != self._usage.get(id):
                self._usage[id] = usage
                found.append(id)
        return found

    def _is_back(self) -> list[Block]:
        since, self.away_since, self._catching_up = self.away_since, None, True
        return [note(f"— the agent is back; it was away from {_clock(since)} to {_clock(time.time())} —")]

    def _entry(self, entry: dict[str, Any]) -> list[Block]:
        self.saying = ""
        self._length = entry["seq"]
        match entry["kind"]:
            case "chosen":
                self.questions.pop(entry["call_id"], None)
            case "result":
                self.questions.pop(entry["call_id"], None)
                self.pending = _without(self.pending, entry["call_id"])
            case "unsubscribed":
                self.subscriptions = _without(self.subscriptions, entry["call_id"])
            case "closed":
                self.status = "closed"
        return self.transcript.blocks(entry, with_time=self._catching_up)

    def _ask(self, data: Mapping[str, Any]) -> None:
        self.questions[data["call_id"]] = DisplayedQuestion(
            data["call_id"],
            data["prompt"],
            tuple(data["choices"]),
            data["default"],
            data["in_words"],
            data["asked_at"],
        )

    def _authorization(self, call_id: str, url: str) -> list[Block]:
        if (call_id, url) in self._shown_urls:
            return []
        self._shown_urls.add((call_id, url))
        return authorization_blocks(url)


def _without(calls: list[dict[str, Any]], call_id: str) -> list[dict[str, Any]]:
    return [call for call in calls if call["call_id"] != call_id]


def _asking(relative: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    for child in relative["children"]:
        if child["asks_user"]:
            found.append(child["thread_id"])
        found += _asking(child)
    return found


def _clock(at: float | None) -> str:
    if at is None:
        return "?"
    moment = datetime.datetime.fromtimestamp(at).astimezone()
    return f"{moment:%H:%M:%S}" if time.time() - at < _LONG_AGO else f"{moment:%d %b %H:%M}"
