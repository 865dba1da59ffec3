"""The projection: turn a journal into the conversation that a model is shown.

The journal is what happened, in the order in which it was accepted. Strict providers want every call answered right behind it, and roles in
turn. So a call has a slot for its answer: it says that the call is still running until the answer comes, and for ever if the model was
told so in the meantime. Whatever comes later (a late answer, an event) is a call and an answer of its own, made up for the model, that
names the original call in an argument `kind`. Nothing is ever rewritten: the same journal always gives the same conversation, except that
a call says so as long as the user is asked about it.

While a call is awaited the model is not asked, and the answer's place is before whatever came meanwhile: that is all there is to holding
events back.

What is too long is shown in part: see `window`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rapkit.kernel.conversation import Conversation, Heard, Said, SaidCall, ToolAnswer
from rapkit.kernel.entries import (
    Answered,
    Began,
    Happened,
    JournalEntry,
    ModelSaid,
    ParentSaid,
    Released,
    Reported,
    Summary,
    Tasked,
    Unsubscribed,
    UserSaid,
    WokenUp,
)
from rapkit.kernel.thread import Pending, Thread
from rapkit.kernel.window import ANSWER_CHARS, CUT, TOTAL_CHARS, bound_conversation
from rapkit.protocol import ContentItem, TextContent
from rapkit.protocol.expected_time import duration

STILL_RUNNING = "This call is still running. Its result will come later, by itself; do not call again for it."
NOT_PERMITTED_YET = (
    "This call is not made yet: the user is asked whether it may be. What comes of it will come later, by itself."
)
_NOTHING = "(no output)"
_GO_ON = "(What happened last is not shown. Go on.)"
_TOO_LONG_AGO = "(Something happened, too long ago to be shown.)"
_SUBSCRIBED = "This subscription is active. Its events will come by themselves."
_TASK = (
    "This is a child thread, and you are in it. What was said before belongs to the parent thread, which goes on by itself: do not carry "
    "out what was asked or planned there. Do only what follows, then tell the parent thread with report_to_parent."
)


class Numbered(NamedTuple):
    """A line of a journal with its number."""

    seq: int
    entry: JournalEntry


@dataclass(frozen=True, slots=True)
class Stretch:
    """Lines of one journal, behind a summary of those before them if there is one.

    Of an `inherited` one, calls that are not answered in it are left out: they are the other thread's. `early` are events whose lines lie
    before the others.
    """

    lines: Sequence[Numbered]
    inherited: bool = False
    summary: Summary | None = None
    early: Sequence[Numbered] = ()


@dataclass(slots=True)
class _Turn:
    """Something said, with places for the answers to its calls."""

    said: Said
    answers: dict[str, ToolAnswer | None]


Calls = dict[str, tuple[str, dict[str, Any]]]
"""Names and arguments of calls, by their ids."""


def project(
    stretches: Sequence[Stretch],
    known: Thread | None = None,
    *,
    answer_chars: int = ANSWER_CHARS,
    total_chars: int = TOTAL_CHARS,
) -> Conversation:
    """The conversation, from the first stretch (the oldest ancestor's) to the last (the thread's own).

    What lies before the stretches is not shown; the calls the thread still knows can be named all the same. Of an answer, an event or a
    message about `answer_chars` are shown at most, and of everything `total_chars`.
    """
    calls: Calls = {}
    if known is not None:
        for each in (known.expired, known.subscriptions, known.pending):
            calls |= {call_id: (call.name, call.arguments) for call_id, call in each.items()}
    pending = known.pending if known else {}
    pieces: list[_Turn | str] = []
    for stretch in stretches:
        pieces += _Projector(stretch, calls, pending).run()
    conversation = _alternating(pieces)
    if known is not None and known.wants_model and not (conversation and isinstance(conversation[-1], Heard)):
        # What woke it lies before the stretches, behind many lines that are not for models.
        conversation += (Heard(texts=(_GO_ON,)),)
    begins_with = next((_told(stretch.summary) for stretch in stretches[:1] if stretch.summary is not None), None)
    return bound_conversation(conversation, answer_chars, total_chars, begins_with)


def _told(summary: Summary) -> str:
    return f"(This is a summary of what was said before:)\n\n{summary.text}"


class _Projector:
    def __init__(self, stretch: Stretch, calls: Calls, pending: Mapping[str, Pending]) -> None:
        self._stretch = stretch
        self._pending = pending
        self._pieces: list[_Turn | str] = []
        self._calls = calls
        self._places: dict[str, _Turn] = {}
        self._early: dict[int, Happened] = {
            line.seq: line.entry for line in stretch.early if isinstance(line.entry, Happened)
        }

    def run(self) -> list[_Turn | str]:
        if self._stretch.summary is not None:
            self._show_summary(self._stretch.summary)
        for line in self._stretch.lines:
            self._show(line.seq, line.entry)
        for piece in self._pieces:
            if isinstance(piece, _Turn):
                self._fill(piece)
        return self._pieces

    def _show(self, seq: int, entry: JournalEntry) -> None:
        match entry:
            case UserSaid(text):
                self._pieces.append(_or_nothing(text))
            case WokenUp():
                self._pieces.append(f"(The schedule {entry.schedule!r}, due {entry.due}:)\n\n{_or_nothing(entry.text)}")
            case ModelSaid():
                self._show_model(entry)
            case Answered():
                self._show_answer(entry, seq)
            case Happened(fate="early"):
                self._early[seq] = entry
            case Happened(fate="shown"):
                self._show_event(entry.call_id, entry.name, entry.text, entry.final, seq)
            case Released():
                for each in entry.seqs:
                    event = self._early.get(each) or Happened(entry.call_id, entry.name, _TOO_LONG_AGO)
                    self._show_event(event.call_id, event.name, event.text, event.final, each)
            case Began():
                self._calls.setdefault(entry.call_id, (entry.name, entry.arguments))
                self._show_event(entry.call_id, entry.name, entry.text, entry.final, seq)
            case Tasked():
                kind = f"task:{entry.parent} (from the parent thread)"
                content = (TextContent(text=_TASK), TextContent(text=_or_nothing(entry.text)))
                self._show_pair(entry.id, "spawn_thread", {"kind": kind}, content)
            case ParentSaid(id, parent, text):
                self._show_note(id, "spawn_thread", f"message:{parent} (from the parent thread)", text)
            case Reported():
                state = "closed now" if entry.closed else "open"
                about = {"task": entry.task} if entry.task else {}
                self._show_note(entry.id, "spawn_thread", f"report:{entry.thread_id} ({state})", entry.text, about)
            case Unsubscribed(call_id, by_user=True):
                self._pieces.append(
                    f"(The user has cancelled the subscription {call_id}. No more events of it will come.)"
                )
            case _:
                pass  # for people, or for us

    def _show_summary(self, summary: Summary) -> None:
        """The summary, and behind it the calls from before that went on when it was made, under their own ids."""
        self._pieces.append(_told(summary))
        if self._stretch.inherited:
            return
        if summary.children:
            listed = "".join(f"\n- {child}: {task}" for child, task in summary.children.items())
            self._pieces.append(f"(Open child threads then:){listed}")
        if not summary.live:
            return
        calls = tuple(SaidCall(call.id, call.name, call.arguments) for call in summary.live)
        notes = {call.id: _SUBSCRIBED if call.subscription else self._stand_in(call.id) for call in summary.live}
        answers: dict[str, ToolAnswer | None] = {
            call.id: ToolAnswer(call.id, call.name, (TextContent(text=notes[call.id]),)) for call in calls
        }
        self._pieces.append(_Turn(Said(calls=calls), answers))
        self._calls |= {call.id: (call.name, call.arguments) for call in calls}

    def _show_note(self, id: str, name: str, kind: str, text: str, about: dict[str, Any] | None = None) -> None:
        """Something a relative has said."""
        self._show_pair(id, name, {**(about or {}), "kind": kind}, (TextContent(text=_or_nothing(text)),))

    def _show_model(self, entry: ModelSaid) -> None:
        calls = tuple(SaidCall(call.id, call.name, call.arguments) for call in entry.calls)
        turn = _Turn(Said(entry.text, calls, entry.thoughts), {call.id: None for call in calls})
        self._pieces.append(turn)
        for call in calls:
            self._calls[call.id] = (call.name, call.arguments)
            self._places[call.id] = turn

    def _show_answer(self, entry: Answered, seq: int) -> None:
        turn = self._places.get(entry.call_id)
        if turn is not None and not entry.late and turn.answers[entry.call_id] is None:
            turn.answers[entry.call_id] = ToolAnswer(entry.call_id, entry.name, content_of(entry))
            return
        # Its place says that the call is running, and was shown like that; or it lies before what we look at.
        name, arguments = self._calls.get(entry.call_id, (entry.name, {}))
        kind = f"result:{entry.call_id} ({'subscription is active' if entry.subscription else 'the call is finished'})"
        self._show_pair(f"{entry.call_id}-r{seq}", name, {**arguments, "kind": kind}, content_of(entry))

    def _show_event(self, call_id: str, name: str, text: str, final: bool, seq: int) -> None:
        """A pair that echoes the call which subscribed (SUB-20)."""
        name, arguments = self._calls.get(call_id, (name, {}))
        ended = "subscription ended" if final else "subscription remains active"
        kind = f"interrupt:{call_id} ({ended})"
        self._show_pair(f"{call_id}-e{seq}", name, {**arguments, "kind": kind}, (TextContent(text=_or_nothing(text)),))

    def _show_pair(self, id: str, name: str, arguments: dict[str, Any], content: tuple[ContentItem, ...]) -> None:
        call = SaidCall(id, name, arguments)
        self._pieces.append(_Turn(Said(calls=(call,)), {id: ToolAnswer(id, name, content)}))

    def _fill(self, turn: _Turn) -> None:
        """Every call has an answer, or is not shown."""
        missing = [call for call in turn.said.calls if turn.answers[call.id] is None]
        if self._stretch.inherited:
            kept = tuple(call for call in turn.said.calls if call not in missing)
            turn.said = Said(turn.said.text, kept, turn.said.thoughts if len(kept) == len(turn.said.calls) else ())
            turn.answers = {call.id: turn.answers[call.id] for call in kept}
            return
        for call in missing:
            turn.answers[call.id] = ToolAnswer(call.id, call.name, (TextContent(text=self._stand_in(call.id)),))

    def _stand_in(self, call_id: str) -> str:
        """What stands in the place of an answer that has not come."""
        call = self._pending.get(call_id)
        if call is not None and call.awaits == "permission":
            return NOT_PERMITTED_YET
        if call is None or call.expected is None:
            return STILL_RUNNING
        return f"{STILL_RUNNING} It is expected to take up to {duration(call.expected)}."


def content_of(answered: Answered) -> tuple[ContentItem, ...]:
    """What the model is shown of an answer: its content if it has any, else its text (CB-13)."""
    if not answered.content:
        return (TextContent(text=_or_nothing(answered.text or "")),)
    return tuple(_not_blank(item) for item in answered.content)


def _not_blank(item: ContentItem) -> ContentItem:
    return TextContent(text=_NOTHING) if item.type == "text" and not item.text.strip() else item


def _or_nothing(text: str) -> str:
    """Providers refuse a blank text, and with it the whole conversation."""
    return text if text.strip() else _NOTHING


def _alternating(pieces: Sequence[_Turn | str]) -> Conversation:
    """Roles in turn: neighbours of the same one are joined, and what is empty is left out."""
    conversation: list[Heard | Said] = []
    for piece in pieces:
        if isinstance(piece, str):
            _hear(conversation, Heard(texts=(piece,)))
            continue
        if not piece.said.text.strip() and not piece.said.calls:
            continue
        _say(conversation, piece.said)
        if piece.said.calls:
            answers = (piece.answers[call.id] for call in piece.said.calls)
            _hear(conversation, Heard(answers=tuple(answer for answer in answers if answer is not None)))
    return tuple(conversation)


def _hear(conversation: list[Heard | Said], heard: Heard) -> None:
    last = conversation[-1] if conversation else None
    if isinstance(last, Heard):
        conversation[-1] = Heard(last.answers + heard.answers, last.texts + heard.texts)
    else:
        conversation.append(heard)


def _say(conversation: list[Heard | Said], said: Said) -> None:
    if not conversation:
        conversation.append(Heard(texts=(CUT,)))
    last = conversation[-1]
    if isinstance(last, Said):
        text = "\n\n".join(part for part in (last.text, said.text) if part.strip())
        conversation[-1] = Said(text, said.calls, last.thoughts + said.thoughts)
    else:
        conversation.append(said)
