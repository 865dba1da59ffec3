"""A thread of an agent in a test: send messages, read its journal, answer its questions."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from rapkit.errors import ThreadClosed, ThreadParked
from rapkit.kernel.compaction import room_for
from rapkit.kernel.conversation import Conversation
from rapkit.kernel.effects import Step
from rapkit.kernel.entries import ClosedEntry, JournalEntry, ModelSaid, ParkedEntry, UserSaid
from rapkit.runtime.first_answers import question_key
from rapkit.runtime.history import read_view
from rapkit.runtime.thread_commands import JournalLine, ThreadSnapshot
from rapkit.testing.agent_requests import AskedToAuthorise, AskedToChoose

if TYPE_CHECKING:
    from rapkit.testing.agent_fixture import AgentFixture

E = TypeVar("E", bound=JournalEntry)
T = TypeVar("T")

_LONGEST_LINE = 200
MOST_SHOWN = 500
"""How many threads are shown at once."""


class StagedThread:
    """A thread as its user and as a test see it. What is expected and does not come in time is an `AssertionError` with the journal."""

    def __init__(self, fixture: "AgentFixture", thread_id: str) -> None:
        self.id = thread_id
        self._fixture = fixture
        self._journal: list[JournalLine] = []
        self._heard = 0
        self._asked: set[str] = set()

    # What the user does

    async def ask(self, text: str) -> str:
        """Say something, and wait for the answer. `ThreadParked` or `ThreadClosed` if none will come by itself."""
        message_id = await self.send(text)

        async def find() -> int | None:
            lines = await self._lines()
            return next((line.seq for line in lines if getattr(line.entry, "id", None) == message_id), None)

        self._heard = await self._until(find, f"{text!r} was not taken up")
        return await self.answer()

    async def send(self, text: str) -> str:
        """Say something, and return as soon as it is acknowledged; the id of the message."""
        key = next(self._fixture.keys)
        return await self._fixture.as_client(lambda threads: threads.send(self.id, text, key))

    async def answer(self) -> str:
        """The next thing the model says to the user, after what was returned before. `ThreadParked`, `ThreadClosed` as with `ask`."""

        async def find() -> JournalLine | None:
            lines = await self._lines()
            return next((line for line in lines if line.seq > self._heard and _ends_a_turn(line.entry)), None)

        line = await self._until(find, "No answer came")
        self._heard = line.seq
        match line.entry:
            case ModelSaid(text=answer):
                return answer
            case ParkedEntry(reason):
                raise ThreadParked(reason)
        raise ThreadClosed(f"Thread {self.id} was closed before it answered.")

    async def choice(self) -> AskedToChoose:
        """The next question to the user: a tool's, the model's, or whether a call may be made."""

        async def find() -> AskedToChoose | None:
            for call_id, (choice, *_) in (await self.look()).thread.choices.items():
                if (name := question_key(call_id, choice)) not in self._asked:
                    self._asked.add(name)
                    return AskedToChoose(self._fixture, self.id, call_id, choice)
            return None

        return await self._until(find, "The user was asked nothing")

    async def authorization(self) -> AskedToAuthorise:
        """The next request of a tool that the user authorise it."""

        async def find() -> AskedToAuthorise | None:
            for call_id, url in (await self.look()).authorizations.items():
                if url not in self._asked:
                    self._asked.add(url)
                    return AskedToAuthorise(self._fixture, call_id, url)
            return None

        return await self._until(find, "The user was not asked to authorise anything")

    async def cancel(self, call_id: str) -> None:
        """Cancel a pending call, or an active subscription."""
        key = next(self._fixture.keys)
        await self._fixture.as_client(lambda threads: threads.cancel(self.id, call_id, key))

    async def grant(self, *, slices: int = 0, tokens: int = 0, cost: float = 0.0) -> None:
        """Let it use more than its budget."""
        key = next(self._fixture.keys)
        await self._fixture.as_client(
            lambda threads: threads.grant(self.id, slices=slices, tokens=tokens, cost=cost, key=key)
        )

    async def close(self) -> None:
        """Close it: it takes nothing more, and every server is told."""
        await self._fixture.as_client(lambda threads: threads.close(self.id))

    # What there is to see

    async def look(self) -> ThreadSnapshot:
        """The thread as it is now: `status`, `views`, `authorizations`, and in `thread` what is pending, subscribed to, asked."""
        return await self._fixture.threads.look(self.id)

    async def until(
        self, true: Callable[[ThreadSnapshot], Any], what: str = "What the test waits for did not happen"
    ) -> ThreadSnapshot:
        """Wait until something is true of the thread."""

        async def find() -> ThreadSnapshot | None:
            look = await self.look()
            return look if true(look) else None

        return await self._until(find, what)

    @overload
    async def entries(self) -> list[JournalEntry]: ...

    @overload
    async def entries(self, kind: type[E]) -> list[E]: ...

    async def entries(self, kind: type[Any] = object) -> list[Any]:
        """The journal, oldest first; only those of a kind, if it is named."""
        return [line.entry for line in await self._lines() if isinstance(line.entry, kind)]

    async def said(self) -> list[str]:
        """What the user and the model have said, oldest first."""
        said = (UserSaid, ModelSaid)
        return [entry.text for entry in await self.entries() if isinstance(entry, said) and entry.text]

    async def conversation(self) -> Conversation:
        """What the model would be shown now."""
        thread = (await self.look()).thread
        limits = self._fixture.agent.limits
        view = await read_view(self._fixture.process.store, thread, Step(thread), limits)
        return view.conversation(limits, room_for(thread, limits, self._fixture.model.context_window))

    async def children(self) -> "list[StagedThread]":
        """Its child threads, closed ones too, oldest first."""
        page = await self._fixture.threads.newest(parent=self.id, limit=MOST_SHOWN)
        return [StagedThread(self._fixture, look.thread.id) for look in reversed(page.looks)]

    async def told(self) -> str:
        """The journal for people, a line for each entry."""
        lines = [_short(f"  {line.seq} {line.entry}") for line in await self._lines()]
        status = (await self.look()).status
        return "\n".join([f"Thread {self.id} is {status}. Its journal:", *(lines or ["  nothing"])])

    async def _lines(self) -> list[JournalLine]:
        while news := await self._fixture.threads.history(self.id, after=len(self._journal)):
            self._journal += [line for line in news if line.seq > len(self._journal)]
        return self._journal

    async def _until(self, find: Callable[[], Awaitable[T | None]], missing: str) -> T:
        return await self._fixture.waiting.until(find, missing, self.told)


def _ends_a_turn(entry: JournalEntry) -> bool:
    match entry:
        case ModelSaid(calls=()) | ParkedEntry() | ClosedEntry():
            return True
    return False


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]}…"
