"""Compaction: replace the oldest part of what the model is shown by a summary.

The journal stays as it is. A summary is a line of it that says up to which line it goes, so that a thread that inherits the journal up to
an earlier line sees what it always saw. Calls that go on are named with it, because the model may want to cancel them, or hear of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rapkit.kernel.completion import Question, Reply, Usage
from rapkit.kernel.conversation import Conversation, Heard
from rapkit.kernel.effects import Step
from rapkit.kernel.entries import SHOWN, Answered, Failed, LiveCall, ModelSaid, Summary
from rapkit.kernel.limits import ThreadLimits
from rapkit.kernel.projection import Numbered
from rapkit.kernel.step_builder import StepBuilder
from rapkit.kernel.thread import Summarised, Thread

CONTEXT_WINDOW = 128_000
"""How many tokens a model is taken to bear of which nothing is known."""

CHARS_PER_TOKEN = 4
_FULL = 0.75
_KEPT = 4  # a quarter of the window stays as it is
_LEAST_ROOM = 500
_INSTRUCTIONS = (
    "You are shown a conversation between a user, an assistant and the assistant's tools. It has become too long and is to be replaced by "
    "what you write. Write down everything the assistant needs to go on as if it remembered all of it: what the user wants and has said "
    "about how, what was decided and why, what was found out (with names, numbers, ids and addresses as they are), what was done, what is "
    "still to be done, and what was promised. Leave out what is of no further use. Do not answer the conversation, and call no tool."
)
_NOW = "(Write the summary of everything above now.)"


def lines_since(thread: Thread) -> int:
    """How many lines for models there are that are not summarised."""
    return thread.shown - (thread.summary.shown if thread.summary else 0)


def may_be_tried(thread: Thread, limits: ThreadLimits) -> bool:
    """Whether there is anything to be summed up, and it did not fail just now."""
    return limits.compaction and lines_since(thread) > 0 and thread.shown >= thread.compact_after


def room_for(thread: Thread, limits: ThreadLimits, window: int | None) -> int:
    """How many tokens the model takes: what is configured, or known of it, or has turned out."""
    room = limits.context_window or window or CONTEXT_WINDOW
    return min(room, thread.room) if thread.room else room


def is_due(thread: Thread, limits: ThreadLimits, room: int, tokens: int) -> bool:
    """Whether room is to be made before the model is asked, whose question would have so many tokens, about."""
    return may_be_tried(thread, limits) and (tokens >= _FULL * room or lines_since(thread) > limits.window)


@dataclass(frozen=True, slots=True)
class Cut:
    """Up to which line of its own journal a thread is summarised (0 is none of them), and the calls that are shown behind that."""

    upto: int
    shown_behind: int
    calls_behind: frozenset[str]


def cut(lines: Sequence[Numbered], sizes: Sequence[int], limits: ThreadLimits, room: int) -> Cut:
    """Where to cut: about a quarter of what there is room for, in characters, stays, and an answer is not cut off from its call."""
    room //= _KEPT
    # Of what stays. The last line for models always does, because it is what is to be answered.
    first = max((number for number, line in enumerate(lines) if line.entry.kind in SHOWN), default=0)
    kept = sum(sizes[first:])
    while first > 0 and len(lines) - first < max(1, limits.window // _KEPT) and kept + sizes[first - 1] <= room:
        first -= 1
        kept += sizes[first]
    first = _whole(lines, first)
    behind = lines[first:]
    calls = {call.id for line in behind if isinstance(line.entry, ModelSaid) for call in line.entry.calls}
    upto = lines[first - 1].seq if first > 0 else 0
    return Cut(upto, sum(line.entry.kind in SHOWN for line in behind), frozenset(calls))


def _whole(lines: Sequence[Numbered], first: int) -> int:
    """The line to begin with: the given one, or an earlier one if answers from there on belong to calls before it."""
    made = {
        call.id: number
        for number, line in enumerate(lines[:first])
        if isinstance(line.entry, ModelSaid)
        for call in line.entry.calls
    }
    answered = [
        made[line.entry.call_id]
        for line in lines[first:]
        if isinstance(line.entry, Answered) and not line.entry.late and line.entry.call_id in made
    ]
    earliest = min(answered, default=first)
    return first if earliest == first else _whole(lines, earliest)


def summary_question(conversation: Conversation) -> Question:
    """What the model is asked for a summary."""
    turns = list(conversation)
    last = turns[-1] if turns else None
    if isinstance(last, Heard):
        turns[-1] = Heard(last.answers, (*last.texts, _NOW))
    else:
        turns.append(Heard(texts=(_NOW,)))
    return Question(_INSTRUCTIONS, tuple(turns), (), for_summary=True)


def compacted(thread: Thread, said: Reply, where: Cut, now: float, limits: ThreadLimits) -> Step:
    """The model has written a summary; it is asked again, with that."""
    draft = StepBuilder(thread, now, limits)
    draft.change(usage=thread.usage + said.usage, failures=0)
    children = {child: each.task for child, each in thread.spawned.items() if not each.closing}
    summary = Summary(said.text, where.upto, _live(thread, where.calls_behind), children, said.usage)
    seq = draft.journal(summary)
    shown = draft.thread.shown - where.shown_behind
    draft.change(summary=Summarised(seq, where.upto, shown), context=0, compact_after=0)
    return draft.step()


def not_compacted(thread: Thread, problem: str, usage: Usage, now: float, limits: ThreadLimits) -> Step:
    """There is no summary: the model is asked without one. It is tried again when more has been said."""
    draft = StepBuilder(thread, now, limits)
    draft.journal(Failed(f"What was said so far could not be summarised: {problem}"))
    draft.change(usage=thread.usage + usage, compact_after=thread.shown + max(2, limits.window // _KEPT), context=0)
    return draft.step()


def shrink_window(thread: Thread, room: int, tokens: int, now: float, limits: ThreadLimits) -> Step | None:
    """The model takes less than it was asked, which was so many tokens by our count: half of that, for all we know.

    None if that would be too little to go on with.
    """
    less = min(room, tokens) // 2
    if less < _LEAST_ROOM:
        return None
    draft = StepBuilder(thread, now, limits)
    draft.change(room=less, compact_after=0, usage=thread.usage + Usage(requests=1))
    return draft.step()


def _live(thread: Thread, shown: frozenset[str]) -> tuple[LiveCall, ...]:
    running = [
        LiveCall(call_id, call.name, call.arguments) for call_id, call in thread.pending.items() if call_id not in shown
    ]
    subscribed = [
        LiveCall(call_id, each.name, each.arguments, subscription=True)
        for call_id, each in thread.subscriptions.items()
        if call_id not in shown
    ]
    return (*running, *subscribed)
