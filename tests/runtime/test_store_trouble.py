"""A store that fails for a while: nothing is lost, and nothing is held against the thread."""

import asyncio
from typing import Any

import pytest

from rapkit.errors import StoreError
from rapkit.kernel.entries import ModelSaid, UserSaid
from rapkit.mailbox import Claim, Commit
from rapkit.stores.sqlite import SqliteStore
from tests.runtime.agents import ScriptedReplies, working
from tests.runtime.clocks import ManualClock
from tests.runtime.foreign_toolset import ForeignToolset

TIMES = 10
PAUSE = 5.0  # before a thread whose store fails is tried again


class Impatient(ManualClock):
    """Notes for how long somebody wants to sleep, and wakes them at once."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


class Trouble:
    """Makes an operation of stores fail for the first times."""

    def __init__(self) -> None:
        self.left = TIMES

    def strike(self) -> None:
        if self.left:
            self.left -= 1
            raise StoreError("The disk is full.")


def fail_to_journal(monkeypatch: pytest.MonkeyPatch, trouble: Trouble) -> None:
    really = SqliteStore.commit

    async def commit(self: SqliteStore, claim: Claim, commit: Commit, sender: str | None = None) -> Any:
        if commit.keep:
            trouble.strike()
        return await really(self, claim, commit, sender)

    monkeypatch.setattr(SqliteStore, "commit", commit)


def fail_to_read(monkeypatch: pytest.MonkeyPatch, trouble: Trouble) -> None:
    really = SqliteStore.recent

    async def recent(self: SqliteStore, *arguments: Any, **options: Any) -> Any:
        trouble.strike()
        return await really(self, *arguments, **options)

    monkeypatch.setattr(SqliteStore, "recent", recent)


@pytest.mark.parametrize("fail", [fail_to_journal, fail_to_read])
async def test_a_store_in_trouble_costs_time_and_nothing_else(
    model: ScriptedReplies, stranger: ForeignToolset, store: str, monkeypatch: pytest.MonkeyPatch, fail: Any
) -> None:
    """RUN-3, RUN-4: more often than a message may end a worker; the message stays, is heard once, and no person has to see to it."""
    clock = Impatient()
    trouble = Trouble()
    fail(monkeypatch, trouble)
    async with working(model, [stranger.url], store, environment=clock.environment()) as agent:
        talk = await agent.talk("hello")

        await talk.hears("heard: hello")

        assert [type(each) for each in await talk.entries()] == [UserSaid, ModelSaid]
        assert (await talk.becomes("idle")).thread.parked is None
        assert trouble.left == 0
        assert clock.slept.count(PAUSE) == TIMES
        await talk.say("and again")
        await talk.hears("heard: and again")
