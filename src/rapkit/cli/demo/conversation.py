"""The demo's thread as the client API shows it. Each journal entry, also of its children, is reported once."""

import json
import time
from collections.abc import Mapping
from typing import Any

from rapkit.cli.agent_api import AgentApi, AgentUnreachable
from rapkit.cli.demo.audit import Audit, Post
from rapkit.cli.demo.demo_state import DemoState, ThreadSeen
from rapkit.printable import printable

_LONG = 160

Entry = Mapping[str, Any]


class Conversation:
    """One thread. `read` brings it up to date; an agent that is away has nothing new to say.

    `servers` are the names of servers by what they offer.
    """

    def __init__(self, api: AgentApi, audit: Audit, demo_state: DemoState, servers: Mapping[str, str]) -> None:
        self.id = ""
        self.now: Mapping[str, Any] = {}
        self.entries: list[Entry] = []
        self.children: dict[str, list[Entry]] = {}
        self.posts: list[Post] = []
        self._api = api
        self._audit = audit
        self._demo_state = demo_state
        self._servers = servers
        self._untold: list[Post] = []
        self._calls: dict[tuple[str, str], Entry] = {}

    def begin(self, text: str) -> float:
        """Say the first thing; the seconds until that was on disk."""
        began = time.monotonic()
        self.id = self._api.post("threads", {"text": text, "user_id": "demo"})["thread_id"]
        took = time.monotonic() - began
        self._demo_state.say("user", "you", text, f"on disk after {took * 1000:.0f} ms")
        return took

    def answer(self, question: Mapping[str, Any], choice: int) -> None:
        """Answer a question that is open."""
        began = time.monotonic()
        body = {"selected": choice, "asked_at": question["asked_at"]}
        self._api.post(f"threads/{self.id}/calls/{question['call_id']}/choice", body)
        aside = f"on disk after {(time.monotonic() - began) * 1000:.0f} ms"
        self._demo_state.say("user", "you", _short(question["choices"][choice]), aside)

    def close(self) -> None:
        """Close it."""
        self._api.post(f"threads/{self.id}/close")

    def read(self) -> None:
        """What is new since the last time."""
        if not self.id:
            return
        try:
            news = self._news(self.id, self.entries)
            for child, entries in self.children.items():
                news += self._news(child, entries)
            # Last: what it says is true of all that was read.
            self.now = self._api.get(f"threads/{self.id}")
        except AgentUnreachable:
            return
        self._untold += self._audit.new()
        for thread_id, entry in sorted(news, key=lambda each: each[1]["at"]):
            self._tell_posts()
            self._tell(thread_id, entry)
        self._tell_posts()

    def seen(self) -> ThreadSeen:
        """What it is doing, and what for."""
        if not self.now:
            return ThreadSeen()
        asked = {each["call_id"] for each in self.now["choices"]}
        waits_for = [
            *("your answer" if call["call_id"] in asked else call["name"] for call in self.now["pending_calls"]),
            *(each["name"] for each in self.now["subscriptions"]),
        ]
        return ThreadSeen(self.now["status"], f"for {', '.join(waits_for)}" if self.now["status"] == "waiting" else "")

    def answers(self) -> list[tuple[str, str]]:
        """Which calls tools have answered, in this thread and its children: a call that is here twice was answered twice."""
        journals = {self.id: self.entries, **self.children}
        return [
            (thread_id, entry["call_id"])
            for thread_id, entries in journals.items()
            for entry in entries
            if entry["kind"] == "result" and entry["by"] == "tool"
        ]

    def first(self, kind: str, **fields: Any) -> Entry | None:
        """The first line of this kind with these fields."""
        return next(iter(self.all(kind, **fields)), None)

    def all(self, kind: str, **fields: Any) -> list[Entry]:
        """All of them."""
        return [
            entry
            for entry in self.entries
            if entry["kind"] == kind and all(entry.get(name) == value for name, value in fields.items())
        ]

    def answer_after(self, entry: Entry) -> Entry | None:
        """What the model said after a line."""
        later = (each for each in self.entries if each["seq"] > entry["seq"])
        return next((each for each in later if each["kind"] == "assistant"), None)

    def post(self, operation: str) -> Post | None:
        """The acknowledged call of an operation."""
        return next((post for post in self.posts if post.operation == operation), None)

    def requests(self) -> int:
        """How often the model was asked, in this thread and its children."""
        family = self._api.get(f"threads/{self.id}/family")
        return int(sum(each["usage"]["requests"] for each in (family, *family["children"])))

    def status_of(self, thread_id: str) -> str:
        """Of any thread."""
        return str(self._api.get(f"threads/{thread_id}")["status"])

    def _news(self, thread_id: str, entries: list[Entry]) -> list[tuple[str, Entry]]:
        after = entries[-1]["seq"] if entries else None
        news: list[Entry] = self._api.get(f"threads/{thread_id}/history", cursor=after)["entries"]
        entries += news
        made: dict[str, list[Entry]] = {entry["thread_id"]: [] for entry in news if entry["kind"] == "child"}
        self.children = {**self.children, **made}
        return [(thread_id, entry) for entry in news]

    def _tell(self, thread_id: str, entry: Entry) -> None:
        say, speaker = self._demo_state.say, "agent" if thread_id == self.id else "child"
        match entry:
            case {"kind": "assistant", "text": text, "calls": calls}:
                if text:
                    say("agent" if speaker == "agent" else "child", speaker, _short(text))
                for call in calls:
                    self._calls[thread_id, call["id"]] = call
            case {"kind": "result", "by": "tool", "name": name, "text": text}:
                say("in", self._servers.get(name, "tool"), f"{name}: {_short(text)}")
            case {"kind": "event", "name": name, "text": text}:
                say("in", self._servers.get(name, "tool"), f"event of {name}: {_short(text)}")
            case {"kind": "choice", "call_id": call, "prompt": prompt, "choices": choices}:
                name = self._calls.get((thread_id, call), {}).get("name", "")
                say(
                    "in",
                    self._servers.get(name, "tool"),
                    " ".join((_short(prompt), *(f"[{_short(each)}]" for each in choices))),
                )
            case {"kind": "child"}:
                say("note", "runtime", "a child thread is made for it")
            case {"kind": "report", "text": text}:
                say("child", "child", f"reports: {_short(text)}")
            case {"kind": "error", "text": text} | {"kind": "parked", "reason": text}:
                say("note", "runtime", f"{entry['kind']}: {_short(text)}")
            case _:
                pass

    def _tell_posts(self) -> None:
        """That a call was sent, once it was told that the model wanted it, and before anything that came of it."""
        for post in [each for each in self._untold if (each.thread_id, each.call_id) in self._calls]:
            self._untold.remove(post)
            self.posts.append(post)
            self._tell_post(post)

    def _tell_post(self, post: Post) -> None:
        call = self._calls[post.thread_id, post.call_id]
        arguments = ", ".join(f"{key}={json.dumps(value)}" for key, value in call["arguments"].items())
        text = _short(f"{post.operation}({arguments})")
        self._demo_state.say("out", post.server, text, f"acknowledged after {post.seconds * 1000:.0f} ms")


def _short(text: str) -> str:
    line = " ".join(printable(text).split())
    return line if len(line) <= _LONG else f"{line[: _LONG - 1]}…"
