"""What holds for questions: each is answered once at most, the answer gets to whoever asked, and nothing is done without permission."""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from rapkit.kernel.entries import ChoiceAsked, ChoiceMadeEntry, MadeCall, ModelSaid
from rapkit.kernel.user_requests import NO, YES_ALWAYS
from tests.crash.runtime.evidence import Evidence, Journal
from tests.crash.runtime.ledger import Wish

_CONFIRMED = re.compile(r"\w_wipe")
_REMEMBERED = "b_wipe"
_OURS = "May the agent call "
_ANSWERED_BELOW = "The user answered with the message that follows."
_NO_ANSWER = ("The user dismissed the question and gave no answer.", "The user did not answer in time.")
_CANCELLED = "Error: Cancelled."
_NOT_PERMITTED = "Error: The user was asked whether this call may be made, and"


def is_ours(entry: ChoiceAsked, calls: dict[str, MadeCall]) -> bool:
    """Whether it is no tool that asks."""
    call = calls.get(entry.call_id)
    return entry.prompt.startswith(_OURS) or (call is not None and call.name == "ask_user")


def account_questions(evidence: Evidence) -> Iterator[str]:
    for journal in evidence.journals.values():
        asked: dict[str, list[ChoiceAsked]] = defaultdict(list)
        made: dict[str, list[ChoiceMadeEntry]] = defaultdict(list)
        for entry in journal.entries:
            if isinstance(entry, ChoiceAsked):
                asked[entry.call_id].append(entry)
            elif isinstance(entry, ChoiceMadeEntry):
                made[entry.call_id].append(entry)
        for call_id, answers in made.items():
            if len(answers) > len(asked[call_id]):
                yield f"{journal.id}/{call_id} asked {len(asked[call_id])} times, and was answered {len(answers)} times"
        yield from _first_answers(evidence, journal, asked, made)
        for call in journal.made:
            first = next(iter(made[call.id]), None)
            if call.name == "ask_user":
                yield from _answered(journal, call, asked[call.id], first)
            elif _CONFIRMED.fullmatch(call.name):
                yield from _permitted(evidence, journal, call, asked[call.id], first)


def _first_answers(
    evidence: Evidence,
    journal: Journal,
    asked: dict[str, list[ChoiceAsked]],
    made: dict[str, list[ChoiceMadeEntry]],
) -> Iterator[str]:
    """Of several people who answer one question, one is told that it counts, and that one's answer is in the journal."""
    wishes = [wish for wish in evidence.wishes_by_thread[journal.id] if wish.what != "cancel" and wish.acknowledged]
    for call_id, count in Counter(wish.call for wish in wishes).items():
        if count > len(asked[call_id]):
            yield f"{journal.id}/{call_id} asked {len(asked[call_id])} times, and {count} people were told that theirs counts"
    for call_id, answers in made.items():
        said = [wish for wish in evidence.wishes_by_thread[journal.id] if wish.call == call_id]
        for answer in answers:
            if not answer.expired and not any(_is(answer, wish) for wish in said):
                yield f"{journal.id}/{call_id} was answered {answer}, and nobody said that"


def _is(answer: ChoiceMadeEntry, wish: Wish) -> bool:
    if wish.what == "answer":
        return answer.text == wish.said
    return wish.what == "choice" and (answer.dismissed if wish.said is None else answer.selected == wish.said)


def _answered(
    journal: Journal, call: MadeCall, asked: list[ChoiceAsked], made: ChoiceMadeEntry | None
) -> Iterator[str]:
    for answer in journal.answers(call.id):
        text = answer.text or ""
        if made is None:
            fits = text == _ANSWERED_BELOW or text.startswith(_CANCELLED)
        elif made.text is not None:
            fits = text == made.text
        elif made.selected is not None:
            fits = text == asked[0].choices[made.selected]
        else:
            fits = text == _NO_ANSWER[made.expired]
        if not fits:
            yield f"{journal.id}/{call.id} ({call.name}) gave the model {text!r}, and the user said {made}"


def _permitted(
    evidence: Evidence, journal: Journal, call: MadeCall, asked: list[ChoiceAsked], made: ChoiceMadeEntry | None
) -> Iterator[str]:
    name = f"{journal.id}/{call.id} ({call.name} {call.arguments.get('key', '')})"
    said = None if made is None or made.selected is None or not asked else asked[0].choices[made.selected]
    sent = (journal.id, call.id) in evidence.invoked
    ran = any(effect.call == (journal.id, call.id) for effect in evidence.effects)
    if asked and said in (None, NO) and (sent or ran):
        yield f"{name} was {'carried out' if ran else 'sent'}, and the user said {said}"
    if not asked and (sent or ran) and call.name != _REMEMBERED:
        yield f"{name} was made without a question"
    elif not asked and (sent or ran) and not _is_allowed(evidence, journal, call):
        yield f"{name} was made without a question, and nobody said that it may be"
    for answer in journal.answers(call.id):
        if (answer.text or "").startswith(_NOT_PERMITTED) and said != NO:
            yield f"{name} was answered {answer.text!r}, and the user said {said}"


def _is_allowed(evidence: Evidence, journal: Journal, call: MadeCall) -> bool:
    """Whether somebody said before, here or where the thread comes from, that they need not be asked again."""
    before = itertools.takewhile(
        lambda entry: not isinstance(entry, ModelSaid) or call not in entry.calls, journal.entries
    )
    inherited = [
        evidence.journals[thread].entries for thread in journal.thread.ancestors if thread in evidence.journals
    ]
    for entries in (tuple(before), *inherited):
        always = {
            entry.call_id: entry.choices.index(YES_ALWAYS)
            for entry in entries
            if isinstance(entry, ChoiceAsked) and YES_ALWAYS in entry.choices and f" {call.name} " in entry.prompt
        }
        made = {entry.call_id: entry.selected for entry in entries if isinstance(entry, ChoiceMadeEntry)}
        if any(made.get(call_id) == selected for call_id, selected in always.items()):
            return True
    return False
