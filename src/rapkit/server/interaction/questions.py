"""Questions to users, and handlers that are suspended until the answers arrive.

A handler that asks is suspended: the question is committed with the POST that carries it, the box is let go, and the handler is
interrupted. The answer is mail to the box; the worker that claims it then runs the handler again from the top, and the questions that were
answered return at once. So what stands before a question runs once for every time the handler waits, and must bear that.

A question that does not reach the user, because the runtime refuses it or cannot be reached for too long, is answered by that: the error
is mail to the box, written together with the end of the POST. From then on the question cannot be answered any more.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NoReturn

from rapkit.clock import Clock
from rapkit.delivery.outbox_sender import DeliveryOutcome, FollowUp
from rapkit.delivery.retry import PostKind
from rapkit.errors import Fenced
from rapkit.mailbox import Claim, Commit, Fact, NewMail, Outcome, Outgoing, Record, Store, TakenPost, Timer
from rapkit.server.claimed_box import ClaimedBox
from rapkit.server.invocation import digest
from rapkit.work.store_retry import retry_store_operation

QUESTION = "question"
"""Records of what was asked and answered in a call, by the question's key."""
OPEN = "open"
"""Records of the questions that can still be answered."""
RESUMED = "resumed"
"""A record of a handler that got past its last answer: from there on it must not run twice unless it says so itself."""
ANSWER = "answer"
"""Mail with an answer."""
UNDELIVERED = "undelivered"
"""Mail that says why a question was not asked."""
REMEMBERED = "remembered"
"""Records, beside a thread or a user, of answers that hold for later calls."""


@dataclass(frozen=True, slots=True)
class StoredQuestion:
    """A question of a call, with its `answer` or `error` once known. `number` counts the questions of a call."""

    key: str
    number: int
    choices: tuple[str, ...] = ()
    answer: int | None = None
    error: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether it has no answer yet."""
        return self.answer is None and self.error is None

    def to_record(self) -> Record:
        """For the store."""
        return Record(QUESTION, self.key, json.dumps(asdict(self)).encode())

    @classmethod
    def from_record(cls, record: Record) -> "StoredQuestion":
        """Read what `to_record` wrote."""
        fields = json.loads(record.body)
        return cls(**{**fields, "choices": tuple(fields["choices"])})

    def answered(self, selected: int) -> "StoredQuestion":
        """With the answer; a choice there is none of is an error (CHO-2)."""
        if not self.choices or 0 <= selected < len(self.choices):
            return replace(self, answer=selected)
        return self.failed(f"{selected} is none of the {len(self.choices)} choices, numbered from 0. Ask again.")

    def failed(self, error: str) -> "StoredQuestion":
        """With the reason why there is no answer."""
        return replace(self, error=error)


@dataclass(frozen=True, slots=True)
class NewQuestion:
    """A question to be asked: the POSTs that carry it, and the records to store beside the call.

    `afterwards` is called when it can be answered: to look whether that has become needless in the meantime.
    """

    outgoing: Sequence[Outgoing]
    put: Sequence[Record] = ()
    afterwards: Callable[[], Awaitable[None]] | None = None


def answer_mail(box: str, key: str, selected: int = 0, error: str | None = None) -> NewMail:
    """The answer to an open question. The first one counts; a repetition is recognised."""
    body = json.dumps({"key": key, "selected": selected, "error": error}).encode()
    return NewMail(box, ANSWER, body, dedup=f"{ANSWER}/{key}", needs=(OPEN, key))


def question_post(claimed_box: ClaimedBox, message: bytes, key: str) -> Outgoing:
    """The POST that carries a question to the runtime."""
    return claimed_box.post(message, PostKind.QUESTION, reference=key)


def report_question(taken: TakenPost, delivery_outcome: DeliveryOutcome) -> FollowUp:
    """What is written together with the outcome of a question's POST: the answer that it was not asked, and that it is no longer open."""
    if delivery_outcome.outcome is not Outcome.DEAD:
        return FollowUp()
    box, key = taken.outgoing.lane, taken.outgoing.reference
    problem = (delivery_outcome.problem or "it was refused").rstrip(".")
    error = f"the question did not reach the user ({problem}). Ask the user yourself, and call again if they want it."
    body = json.dumps({"key": key, "selected": 0, "error": error}).encode()
    # If an answer is there already it counts: it comes before this mail.
    new_mail = NewMail(box, UNDELIVERED, body, dedup=f"{UNDELIVERED}/{key}", needs=(OPEN, key))
    return FollowUp(new_mail, Fact(box, OPEN, key, None))


Suspend = Callable[[Commit, Callable[[], Awaitable[None]] | None], Awaitable[NoReturn]]
"""Releases the claim with a commit, runs something after it, and interrupts the handler."""


class Questions:
    """The questions of one call so far, and the way to ask more."""

    def __init__(self, store: Store, claimed_box: ClaimedBox, clock: Clock, suspend: Suspend) -> None:
        self._store = store
        self._claimed_box = claimed_box
        self._clock = clock
        self._suspend = suspend
        self._asked: dict[str, StoredQuestion] | None = None
        self._occurrences: Counter[str] = Counter()
        self._asking = asyncio.Lock()

    def key(self, *what: str) -> str:
        """The key of a question: what is asked, and how often it was asked before in this run of the handler."""
        same = digest("q", json.dumps(what))
        self._occurrences[same] += 1
        return f"{same}/{self._occurrences[same]}"

    async def answer(
        self, key: str, choices: Sequence[str], expires_in: float, ask: Callable[[], Awaitable[NewQuestion]]
    ) -> StoredQuestion:
        """The answered question. If it is not answered yet the handler is suspended, and this never returns.

        `ask` says how the question gets to the user, if it was not asked before.
        """
        async with self._asking:  # questions asked at once are asked one after another
            asked = await self._load()
            question = asked.get(key)
            if question is None:
                question = StoredQuestion(key, len(asked) + 1, tuple(choices))
                way = await ask()
                await self._suspend(
                    Commit(
                        put=[question.to_record(), Record(OPEN, key), *way.put],
                        drop=[(RESUMED, "")],
                        timers=[Timer(key, self._clock.now() + expires_in)],
                        outgoing=way.outgoing,
                    ),
                    way.afterwards,
                )
            if question.is_open:
                await self._suspend(Commit(), None)  # something else woke us
            if question.number == len(asked):
                await self._resume()
            return question

    async def has_failed(self, key: str) -> bool:
        """Whether this call has asked that in an earlier run and got no answer: then it gets none in this run either."""
        question = (await self._load()).get(key)
        return question is not None and question.error is not None

    async def was_asked(self, key: str) -> bool:
        """Whether this call has asked the user that, in this run or an earlier one: then its answer is the one that counts."""
        return key in await self._load()

    async def withdraw(self, key: str) -> None:
        """Go on although the question may still be open, because it has become needless."""
        asked = await self._load()
        if key in asked and asked[key].number == len(asked):
            await self._resume()

    async def _resume(self) -> None:
        # Before the answer is returned: from here on a crash is a crash of the handler like any other.
        if not await self._claimed_box.commit_with_retry(Commit(put=[Record(RESUMED, "")], keep=True, charge=True)):
            raise Fenced("The call was cancelled, or taken over.")

    async def _load(self) -> dict[str, StoredQuestion]:
        if self._asked is None:
            self._asked = await retry_store_operation(
                lambda: load_questions(self._store, self._claimed_box.claim.box.id)
            )
        return self._asked


async def load_questions(store: Store, box: str) -> dict[str, StoredQuestion]:
    """What a call has asked so far."""
    found = (StoredQuestion.from_record(record) for record in await store.records(box, QUESTION))
    return {question.key: question for question in found}


async def take_answers(store: Store, claim: Claim) -> bool:
    """Write down the answers that came as mail, and those that never came. `Fenced` if the claim is not ours any more.

    False if the claim was let go instead: a question has expired that could be answered until now, so it is closed first, and what was
    accepted until then comes with the next claim.
    """
    if not claim.mail and not claim.timers:
        return True
    questions = await load_questions(store, claim.box.id)
    heard: dict[str, StoredQuestion] = {}
    for mail in claim.mail:
        answer = json.loads(mail.body)
        question = questions.get(answer["key"])
        if (
            mail.kind in (ANSWER, UNDELIVERED)
            and question is not None
            and question.is_open
            and question.key not in heard
        ):
            error = answer["error"]
            heard[question.key] = question.answered(answer["selected"]) if error is None else question.failed(error)
    expired = [key for key in claim.timers if key in questions and questions[key].is_open and key not in heard]
    if expired:
        still_open = {record.key for record in await store.records(claim.box.id, OPEN)}
        if closing := [(OPEN, key) for key in expired if key in still_open]:
            await store.commit(claim, Commit(drop=closing, again_at=claim.now))
            return False
    for key in expired:
        question = questions.get(key)
        if question is not None:
            heard.setdefault(
                key, question.failed("nobody answered in time. Ask the user, and call again if they want it.")
            )
    commit = Commit(
        consumed=[mail.seq for mail in claim.mail],
        put=[question.to_record() for question in heard.values()],
        drop=[(OPEN, key) for key in heard],
        timers=[Timer(key, None) for key in {*heard, *claim.timers}],
        keep=True,
        charge=True,
    )
    await store.commit(claim, commit)
    return True
