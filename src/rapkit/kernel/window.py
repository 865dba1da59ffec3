"""The window: bound how much of a conversation a model is shown.

A provider refuses a question that is too long, now and each time after, so one big answer would end a thread for good. Nothing is lost: the
journal has the whole.
"""

import json
from collections.abc import Sequence

from rapkit.kernel.conversation import Conversation, Heard, Said, ToolAnswer
from rapkit.protocol import TextContent

ANSWER_CHARS = 200_000
"""How much of one answer, event or message is shown."""

TOTAL_CHARS = 2_000_000
"""How much of everything is shown; images are counted where they are sent."""

CUT = "(What was said before is not shown.)"

# So much at once is left out of a conversation that grows too long, so that what comes first seldom changes: providers cache that.
_STEPS = 4

_as_json = json.JSONEncoder(ensure_ascii=False).encode


def bound_conversation(
    conversation: Conversation, answer_chars: int, total_chars: int, summary: str | None = None
) -> Conversation:
    """The conversation, with the middle of what is too long left out; if all is too long, without the oldest answers, then turns.

    What was heard last is the last to be cut, and only as far as need be. A `summary` that it begins with stays.
    """
    if _size(conversation) <= min(answer_chars, total_chars):
        return conversation  # as nearly always; then no part of it is too long either
    turns = [_shortened(turn, answer_chars) if isinstance(turn, Heard) else turn for turn in conversation]
    if (excess := _size(turns) - total_chars) > 0:
        turns = _without_old_answers(turns, excess, _in_steps(excess, total_chars))
    if (excess := _size(turns) - total_chars) > 0:
        turns = _without_old_turns(turns, _in_steps(excess, total_chars), summary)
    return tuple(turns)


def _shortened(heard: Heard, limit: int) -> Heard:
    answers = tuple(_shorter_answer(answer, limit) for answer in heard.answers)
    return Heard(answers, tuple(_shorter(text, limit) for text in heard.texts))


def _shorter_answer(answer: ToolAnswer, limit: int) -> ToolAnswer:
    if _length(answer) <= limit:
        return answer
    each = limit // sum(isinstance(item, TextContent) for item in answer.content)
    content = (
        TextContent(text=_shorter(item.text, each)) if isinstance(item, TextContent) else item
        for item in answer.content
    )
    return ToolAnswer(answer.call_id, answer.name, tuple(content))


def _shorter(text: str, limit: int) -> str:
    """The beginning and the end of a text that is too long."""
    if len(text) <= limit:
        return text
    half = limit // 2
    note = f"[… {_left_out(len(text) - 2 * half)} …]"
    return "\n".join(part for part in (text[:half], note, text[len(text) - half :]) if part)


def _left_out(characters: int) -> str:
    return f"{characters} characters are left out here, because it is too long; the whole is in the history"


def _without_old_answers(turns: Sequence[Heard | Said], need: int, goal: int) -> list[Heard | Said]:
    """At least `goal` characters less, if the answers have them; the last turn is only cut while more is needed."""
    kept: list[Heard | Said] = []
    for number, turn in enumerate(turns):
        if isinstance(turn, Heard):
            answers = []
            for answer in turn.answers:
                cut = answer if goal <= 0 or (number == len(turns) - 1 and need <= 0) else _noted(answer)
                saved = _length(answer) - _length(cut)
                need, goal = need - saved, goal - saved
                answers.append(cut)
            turn = Heard(tuple(answers), turn.texts)
        kept.append(turn)
    return kept


def _noted(answer: ToolAnswer) -> ToolAnswer:
    """A note instead of the answer's texts, if that is shorter."""
    others = tuple(item for item in answer.content if not isinstance(item, TextContent))
    short = ToolAnswer(answer.call_id, answer.name, (TextContent(text=f"[{_left_out(_length(answer))}]"), *others))
    return short if _length(short) < _length(answer) else answer


def _without_old_turns(turns: list[Heard | Said], goal: int, summary: str | None) -> list[Heard | Said]:
    """Without the first turns, up to something said: calls are answered in the turn behind them. The last two turns stay."""
    if len(turns) < 3:
        return turns
    first, saved = 1, _size(turns[:1])
    while saved < goal and first + 2 <= len(turns) - 2:
        saved += _size(turns[first : first + 2])
        first += 2
    return [Heard(texts=(CUT,) if summary is None else (summary, CUT)), *turns[first:]]


def _in_steps(excess: int, total: int) -> int:
    step = max(1, total // _STEPS)
    return -(-excess // step) * step


def _size(turns: Sequence[Heard | Said]) -> int:
    return sum(turn_size(turn) for turn in turns)


def turn_size(turn: Heard | Said) -> int:
    """How many characters a turn has."""
    if isinstance(turn, Heard):
        return sum(map(_length, turn.answers)) + sum(map(len, turn.texts))
    arguments = sum(len(_as_json(call.arguments)) for call in turn.calls)
    return len(turn.text) + arguments + (len(_as_json(turn.thoughts)) if turn.thoughts else 0)


def _length(answer: ToolAnswer) -> int:
    return sum(len(item.text) for item in answer.content if isinstance(item, TextContent))
