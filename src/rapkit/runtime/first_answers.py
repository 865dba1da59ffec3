"""Record the first answer to each question, so that only that one counts and its sender can repeat the request."""

import hashlib
from dataclasses import dataclass

from pydantic import TypeAdapter

from rapkit.errors import StoreError
from rapkit.kernel.thread import OpenChoice, Thread
from rapkit.mailbox import Fact, NewBox, Store
from rapkit.runtime.toolsets import THREAD


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """What was chosen, or said in words; neither, to dismiss the question. And the request that said so."""

    by: str
    selected: int | None = None
    text: str | None = None


_READER = TypeAdapter(GivenAnswer)


def question_key(call_id: str, question: OpenChoice) -> str:
    """What a question is called beside its thread and in its mail. Questions that are asked one after the other differ."""
    told = f"{call_id} {question.asked_at!r} {question.response_url}"
    return f"answer/{hashlib.sha256(told.encode()).hexdigest()[:32]}"


def is_open(thread: Thread, call_id: str, name: str) -> bool:
    """Whether this is the question of the call that can be answered now."""
    questions = thread.choices.get(call_id, ())
    return bool(questions) and question_key(call_id, questions[0]) == name


class FirstAnswers:
    """The first answers to questions, by thread. One small record for every question that was answered."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(self, thread_id: str, question: str) -> GivenAnswer | None:
        """The first answer, if one was given."""
        for record in await self._store.records(thread_id, question):
            try:
                return _READER.validate_json(record.body)
            except ValueError:
                raise StoreError(f"An answer to a question of thread {thread_id} cannot be read.") from None
        return None

    async def give(self, thread_id: str, question: str, answer: GivenAnswer) -> GivenAnswer | None:
        """The first answer: this one, unless there is one already. None if the thread is closed: it takes none."""
        fact = Fact(thread_id, question, "", _READER.dump_json(answer))
        if await self._store.note(NewBox(thread_id, THREAD, idle=True), fact, None):
            return answer
        return await self.find(thread_id, question)
