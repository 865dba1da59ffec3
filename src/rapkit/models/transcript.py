"""The incoming side of a conversation, item by item: user texts, tool results, events and messages of other threads."""

import re
from dataclasses import dataclass
from typing import Literal

from rapkit.kernel.conversation import Conversation, Said, SaidCall, ToolAnswer
from rapkit.protocol import TextContent

# A pair of call and answer that the model did not make: an event, an answer that came after the model had been told that its call still
# runs, or what a parent or child thread says.
_MADE_UP = re.compile(r"(?P<what>interrupt|result|task|message|report):(?P<id>\S+) \((?P<state>.*)\)")
_KINDS: "dict[str, Kind]" = {
    "interrupt": "event",
    "result": "answer",
    "task": "task",
    "message": "parent",
    "report": "report",
}

Kind = Literal["user", "answer", "event", "task", "parent", "report"]
"""Who is heard: the user, a tool that answers or tells of an event, the parent thread that gives a task or says something, a child."""


@dataclass(frozen=True, slots=True)
class TranscriptPiece:
    """One item of a transcript. `call_id` is that of the call or subscription it belongs to, or the id of the thread that says it."""

    kind: Kind
    text: str
    tool: str = ""
    call_id: str = ""

    def __str__(self) -> str:
        what = {
            "user": "the user said",
            "answer": f"{self.tool} answered",
            "event": f"{self.tool} told",
            "task": "the parent thread gave the task",
            "parent": "the parent thread said",
            "report": "a child thread said",
        }[self.kind]
        text = self.text if len(self.text) <= 200 else self.text[:200] + "…"
        return f'{what} "{text}"'


@dataclass(frozen=True, slots=True)
class Transcript:
    """The incoming side of a conversation, oldest first.

    `newest` are the numbers of what was heard last, the newest first. If the user wrote, only that: answers beside it are of calls that
    still run. `calls` has the id of the last call of each tool, in the order in which they were made; of a
    subscription, not of its events.
    """

    pieces: list[TranscriptPiece]
    newest: list[int]
    calls: dict[str, str]


def read_transcript(conversation: Conversation) -> Transcript:
    """Take a conversation apart."""
    pieces: list[TranscriptPiece] = []
    made: dict[str, str] = {}
    calls: dict[str, SaidCall] = {}
    before = 0
    for turn in conversation:
        if isinstance(turn, Said):
            calls = {call.id: call for call in turn.calls}
            for call in turn.calls:
                if synthetic_call(call) is None:
                    made.pop(call.name, None)
                    made[call.name] = call.id
            continue
        before = len(pieces)
        pieces += [_answered(answer, calls.get(answer.call_id)) for answer in turn.answers]
        pieces += [TranscriptPiece("user", text) for text in turn.texts]
    last = range(len(pieces) - 1, before - 1, -1)
    return Transcript(pieces, [number for number in last if pieces[number].kind == "user"] or list(last), made)


def _answered(answer: ToolAnswer, call: SaidCall | None) -> TranscriptPiece:
    text = "\n".join(item.text if isinstance(item, TextContent) else f"[{item.mediaType}]" for item in answer.content)
    about = synthetic_call(call) if call else None
    if about is None:
        return TranscriptPiece("answer", text, answer.name, answer.call_id)
    kind = _KINDS[about["what"]]
    if kind == "task" and isinstance(last := answer.content[-1], TextContent):
        text = last.text  # without what is said about tasks in general
    return TranscriptPiece(kind, text, answer.name, about["id"])


def synthetic_call(call: SaidCall) -> re.Match[str] | None:
    """What a synthetic call is about: `what`, the `id` of the real one and the `state` it is in. None for a real one."""
    kind = call.arguments.get("kind")
    return _MADE_UP.match(kind) if isinstance(kind, str) else None
