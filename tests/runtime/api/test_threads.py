"""Beginning threads, listing them, looking at them, reading their journals."""

import asyncio

import pytest

from rapkit.errors import UnknownThread
from rapkit.kernel.entries import ModelSaid, dump_entry
from rapkit.kernel.thread import Thread, dump_thread
from rapkit.mailbox import Commit, Entry, NewBox
from rapkit.runtime.toolsets import THREAD
from tests.runtime.agents import RunningAgent, call
from tests.runtime.api.client import Api, Client
from tests.runtime.foreign_toolset import ForeignToolset, tool


async def test_a_thread_is_begun_and_found_where_the_answer_says(client: Client) -> None:
    reply = await client.post("/v1/threads", {"user_id": "u1"})

    assert reply.status == 201
    assert reply.headers["location"] == f"/v1/threads/{reply.json['thread_id']}"
    thread = await client.look(reply.headers["location"])
    assert thread["thread_id"] == reply.json["thread_id"]
    assert (thread["status"], thread["user_id"], thread["parent_id"], thread["reason"]) == ("idle", "u1", None, None)
    assert thread["usage"] == {"requests": 0, "input_tokens": 0, "output_tokens": 0, "cost": 0.0}
    for name in ("pending_calls", "subscriptions", "choices", "oauth", "children"):
        assert thread[name] == []
    assert thread["views"] == {}


async def test_a_first_message_is_answered(agent: RunningAgent) -> None:
    client = Client(agent.port)

    thread = await client.begin("hello")

    async with client.events(thread) as stream:
        await stream.until("status", lambda data: data["status"] == "idle")
    first, second = await client.entries(thread)
    assert (first["kind"], first["text"], first["seq"]) == ("user", "hello", 1)
    assert (second["kind"], second["text"], second["seq"]) == ("assistant", "heard: hello", 2)
    assert (await client.look(thread))["usage"]["requests"] == 1


async def test_a_thread_shows_what_it_waits_for(agent: RunningAgent, stranger: ForeignToolset) -> None:
    client = Client(agent.port)
    thread = await client.begin('[["work", {"n": 1}], ["other_work", {}]]')
    first, second = await stranger.invoked_with(n=1), await stranger.invoked_with()
    await second.confirm()
    async with client.events(thread) as stream:
        await stream.until("entry", lambda entry: entry["kind"] == "result")

    look = await client.look(thread)

    assert look["status"] == "waiting"
    (pending,) = look["pending_calls"]
    assert pending.pop("made_at") > 0
    assert pending == {
        "call_id": first.id,
        "name": "work",
        "operation": "work",
        "server": stranger.url,
        "arguments": {"n": 1},
        "display": "work(n=1)",
        "still_running_shown": False,
        "awaits": "tool",
        "until": None,
        "callback_problem": None,
    }
    (subscription,) = look["subscriptions"]
    assert (subscription["call_id"], subscription["name"], subscription["arguments"]) == (second.id, "other_work", {})
    assert subscription["display"] == "other_work()"


async def test_calls_are_shown_to_people_as_their_tool_says_it(agent: RunningAgent, stranger: ForeignToolset) -> None:
    script = 'if args.n == () { "Much work" } else { "Work no. " + args.n }'
    stranger.tools = [tool("work", displayScript=script), tool("other_work")]
    client = Client(agent.port)
    thread = await client.begin('[["work", {"n": 1}], ["work", {}], ["other_work", {"n": 2}]]')
    await (await stranger.invoked_with()).confirm()
    async with client.events(thread) as stream:
        await stream.until("entry", lambda entry: entry["kind"] == "result")

    look, entries = await client.look(thread), await client.entries(thread)

    assert [call["display"] for call in look["pending_calls"]] == ["Work no. 1", "other_work(n=2)"]
    assert [call["display"] for call in look["subscriptions"]] == ["Much work"]
    assert [call.get("display") for call in entries[1]["calls"]] == ["Work no. 1", "Much work", None]


async def test_threads_are_listed_in_pages_the_latest_first(client: Client) -> None:
    made = [await client.begin() for _ in range(5)]
    listed: list[str] = []
    cursor, pages = "", 0
    while True:
        page = (await client.get(f"/v1/threads?limit=2{cursor}")).json
        listed += [each["thread_id"] for each in page["threads"]]
        pages += 1
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"

    assert listed == [thread.rpartition("/")[2] for thread in sorted(made, reverse=True)]
    assert pages == 3


async def test_threads_made_under_a_key_stand_in_the_list_like_others(client: Client) -> None:
    first = await client.begin()
    second = (await client.post("/v1/threads", {}, key="k")).json["thread_id"]
    await asyncio.sleep(0.002)  # ids sort to the millisecond
    third = await client.begin()

    listed = [each["thread_id"] for each in (await client.get("/v1/threads")).json["threads"]]

    assert listed[0] == third.rpartition("/")[2]
    assert set(listed[1:]) == {second, first.rpartition("/")[2]}


async def _made(api: Api, number: int, **fields: object) -> str:
    thread = Thread(f"thr_{number:04}", **fields)  # type: ignore[arg-type]
    box = NewBox(thread.id, THREAD, dump_thread(thread), root=thread.id, parent=thread.parent, idle=True)
    await api.store.create(box)
    return thread.id


@pytest.mark.parametrize(("status", "found"), [("idle", ["thr_0001", "thr_0000"]), ("running", ["thr_0002"])])
async def test_threads_that_never_ran_are_idle_and_those_with_mail_are_running(
    api: Api, client: Client, status: str, found: list[str]
) -> None:
    for number in range(3):
        await _made(api, number)
    await api.threads.send("thr_0002", "hello")

    page = (await client.get(f"/v1/threads?status={status}")).json

    assert [each["thread_id"] for each in page["threads"]] == found
    assert {each["status"] for each in page["threads"]} == {status}
    assert page["next_cursor"] is None


async def test_a_page_that_is_filtered_to_nothing_has_a_cursor_that_leads_on(
    api: Api, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rapkit.runtime.thread_queries._MOST_LOOKED_AT", 100)
    await _made(api, 0)
    await api.threads.send("thr_0000", "the oldest is the one that runs")
    for number in range(1, 151):
        await _made(api, number)

    first = (await client.get("/v1/threads?status=running&limit=1")).json
    second = (await client.get(f"/v1/threads?status=running&limit=1&cursor={first['next_cursor']}")).json

    assert first["threads"] == []
    assert [each["thread_id"] for each in second["threads"]] == ["thr_0000"]
    assert second["next_cursor"] is None


async def test_parked_and_closed_threads_are_found_by_their_status(agent: RunningAgent) -> None:
    client = Client(agent.port)
    open_one, closed = await client.begin("hi"), await client.begin("hi")
    await client.post(f"{closed}/close")
    async with client.events(closed) as stream:
        await stream.rest()

    found = (await client.get("/v1/threads?status=closed")).json["threads"]

    assert [each["thread_id"] for each in found] == [closed.rpartition("/")[2]]
    assert (await client.get("/v1/threads?status=parked")).json["threads"] == []
    assert open_one != closed


async def test_children_are_found_by_their_parent(agent: RunningAgent, stranger: ForeignToolset) -> None:
    client = Client(agent.port)
    thread = await client.begin('[["work", {}]]')
    subscription = await stranger.invoked()
    await subscription.confirm()
    await subscription.event("something happened")
    async with client.events(thread) as stream:
        made = (await stream.until("entry", lambda entry: entry["kind"] == "child"))[-1].data["thread_id"]

    listed = (await client.get(f"/v1/threads?parent={thread.rpartition('/')[2]}")).json["threads"]

    assert [each["thread_id"] for each in listed] == [made]
    assert listed[0]["parent_id"] == thread.rpartition("/")[2]


async def test_a_journal_is_read_in_pages_the_oldest_entry_first(agent: RunningAgent) -> None:
    client = Client(agent.port)
    talk = await agent.talk("one")
    await talk.hears("one")
    await talk.say("two")
    await talk.hears("two")
    thread = f"/v1/threads/{talk.id}"

    first = (await client.get(f"{thread}/history?limit=3")).json
    second = (await client.get(f"{thread}/history?limit=3&cursor={first['next_cursor']}")).json

    assert [entry["seq"] for entry in first["entries"]] == [1, 2, 3]
    assert [entry["seq"] for entry in second["entries"]] == [4]
    assert (first["next_cursor"], second["next_cursor"]) == ("3", None)
    whole = (await client.get(f"{thread}/history?limit=4")).json
    assert whole["next_cursor"] is None


async def test_a_page_of_a_journal_ends_before_it_gets_too_large(
    agent: RunningAgent, stranger: ForeignToolset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rapkit.runtime.api.operations._LARGEST_PAGE", 1000)
    client = Client(agent.port)
    talk = await agent.doing(call("work"))
    await (await stranger.invoked()).result("x" * 2000)
    await talk.hears("xxx")

    listed: list[list[int]] = []
    cursor: str | None = "0"
    while cursor:
        page = (await client.get(f"/v1/threads/{talk.id}/history?cursor={cursor}")).json
        assert page["entries"]
        listed.append([entry["seq"] for entry in page["entries"]])
        cursor = page["next_cursor"]

    assert listed == [[1, 2, 3], [4]]


async def test_what_a_model_thinks_is_not_shown(api: Api, client: Client) -> None:
    thread = await _made(api, 1)
    await api.threads.send(thread, "hi")
    await api.store.renew("w")
    (claim,) = await api.store.claim("w", THREAD, 1)
    said = ModelSaid("hello", thoughts=({"signature": "hidden"},))
    entries = [Entry(said.kind, dump_entry(said))]
    await api.store.commit(claim, Commit(consumed=[mail.seq for mail in claim.mail], entries=entries))

    (entry,) = await client.entries(f"/v1/threads/{thread}")

    assert b"hidden" in dump_entry(said)
    assert entry["text"] == "hello"
    assert "thoughts" not in entry


@pytest.mark.parametrize("path", ["", "/history", "/events"])
@pytest.mark.parametrize("thread", ["thr_unknown", "rapkit", "%00", "%F0%9F%A6%86", "a" * 600])
async def test_an_unknown_thread_is_not_found(client: Client, thread: str, path: str) -> None:
    reply = await client.get(f"/v1/threads/{thread}{path}")

    assert reply.status == 404
    assert "There is no thread" in reply.detail


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("limit=0", "query.limit: less than 1"),
        ("limit=201", "query.limit: more than 200"),
        ("limit=many", "query.limit"),
        ("status=busy", "'idle', 'running', 'waiting', 'parked' or 'closed'"),
        ("parent=%00", "query.parent"),
    ],
)
async def test_what_is_wrong_with_a_query_is_said(client: Client, query: str, says: str) -> None:
    reply = await client.get(f"/v1/threads?{query}")

    assert reply.status == 400
    assert says in reply.detail


async def test_a_box_that_is_no_thread_is_not_written_to(api: Api) -> None:
    await api.store.create(NewBox("rapkit/ours", "ours", idle=True))

    with pytest.raises(UnknownThread):
        await api.threads.send("rapkit/ours", "hello")

    assert await api.store.backlog("ours") == 0
