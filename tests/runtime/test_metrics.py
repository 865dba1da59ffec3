"""What an agent counts, what waits in its store, and whether it is alive."""

import asyncio
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rapkit.errors import StoreError
from rapkit.kernel.completion import Question, Reply, Usage
from rapkit.kernel.incoming import UserMessage
from rapkit.keyring import load_keyring
from rapkit.mailbox import Load
from rapkit.runtime import metrics
from rapkit.runtime.mail_codec import encode_mail
from rapkit.stores.sqlite import SqliteStore
from tests.runtime.agents import PATIENT, RunningAgent, ScriptedReplies, call, working
from tests.runtime.foreign_toolset import INVOKE, ForeignToolset
from tests.server.served_toolset import Reply as Answer
from tests.server.served_toolset import exchange
from tests.server.sink import answer

Numbers = dict[tuple[str, ...], float]


async def get(agent: RunningAgent, path: str) -> Answer:
    return await exchange(agent.port, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{agent.port}\r\n\r\n".encode())


async def numbers(agent: RunningAgent) -> Numbers:
    """Every number of the page, by name and values of labels."""
    reply = await get(agent, "/metrics")
    assert reply.status == 200
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(reply.body.decode())
        for sample in family.samples
    }


async def test_the_page_says_what_was_done_and_what_it_took(stranger: ForeignToolset, store: str) -> None:
    obedient = ScriptedReplies()

    def model(question: Question) -> Reply:
        said = obedient(question)
        usage = Usage(1, 100, 10, 0.5)
        return Reply(said, usage=usage) if isinstance(said, str) else Reply(calls=said.calls, usage=usage)

    async with working(model, [stranger.url], store) as agent:
        talk = await agent.doing(call("work"))
        await (await stranger.invoked()).result("done")
        await talk.hears("heard: done")
        await agent.quiet()
        found = await numbers(agent)

    assert found["rapkit_slice_duration_seconds_count",] == 2
    assert found["rapkit_wake_latency_seconds_count",] == 2
    assert found["rapkit_completion_duration_seconds_count", "ok"] == 2
    assert found["rapkit_tokens_total", "input"] == 200
    assert found["rapkit_tokens_total", "output"] == 20
    assert found["rapkit_cost_dollars_total",] == 1.0
    assert found["rapkit_callbacks_total", "200"] == 1
    assert found["rapkit_post_attempts_total", "invocation", "delivered"] == 1
    assert found["rapkit_slices_running",] == found["rapkit_posts_under_way",] == 0


async def test_the_page_says_what_waits_in_the_store(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    stranger.otherwise[INVOKE] = answer(503)
    async with working(model, [stranger.url], store, policies=PATIENT) as agent:
        await agent.doing(call("work"))
        await agent.failed_once()
        found = await numbers(agent)

    assert found["rapkit_store_readable",] == 1
    assert found["rapkit_outbox_waiting",] == 1
    assert found["rapkit_outbox_oldest_seconds",] > 0
    assert found["rapkit_outbox_dead",] == 0
    assert found["rapkit_letters_unread",] == found["rapkit_oldest_unread_seconds",] == 0
    assert found["rapkit_threads_due",] == 0


async def test_mail_that_nobody_reads_is_seen(stranger: ForeignToolset, store: str) -> None:
    """Two messages come while the model is asked, and wait."""
    gate, asked = asyncio.Event(), asyncio.Event()

    async def model(_: Question) -> str:
        asked.set()
        await gate.wait()
        return "done"

    async with working(model, [stranger.url], store) as agent:
        talk = await agent.talk("hello")
        await asked.wait()
        await talk.say("are")
        await talk.say("you there?")
        during = await numbers(agent)
        gate.set()
        await talk.hears("done")
        await agent.quiet()
        after = await numbers(agent)

    assert during["rapkit_letters_unread",] == 2
    assert during["rapkit_oldest_unread_seconds",] > 0
    assert during["rapkit_slices_running",] == 1
    assert after["rapkit_letters_unread",] == after["rapkit_oldest_unread_seconds",] == 0


async def test_a_letter_that_waited_for_a_process_is_late(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """By the store's clock, whoever was there when it was accepted."""
    async with working(model, [stranger.url], store) as agent:
        talk = await agent.talk("hello")
        await talk.hears("heard: hello")
        await agent.quiet()
    path = Path(store.removeprefix("sqlite:///"))
    earlier = SqliteStore(str(path), load_keyring(path), clock=lambda: time.time() - 1000)
    await earlier.accept(encode_mail(talk.id, UserMessage("anybody?", "usr_1")))
    await earlier.close()

    async with working(model, [stranger.url], store) as agent:
        await agent.thread(talk.id).hears("heard: anybody?")
        found = await numbers(agent)

    assert found["rapkit_wake_latency_seconds_count",] == 1
    assert found["rapkit_wake_latency_seconds_sum",] >= 1000


@pytest.mark.parametrize("trouble", ["it fails", "it hangs"])
async def test_a_store_that_cannot_be_read_leaves_out_its_numbers_and_no_others(
    model: ScriptedReplies, stranger: ForeignToolset, store: str, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    really = SqliteStore.load
    troubles = [trouble]

    async def load(self: SqliteStore, kind: str) -> Load:
        match troubles:
            case ["it fails"]:
                raise StoreError("The disk is gone.")
            case ["it hangs"]:
                await asyncio.Event().wait()
        return await really(self, kind)

    monkeypatch.setattr(metrics, "_PATIENCE_WITH_STORE", 0.05)
    monkeypatch.setattr(SqliteStore, "load", load)
    async with working(model, [stranger.url], store) as agent:
        during = await numbers(agent)
        troubles.clear()
        monkeypatch.setattr(metrics, "_PATIENCE_WITH_STORE", 10.0)
        after = await numbers(agent)

    assert during["rapkit_store_readable",] == 0
    assert "rapkit_outbox_waiting" not in {name for name, *_ in during}
    assert during["rapkit_slices_running",] == 0
    assert after["rapkit_store_readable",] == 1
    assert after["rapkit_outbox_waiting",] == 0
