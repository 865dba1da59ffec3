"""A model that replies by rules."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from rapkit.kernel.completion import Question, Reply, Usage, WantedCall
from rapkit.kernel.conversation import Said
from rapkit.models import templates
from rapkit.models.errors import ModelError
from rapkit.models.rules import Rule
from rapkit.models.transcript import Transcript, read_transcript

Found = tuple[Rule, int, dict[str, str]]


class RuleModel:
    """Replies with the first rule that matches the newest item of the transcript.

    Which rule that is depends on the conversation alone, so it is the same in another process, after a crash. Only failures are counted
    in memory.
    """

    def __init__(self, rules: tuple[Rule, ...], *, name: str, source: str) -> None:
        self._rules = rules
        self._name = name
        self._source = source
        self._failed: Counter[int] = Counter()

    @property
    def name(self) -> str:
        """`scripted:` and the file."""
        return self._name

    @property
    def takes_images(self) -> bool:
        """It reads only."""
        return False

    @property
    def context_window(self) -> int | None:
        """It has none: its rules look at what was heard last."""
        return None

    async def complete(self, question: Question, on_text: Callable[[str], None]) -> Reply:
        """Make one completion; see `Model`. A summary is made without a rule."""
        if question.for_summary:
            return Reply(f"({len(question.conversation)} turns were said.)", usage=Usage(1), model=self._name)
        transcript = read_transcript(question.conversation)
        found = self._find(transcript)
        if found is None:
            reply, stream = Reply(self._no_rule(transcript), usage=Usage(1), model=self._name), False
        else:
            rule = found[0]
            if rule.delay:
                await asyncio.sleep(rule.delay)
            self._fail(rule)
            reply, stream = self._reply(question, transcript, found), rule.stream
        for piece in _words(reply.text) if stream else filter(None, [reply.text]):
            on_text(piece)
            await asyncio.sleep(0)  # so that what listens sees pieces, and not one heap of them
        return reply

    def _find(self, transcript: Transcript) -> Found | None:
        for number, rule in itertools.product(transcript.newest, self._rules):
            match = rule.match(transcript.pieces[number])
            if match is None or (rule.nth is not None and rule.nth != _count(rule, transcript, number)):
                continue
            if rule.speaks or self._will_fail(rule):
                return rule, number, match
        return None

    def _will_fail(self, rule: Rule) -> bool:
        failure = rule.failure
        return failure is not None and (failure.times is None or self._failed[rule.number] < failure.times)

    def _fail(self, rule: Rule) -> None:
        if rule.failure is not None and self._will_fail(rule):
            self._failed[rule.number] += 1
            failure = rule.failure
            raise ModelError(failure.message, retryable=failure.retryable, retry_after=failure.retry_after)

    def _reply(self, question: Question, transcript: Transcript, found: Found) -> Reply:
        rule, places = found[0], _places(transcript, found)
        turn = sum(isinstance(turn, Said) for turn in question.conversation)
        calls = tuple(
            WantedCall(f"call_{turn}_{index}", tool, templates.fill(arguments, places))
            for index, (tool, arguments) in enumerate(rule.calls)
        )
        return Reply(templates.fill_text(rule.say, places), calls, usage=rule.usage, model=self._name)

    def _no_rule(self, transcript: Transcript) -> str:
        heard = transcript.pieces[transcript.newest[0]] if transcript.newest else "nothing"
        return f"{self._source} has no rule for what I heard last: {heard}."


def _count(rule: Rule, transcript: Transcript, number: int) -> int:
    """How often the rule was about something, up to this."""
    return sum(rule.match(piece) is not None for piece in transcript.pieces[: number + 1])


def _places(transcript: Transcript, found: Found) -> dict[str, Any]:
    rule, number, match = found
    piece = transcript.pieces[number]
    answers = [each.text for each in transcript.pieces[: number + 1] if each.kind != "user"]
    last = [transcript.pieces[each] for each in reversed(transcript.newest)]
    return {
        "text": piece.text,
        "match": match,
        "answer": answers[-1] if answers else "",
        "answers": "\n".join(each.text for each in last if each.kind != "user"),
        "call_id": piece.call_id or next(reversed(transcript.calls.values()), ""),
        "calls": transcript.calls,
        "count": _count(rule, transcript, number),
    }


def _words(text: str) -> Iterator[str]:
    """Word by word, each with the space before it."""
    word = ""
    for character in text:
        if character.isspace() and word and not word[-1].isspace():
            yield word
            word = ""
        word += character
    if word:
        yield word
