"""Requests that are sent again with the same Idempotency-Key."""

import asyncio
import itertools
import time

import pytest

from rapkit.runtime.idempotency import IdempotencyKeys, IdempotentRequest, KeyReused
from rapkit.runtime.mail_codec import REMEMBERED
from rapkit.stores import open_store
from tests.runtime.agents import RunningAgent, ScriptedReplies, call, working
from tests.runtime.api.client import Client, serving_api
from tests.runtime.foreign_toolset import ANSWER, CANCEL, ForeignToolset
from tests.server.served_toolset import failing


async def test_twenty_equal_requests_at_once_make_one_thread_with_one_message(agent: RunningAgent) -> None:
    client = Client(agent.port)

    replies = await asyncio.gather(
        *(client.post("/v1/threads", {"text": "hello", "user_id": "u"}, key="k1") for _ in range(20))
    )

    assert {reply.status for reply in replies} == {201}
    assert len({reply.body for reply in replies}) == 1
    await agent.quiet()
    assert len((await client.get("/v1/threads")).json["threads"]) == 1
    entries = await client.entries(replies[0].headers["location"])
    assert [entry["kind"] for entry in entries] == ["user", "assistant"]


async def test_twenty_equal_messages_at_once_are_one(agent: RunningAgent) -> None:
    client = Client(agent.port)
    thread = await client.begin()

    replies = await asyncio.gather(*(client.post(f"{thread}/messages", {"text": "hello"}, key="k1") for _ in range(20)))

    assert {reply.status for reply in replies} == {202}
    assert len({reply.body for reply in replies}) == 1
    await agent.quiet()
    assert [entry["kind"] for entry in await client.entries(thread)] == ["user", "assistant"]


async def test_a_key_used_for_something_else_is_refused(client: Client) -> None:
    thread = await client.begin()
    await client.post("/v1/threads", {"text": "one"}, key="k")
    await client.post(f"{thread}/messages", {"text": "one"}, key="k")

    for path, body in (("/v1/threads", {"text": "one", "user_id": "u"}), (f"{thread}/messages", {"text": "two"})):
        reply = await client.post(path, body, key="k")
        assert reply.status == 422
        assert "used before" in reply.detail
    assert len((await client.get("/v1/threads")).json["threads"]) == 2


async def test_a_key_counts_for_one_path_only(client: Client) -> None:
    first, second = await client.begin(), await client.begin()

    ids = [
        (await client.post(f"{thread}/messages", {"text": text}, key="k")).json["message_id"]
        for thread, text in ((first, "one"), (second, "two"))
    ]

    assert ids[0] != ids[1]


async def test_without_a_key_everything_happens_as_often_as_it_is_sent(client: Client) -> None:
    assert await client.begin("hi") != await client.begin("hi")


async def test_a_cancellation_is_repeated_after_its_call_has_ended(
    agent: RunningAgent, stranger: ForeignToolset
) -> None:
    client = Client(agent.port)
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()
    path = f"/v1/threads/{talk.id}/calls/{invocation.id}/cancel"
    first = await client.post(path, key="k")
    await talk.answered(invocation.id)

    again = await client.post(path, key="k")

    assert (first.status, again.status) == (202, 202)
    assert (await client.post(path, key="another")).status == 404
    assert (await client.post(path)).status == 404
    await agent.quiet()
    assert len(stranger.to(CANCEL)) == 1


async def test_an_answer_is_repeated_after_the_next_question_was_asked(
    agent: RunningAgent, stranger: ForeignToolset
) -> None:
    client = Client(agent.port)
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()
    path = f"/v1/threads/{talk.id}/calls/{invocation.id}/choice"
    async with client.events(f"/v1/threads/{talk.id}") as stream:
        for prompt in ("first", "second"):
            await invocation.choice(prompt, ["yes", "no"], 1, f"{stranger.url}{ANSWER}/{prompt}")
        await stream.until("choice", lambda data: data["prompt"] == "first")
        assert (await client.post(path, {"selected": 0}, key="k")).status == 202
        await stream.until("choice", lambda data: data["prompt"] == "second")

        again = await client.post(path, {"selected": 0}, key="k")
        other = await client.post(path, {"selected": 1}, key="k")

    assert (again.status, other.status) == (202, 422)
    await agent.quiet()
    assert stranger.to(f"{ANSWER}/second") == []


async def test_a_repeated_message_gets_its_answer_even_when_the_thread_is_closed_by_now(agent: RunningAgent) -> None:
    client = Client(agent.port)
    thread = await client.begin()
    first = await client.post(f"{thread}/messages", {"text": "hello"}, key="k")
    await client.post(f"{thread}/close")
    async with client.events(thread) as stream:
        await stream.rest()

    again = await client.post(f"{thread}/messages", {"text": "hello"}, key="k")

    assert (again.status, again.body) == (202, first.body)
    assert (await client.post(f"{thread}/messages", {"text": "hello"}, key="new")).status == 409


async def test_what_was_lost_half_way_is_finished_by_the_repetition(store: str, client: Client) -> None:
    """The key is noted, and then the store fails: nothing was acknowledged, and nothing is done twice."""
    with failing(store, "INSERT", "mail"):
        assert (await client.post("/v1/threads", {"text": "hello"}, key="k")).status == 503
    assert (await client.get("/v1/threads")).json["threads"] == []

    again = [await client.post("/v1/threads", {"text": "hello"}, key="k") for _ in range(2)]

    assert [reply.status for reply in again] == [201, 201]
    assert again[0].body == again[1].body
    assert len((await client.get("/v1/threads?status=running")).json["threads"]) == 1


async def test_keys_are_remembered_across_a_restart(store: str) -> None:
    bodies = []
    for _ in range(2):
        async with working(ScriptedReplies(), [], store) as agent:
            reply = await Client(agent.port).post("/v1/threads", {"text": "hello"}, key="k")
            bodies.append(reply.body)
            await agent.quiet()
            page = (await Client(agent.port).get("/v1/threads")).json
            assert len(page["threads"]) == 1
            assert page["threads"][0]["usage"]["requests"] == 1
    assert bodies[0] == bodies[1]


async def test_a_key_from_long_ago_is_refused_rather_than_used_twice(store: str) -> None:
    """By then it is forgotten which letters came, so that nobody could tell whether this one did."""
    now = time.time()
    async with serving_api(store, now=lambda: now) as api:
        thread = await api.client().begin()
        assert (await api.client().post(f"{thread}/messages", {"text": "hi"}, key="k")).status == 202
        now += REMEMBERED

        reply = await api.client().post(f"{thread}/messages", {"text": "hi"}, key="k")

        assert reply.status == 422
        assert "days ago" in reply.detail


@pytest.mark.parametrize("key", ["", "x" * 256, "two words", "ä"])
async def test_a_key_that_is_none_is_refused(client: Client, key: str) -> None:
    reply = await client.post("/v1/threads", {}, key=key)

    assert reply.status == 400
    assert "Idempotency-Key" in reply.detail


async def test_a_request_that_was_refused_leaves_its_key_free(client: Client) -> None:
    thread = await client.begin()
    assert (await client.post(f"{thread}/messages", {"text": " "}, key="k")).status == 400

    assert (await client.post(f"{thread}/messages", {"text": "hello"}, key="k")).status == 202


def _neighbours() -> tuple[IdempotentRequest, IdempotentRequest]:
    """Two requests that are noted in the same place."""
    seen: dict[tuple[str, str], IdempotentRequest] = {}
    for number in itertools.count():
        request = IdempotentRequest.of(f"k{number}", ("create",), "hello")
        assert request is not None
        other = seen.setdefault((request.box.id, request.record_kind), request)
        if other is not request:
            return other, request
    raise AssertionError


async def test_notes_that_are_of_no_use_any_more_are_cleared_away(store: str) -> None:
    now = time.time()
    first, second = _neighbours()
    shelves = open_store(store)
    try:
        repeats = IdempotencyKeys(shelves, lambda: now)
        assert await repeats.note(first, "thr_1") == "thr_1"
        now += REMEMBERED + 7200
        assert await repeats.note(second, "thr_2") == "thr_2"
        with pytest.raises(KeyReused):  # it is too old to be repeated, and still there to refuse that
            await repeats.find(first)
        now += REMEMBERED - 7199

        assert await repeats.note(second, "thr_3") == "thr_2"

        assert [each.key for each in await shelves.records(second.box.id, second.record_kind)] == [second.place]
        assert await repeats.find(first) is None
    finally:
        await shelves.close()


async def test_a_key_whose_note_is_gone_is_a_new_one(store: str) -> None:
    now = time.time()
    async with serving_api(store, now=lambda: now) as api:
        first = await api.client().post("/v1/threads", {"text": "hi"}, key="k")
        now += 2 * REMEMBERED + 1

        again = await asyncio.gather(*(api.client().post("/v1/threads", {"text": "hi"}, key="k") for _ in range(5)))

    assert {reply.status for reply in again} == {201}
    assert len({reply.body for reply in again}) == 1
    assert again[0].body != first.body
