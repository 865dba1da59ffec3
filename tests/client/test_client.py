from collections.abc import AsyncIterator

import pytest

from rapkit import Client
from rapkit.client import ChoiceEvent, ChosenEntry, ThreadSummary, UserEntry
from rapkit.errors import BadRequest, Conflict, NotFound
from tests.runtime.agents import RunningAgent, call, please
from tests.runtime.foreign_toolset import ANSWER, ForeignToolset


async def _ids(threads: AsyncIterator[ThreadSummary]) -> list[str]:
    return [each.thread_id async for each in threads]


async def test_the_agent_says_what_it_is(agent: RunningAgent, stranger: ForeignToolset, client: Client) -> None:
    found = await client.agent()

    assert found.works
    assert found.servers == [stranger.url]
    assert client.url == agent.url
    assert repr(client) == f"Client({agent.url!r})"


async def test_a_thread_is_created_for_a_user_with_a_first_message(agent: RunningAgent, client: Client) -> None:
    thread = await client.create_thread("hello", user_id="u1")
    await agent.quiet()

    detail = await thread.get()
    assert (detail.thread_id, detail.user_id, detail.status, detail.length) == (thread.id, "u1", "idle", 2)
    assert [entry.text async for entry in thread.history() if isinstance(entry, UserEntry)] == ["hello"]


async def test_the_same_key_creates_one_thread_and_another_request_under_it_is_refused(client: Client) -> None:
    one = await client.create_thread("hello", idempotency_key="k")
    two = await client.create_thread("hello", idempotency_key="k")

    assert one.id == two.id
    with pytest.raises(BadRequest, match="Use a new one for every new request") as raised:
        await client.create_thread("good bye", idempotency_key="k")
    assert raised.value.status == 422


async def test_all_threads_come_the_latest_first_whatever_the_pages(client: Client) -> None:
    made = [(await client.create_thread()).id for _ in range(7)][::-1]

    for size in (1, 3, 7, 50):
        assert await _ids(client.threads(page_size=size)) == made


async def test_one_page_says_where_the_next_begins(client: Client) -> None:
    made = [(await client.create_thread()).id for _ in range(3)][::-1]

    first = await client.threads_page(limit=2)
    second = await client.threads_page(limit=2, cursor=first.next_cursor)

    assert [each.thread_id for each in (*first.threads, *second.threads)] == made
    assert second.next_cursor is None


async def test_threads_are_found_by_status_and_parent(agent: RunningAgent, client: Client) -> None:
    parent = await client.create_thread(please(call("spawn_thread", task="look at Oslo")))
    closed = await client.create_thread()
    await closed.close()
    await agent.quiet()

    assert await _ids(client.threads(status="closed")) == [closed.id]
    (child,) = [each async for each in client.threads(parent=parent.id)]
    assert (child.parent_id, child.task) == (parent.id, "look at Oslo")


@pytest.mark.parametrize("size", [0, -1, 201])
async def test_a_page_that_no_agent_gives_is_refused_with_what_is_possible(client: Client, size: int) -> None:
    with pytest.raises(BadRequest, match=r"query\.limit"):
        await client.threads_page(limit=size)


async def test_a_history_is_read_whole_whatever_the_pages(agent: RunningAgent, client: Client) -> None:
    thread = await client.create_thread()
    for number in range(5):
        await thread.send(f"message {number}")
        await agent.quiet()

    whole = (await thread.history_page(limit=1000)).entries
    assert [entry.seq for entry in whole] == list(range(1, 11))
    for size in (1, 3, 10, 1000):
        assert [entry async for entry in thread.history(page_size=size)] == whole
    assert [entry.seq async for entry in thread.history(after=8)] == [9, 10]


async def test_one_page_of_a_history_says_where_the_next_begins(agent: RunningAgent, client: Client) -> None:
    thread = await client.create_thread("hello")
    await agent.quiet()

    first = await thread.history_page(limit=1)
    assert first.next_cursor is not None
    second = await thread.history_page(cursor=first.next_cursor, limit=1)

    assert [entry.seq for entry in (*first.entries, *second.entries)] == [1, 2]
    assert second.next_cursor is None


async def test_what_does_not_exist_is_not_found(client: Client) -> None:
    nowhere = client.thread("thr_nowhere")
    here = await client.create_thread()

    for attempt in (
        nowhere.get,
        nowhere.family,
        nowhere.history_page,
        lambda: anext(aiter(nowhere.history())),
        lambda: anext(nowhere.events()),
        lambda: nowhere.send("hello"),
        nowhere.close,
        lambda: nowhere.ask("hello"),
        lambda: here.cancel("c1"),
        lambda: here.choose("c1", 0),
    ):
        with pytest.raises(NotFound):
            await attempt()


async def test_a_closed_thread_takes_nothing_more(client: Client) -> None:
    thread = await client.create_thread()
    await thread.close()
    await thread.close()

    with pytest.raises(Conflict, match="closed"):
        await thread.send("hello")
    assert (await thread.get()).status == "closed"


async def test_a_blank_message_is_refused_and_the_field_named(client: Client) -> None:
    thread = await client.create_thread()

    with pytest.raises(BadRequest, match=r"body\.text"):
        await thread.send("  ")


async def test_a_question_is_answered_once_and_by_who_has_seen_it(
    agent: RunningAgent, stranger: ForeignToolset, client: Client
) -> None:
    thread = await client.create_thread(please(call("work")))
    invocation = await stranger.invoked()
    for number in (1, 2):
        await invocation.choice(f"Question {number}?", ["red", "blue"], 1, f"{stranger.url}{ANSWER}/{number}")
    await agent.quiet()
    (first,) = (await thread.get()).choices
    assert (first.prompt, first.choices, first.default, first.in_words) == ("Question 1?", ["red", "blue"], 1, False)

    with pytest.raises(BadRequest, match=r"body\.selected"):
        await thread.choose(first, 2)
    await thread.choose(first, 0, idempotency_key="mine")
    await agent.quiet()
    with pytest.raises(Conflict):
        await thread.choose(first, 1)
    with pytest.raises(Conflict):
        await thread.dismiss(first)
    with pytest.raises(Conflict):
        await thread.answer(first, "red")
    await thread.choose(first, 0, idempotency_key="mine")
    (second,) = (await thread.get()).choices
    assert second.prompt == "Question 2?"
    await thread.dismiss(second)
    await stranger.received(f"{ANSWER}/2")

    assert [post.message["selected"] for path in (1, 2) for post in stranger.to(f"{ANSWER}/{path}")] == [0, 1]


async def test_a_question_of_the_model_can_be_answered_in_words(agent: RunningAgent, client: Client) -> None:
    thread = await client.create_thread(please(call("ask_user", question="Which?", choices=["red", "blue"])))
    async with thread.events() as events:
        async for event in events:
            if isinstance(event, ChoiceEvent):
                await thread.answer(event.question, "green")
                break
    await agent.quiet()

    assert [entry.text async for entry in thread.history() if isinstance(entry, ChosenEntry)] == ["green"]


async def test_a_question_can_be_dismissed(agent: RunningAgent, client: Client) -> None:
    thread = await client.create_thread(please(call("ask_user", question="Which?", choices=["red", "blue"])))
    await agent.quiet()
    (question,) = (await thread.get()).choices

    await thread.dismiss(question.call_id)
    await agent.quiet()

    assert [entry.dismissed async for entry in thread.history() if isinstance(entry, ChosenEntry)] == [True]
    assert (await thread.get()).choices == []


async def test_a_call_can_be_cancelled(agent: RunningAgent, stranger: ForeignToolset, client: Client) -> None:
    thread = await client.create_thread(please(call("work", n=1)))
    invocation = await stranger.invoked()

    (pending,) = (await thread.get()).pending_calls
    assert (pending.call_id, pending.awaits, pending.arguments) == (invocation.id, "tool", {"n": 1})
    await thread.cancel(pending.call_id)
    await agent.quiet()

    assert (await thread.get()).pending_calls == []


async def test_a_budget_can_be_granted_but_not_nothing(agent: RunningAgent, client: Client) -> None:
    thread = await client.create_thread()

    with pytest.raises(BadRequest, match="slices, tokens or cost"):
        await thread.grant()
    await thread.grant(tokens=5)
    await agent.quiet()

    assert [entry.kind async for entry in thread.history()] == ["granted"]
