"""A store that fails: nothing goes on without it, and nothing is lost or done twice because of it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from rapkit.errors import StoreError
from rapkit.kernel.entries import ModelSaid, UserSaid
from rapkit.mailbox import AcceptResult, Commit, NewMail
from rapkit.runtime.toolsets import THREAD
from rapkit.stores.sqlite import SqliteStore
from rapkit.stores.sqlite.boxes import Boxes
from tests.runtime.agents import RunningAgent, ScriptedReplies, call, opened, working
from tests.runtime.clocks import ManualClock
from tests.runtime.foreign_toolset import INVOKE, ForeignToolset
from tests.server.served_toolset import failing, until


async def test_a_message_that_cannot_be_stored_is_not_accepted(agent: RunningAgent, store: str) -> None:
    """RUN-5: whoever sent it is told, and may send it again."""
    talk = await agent.talk("hello")
    await talk.hears("hello")

    with failing(store, "INSERT", "mail"), pytest.raises(StoreError):
        await agent.threads.send(talk.id, "lost?", key="the same")
    with failing(store, "INSERT", "boxes"), pytest.raises(StoreError):
        await agent.threads.create(text="lost?")

    await agent.threads.send(talk.id, "lost?", key="the same")
    await agent.threads.send(talk.id, "lost?", key="the same")
    await talk.hears("heard: lost?")
    await agent.quiet()
    assert [each.text for each in await talk.all(UserSaid)] == ["hello", "lost?"]


async def test_what_cannot_be_written_down_has_no_effect_until_it_can(
    agent: RunningAgent, stranger: ForeignToolset, store: str, model: ScriptedReplies, caplog: pytest.LogCaptureFixture
) -> None:
    """RUN-5: the error is told, the write is repeated, and happens once."""
    talk = await agent.talk("hello")
    await talk.hears("hello")

    with failing(store, "INSERT", "outbox"):
        await talk.do(call("work"))
        await until(lambda: "the store fails, and is asked again" in caplog.text)
        assert stranger.to(INVOKE) == []
        assert len(await talk.all(ModelSaid)) == 1

    await (await stranger.invoked()).result("at last")
    await talk.hears("heard: at last")
    await agent.quiet()
    assert len(stranger.to(INVOKE)) == 1
    assert len(model.questions) == 3  # the reply was not asked for again


async def test_the_model_is_not_asked_before_what_came_is_written_down(
    model: ScriptedReplies, stranger: ForeignToolset, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    """RUN-5, RUN-4: it is tried again after a while, from what is stored."""
    clock = ManualClock()
    async with working(model, [stranger.url], store, environment=clock.environment()) as agent:
        with failing(store, "INSERT", "entries"):
            talk = await agent.talk("hello")
            await until(lambda: "cannot go on" in caplog.text)
            assert model.questions == []
        while not model.questions:
            clock.advance(1)
            await asyncio.sleep(0.01)

        await talk.hears("heard: hello")
        assert len(model.questions) == 1
        assert [each.text for each in await talk.all(UserSaid)] == ["hello"]


async def damaged(store: str, thread_id: str, state: object = b"damaged") -> None:
    """Another program has written to the file."""
    db = apsw.Connection(str(Path(store.removeprefix("sqlite:///"))))
    db.setbusytimeout(10_000)
    db.execute("UPDATE boxes SET state = ? WHERE id = ?", (state, thread_id))
    db.close()


async def replaced(store: str, thread_id: str) -> None:
    """Another version of us has written what this one cannot read."""
    async with opened(store) as other:
        await other.renew("other")
        await other.accept(NewMail(thread_id, "user", b"{}"))
        (claim,) = await other.claim("other", THREAD, 1)
        await other.commit(claim, Commit(consumed=[mail.seq for mail in claim.mail], state=b'{"id": 42}'))
        await other.retire("other")


@pytest.mark.parametrize("harm", [damaged, replaced])
async def test_a_thread_whose_state_cannot_be_read_does_not_go_on(
    model: ScriptedReplies,
    stranger: ForeignToolset,
    store: str,
    harm: Callable[[str, str], Awaitable[None]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """RUN-3: no model is asked, no tool called, nothing written over; whoever looks is told; other threads go on."""
    async with working(model, [stranger.url], store) as agent:
        talk = await agent.doing(call("work"))
        invocation = await stranger.invoked()
        await agent.quiet()
    await harm(store, talk.id)
    before = contents(store, talk.id)

    async with opened(store) as other_process:  # what was accepted before somebody knew
        await other_process.accept(NewMail(talk.id, "user", b'{"text": "anybody?"}'))

    async with working(model, [stranger.url], store, port=agent.port) as agent:
        assert (await invocation.result("somebody?")).status == 503
        for ask in (agent.threads.send(talk.id, "hello?"), agent.threads.close(talk.id), agent.threads.look(talk.id)):
            with pytest.raises(StoreError):
                await ask
        await (await agent.talk("other")).hears("heard: other")
        await until(lambda: any(talk.id in each.getMessage() for each in caplog.records if each.levelname != "INFO"))

    assert contents(store, talk.id) == before
    assert len(model.questions) == 2


async def test_a_thread_whose_state_is_repaired_takes_what_it_had_refused(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """Item 13 · RUN-3: whoever was refused sends it again, and nothing is lost."""
    async with working(model, [stranger.url], store) as agent:
        talk = await agent.doing(call("work"))
        invocation = await stranger.invoked()
        await agent.quiet()
        good, _ = contents(store, talk.id)
        await damaged(store, talk.id)
        assert (await invocation.result("done")).status == 503
        with pytest.raises(StoreError):
            await agent.threads.send(talk.id, "hello?")

        await damaged(store, talk.id, good)

        assert (await invocation.result("done")).status == 200
        await talk.hears("heard: done")
        assert [each.text for each in await talk.all(UserSaid)][1:] == []


def contents(store: str, thread_id: str) -> tuple[object, object]:
    """A thread's state as it lies in the file, and how long its journal is."""
    db = apsw.Connection(str(Path(store.removeprefix("sqlite:///"))))
    try:
        ((state,),) = db.execute("SELECT state FROM boxes WHERE id = ?", (thread_id,)).fetchall()
        ((length,),) = db.execute("SELECT count(*) FROM entries WHERE box = ?", (thread_id,)).fetchall()
        return state, length
    finally:
        db.close()


async def test_a_result_that_there_is_too_little_memory_for_is_set_aside_and_its_call_answered(
    model: ScriptedReplies, stranger: ForeignToolset, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each failure to read it counts as a lost attempt; nothing hangs on it."""
    honest, failures = Boxes.read_mail, [True] * 8  # four times: what fails is tried once more, alone

    def read_mail(*words: Any) -> Any:
        claims, unreadable = honest(*words)
        if failures and any(b"enormous" in mail.body for claim in claims for mail in claim.mail):
            failures.pop()
            raise MemoryError
        return claims, unreadable

    async def accept_claimed(store: SqliteStore, new_mail: NewMail, _worker: str) -> tuple[AcceptResult, None]:
        return await store.accept(new_mail), None  # as if all workers were busy: it has to be read from the store

    monkeypatch.setattr(Boxes, "read_mail", read_mail)
    monkeypatch.setattr(SqliteStore, "accept_claimed", accept_claimed)
    async with working(model, [stranger.url], store) as agent:
        talk = await agent.talk("hello")
        await talk.hears("hello")
        await talk.do(call("work"))

        await (await stranger.invoked()).result("enormous")

        await until(lambda: "each time the process was lost" in str(model.questions[-1]))
        assert not failures
