"""Following a thread: live, again from any place, across restarts and processes."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable

import pytest
import uvicorn
from starlette.routing import Router

from rapkit.http.authentication import Callers
from rapkit.kernel.completion import Question, Reply
from rapkit.kernel.entries import UserSaid, dump_entry
from rapkit.mailbox import Commit, Entry
from rapkit.models.errors import ModelError
from rapkit.runtime.api import api_routes
from rapkit.runtime.broadcast import Changed, Delta, MaybeChanged
from rapkit.runtime.thread_commands import EventName, ThreadEvent
from rapkit.runtime.toolsets import THREAD
from tests.runtime.agents import RunningAgent, ScriptedReplies, call, working
from tests.runtime.api.client import Api, Client, Sse, nobody, serving_api
from tests.runtime.foreign_toolset import ANSWER, ForeignToolset, Invocation
from tests.server.served_toolset import until
from tests.server.sink import PATIENCE


def lasting(events: list[Sse]) -> list[Sse]:
    """Those that come again; the status is told anew to everybody who connects."""
    return [event for event in events if event.id is not None and event.name != "status"]


async def test_what_happens_is_told_as_it_happens(agent: RunningAgent) -> None:
    client = Client(agent.port)
    thread = await client.begin()

    async with client.events(thread) as stream:
        first = await stream.next()
        assert first == Sse("status", "0", {"status": "idle", "reason": None})
        await client.post(f"{thread}/messages", {"text": "hello"})
        said = await stream.until("entry", lambda entry: entry["kind"] == "user")
        answered = await stream.until("entry", lambda entry: entry["kind"] == "assistant")
        idle = await stream.until("status", lambda data: data["status"] == "idle")

    assert said[-1].id == "1"
    assert answered[-1].id == "2"
    assert answered[-1].data["text"] == "heard: hello"
    assert idle[-1].id == "2"
    assert {"status": "running", "reason": None} in [event.data for event in (*said, *answered)]
    assert stream.retry


async def _shown(agent: RunningAgent, stranger: ForeignToolset) -> tuple[str, Invocation]:
    """A thread with a question, an authorization and a view, all open."""
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()
    await invocation.view("progress", {"done": 1})
    await invocation.oauth("https://provider.example/authorize?state=1")
    await invocation.choice("Really?", ["yes", "no"], 1, f"{stranger.url}{ANSWER}/1")
    await invocation.view("progress", {"done": 2})
    thread = f"/v1/threads/{talk.id}"
    client = Client(agent.port)
    async with client.events(thread) as stream:
        await stream.until("view", lambda data: data["content"] == {"done": 2})
    return thread, invocation


async def test_who_connects_is_shown_what_is_open(agent: RunningAgent, stranger: ForeignToolset) -> None:
    """CHO-1, OAU-1, VIE-1."""
    thread, invocation = await _shown(agent, stranger)
    client = Client(agent.port)

    async with client.events(thread) as stream:
        events = await stream.until("status")

    shown = {event.name: event.data for event in events if event.name in ("choice", "oauth", "view")}
    assert shown["choice"].pop("asked_at") > 0
    assert shown == {
        "choice": {
            "call_id": invocation.id,
            "prompt": "Really?",
            "choices": ["yes", "no"],
            "default": 1,
            "in_words": False,
        },
        "oauth": {"call_id": invocation.id, "auth_url": "https://provider.example/authorize?state=1"},
        "view": {"view_type": "progress", "content": {"done": 2}},
    }
    look = await client.look(thread)
    assert look["oauth"] == [shown["oauth"]]
    assert look["views"] == {"progress": {"done": 2}}
    assert [event.data["kind"] for event in events if event.name == "entry"] == [
        *("user", "assistant", "view", "oauth", "choice", "view")
    ]


async def test_wherever_a_client_takes_it_up_again_nothing_is_lost_and_nothing_comes_twice(
    agent: RunningAgent, stranger: ForeignToolset
) -> None:
    thread, _ = await _shown(agent, stranger)
    client = Client(agent.port)
    async with client.events(thread) as stream:
        whole = lasting(await stream.until("status"))
    assert len({event.id for event in whole}) == len(whole) == 9

    for number, event in enumerate(whole, 1):
        async with client.events(thread, last=event.id) as stream:
            assert lasting(await stream.until("status")) == whole[number:]


async def test_a_client_whose_connection_breaks_after_every_event_has_all_of_them_once(
    agent: RunningAgent, stranger: ForeignToolset
) -> None:
    """While everything happens, not afterwards."""
    client = Client(agent.port)
    talk = await agent.doing(call("work"))
    thread = f"/v1/threads/{talk.id}"
    asked = asyncio.Event()

    async def happen() -> None:
        invocation = await stranger.invoked()
        await invocation.oauth("https://provider.example/authorize")
        await invocation.choice("Really?", ["yes", "no"], 1, f"{stranger.url}{ANSWER}/1")
        await asked.wait()  # what is answered before it was read is not shown at all
        await talk.threads.choose(talk.id, invocation.id, 0)
        await invocation.result("done")
        await talk.hears("done")
        await talk.threads.close(talk.id)

    async def read() -> list[Sse]:
        seen: list[Sse] = []
        last: str | None = None
        while not seen or seen[-1].data.get("kind") != "closed":
            async with client.events(thread, last) as stream:
                event = await stream.next()
                while event is not None and (event.id is None or event.name == "status"):
                    event = await stream.next()
                if event is not None:
                    seen.append(event)
                    last = event.id
                    if event.name == "choice":
                        asked.set()
        return seen

    _, seen = await asyncio.gather(happen(), read())

    entries = [event.data for event in seen if event.name == "entry"]
    assert entries == await client.entries(thread)
    assert [event.name for event in seen if event.name != "entry"] == ["oauth", "choice"]


async def test_what_is_over_is_not_shown_again(agent: RunningAgent, stranger: ForeignToolset) -> None:
    """Semantics 15: an authorization is forgotten once it was given, a question once it was answered."""
    thread, invocation = await _shown(agent, stranger)
    client = Client(agent.port)
    await client.post(f"{thread}/calls/{invocation.id}/choice", {"selected": 0})
    await invocation.result("done")
    async with client.events(thread) as stream:
        await stream.until("status", lambda data: data["status"] == "idle")

    async with client.events(thread) as stream:
        events = await stream.until("status")

    assert [event.name for event in events if event.name != "entry"] == ["view", "status"]
    look = await client.look(thread)
    assert (look["choices"], look["oauth"], look["views"]) == ([], [], {"progress": {"done": 2}})


async def test_questions_of_one_call_are_asked_one_after_the_other(
    agent: RunningAgent, stranger: ForeignToolset
) -> None:
    client = Client(agent.port)
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()
    thread = f"/v1/threads/{talk.id}"
    answers = f"{stranger.url}{ANSWER}"

    async with client.events(thread) as stream:
        await invocation.choice("first", ["yes", "no"], 1, f"{answers}/1")
        before = await stream.until("choice")
        await invocation.choice("second", ["yes", "no"], 1, f"{answers}/2")
        before += await stream.until("entry", lambda entry: entry.get("prompt") == "second")
        await client.post(f"{thread}/calls/{invocation.id}/choice", {"selected": 0})
        after = await stream.until("choice", lambda data: data["prompt"] == "second")

    asked = [event.data["prompt"] for event in (*before, *after) if event.name == "choice"]
    assert asked == ["first", "second"]
    assert after[-2].data["kind"] == "chosen"


class Speaking:
    """A model that says pieces one by one, when it is told to."""

    name = "speaking"
    takes_images = False
    context_window = None

    def __init__(self) -> None:
        self.pieces: asyncio.Queue[str | ModelError] = asyncio.Queue()

    async def complete(self, question: Question, on_text: Callable[[str], None]) -> Reply:
        text = ""
        while piece := await self.pieces.get():
            if isinstance(piece, ModelError):
                raise piece
            on_text(piece)
            text += piece
        return Reply(text)


async def test_the_pieces_of_a_reply_come_while_it_is_said_and_are_void_when_it_fails(store: str) -> None:
    model = Speaking()
    async with working(model, [], store) as agent:
        client = Client(agent.port)
        thread = await client.begin("hello")
        async with client.events(thread) as stream:
            model.pieces.put_nowait("Good ")
            assert (await stream.until("delta"))[-1] == Sse("delta", None, {"text": "Good "})
            model.pieces.put_nowait("bye")
            assert (await stream.next()) == Sse("delta", None, {"text": "bye"})
            model.pieces.put_nowait(ModelError("the line broke", retryable=True))
            assert (await stream.until("reset"))[-1] == Sse("reset", None, {})
            for piece in ("Good ", "day", ""):
                model.pieces.put_nowait(piece)
            again = await stream.until("entry", lambda entry: entry["kind"] == "assistant")
    assert again[-1].data["text"] == "Good day"


async def test_a_stream_is_taken_up_again_after_a_restart(store: str, stranger: ForeignToolset) -> None:
    async with working(ScriptedReplies(), [stranger.url], store) as agent:
        thread, invocation = await _shown(agent, stranger)
        port = agent.port
        async with Client(port).events(thread) as stream:
            before = lasting(await stream.until("status"))
    async with working(ScriptedReplies(), [stranger.url], store, port=port) as agent:
        client = Client(agent.port)
        async with client.events(thread) as stream:
            assert lasting(await stream.until("status")) == before  # what is open is open still

        async with client.events(thread, last=before[-1].id) as stream:
            assert (await stream.next()) == Sse("status", before[-1].id, {"status": "waiting", "reason": None})
            await invocation.result("at last")
            (result, *_) = lasting(await stream.until("entry"))
    assert (result.data["kind"], result.data["text"]) == ("result", "at last")


async def test_what_another_process_does_is_told_too(agent: RunningAgent, store: str) -> None:
    """Less quickly, and without pieces."""
    async with serving_api(store) as other:
        thread = await other.client().begin()
        async with other.client().events(thread) as stream:
            await stream.until("status")
            await other.client().post(f"{thread}/messages", {"text": "hello"})
            events = await stream.until("entry", lambda entry: entry["kind"] == "assistant")
    assert [event.data["text"] for event in events if event.name == "entry"] == ["hello", "heard: hello"]
    assert agent.port


async def test_a_stream_ends_with_its_thread_and_who_has_all_of_it_is_sent_away(agent: RunningAgent) -> None:
    """204 is what stops an EventSource from coming again and again."""
    client = Client(agent.port)
    thread = await client.begin("hello")
    async with client.events(thread) as stream:
        await stream.until("status", lambda data: data["status"] == "idle")
        await client.post(f"{thread}/close")
        events = await stream.rest()

    assert [(event.name, event.data.get("kind", event.data.get("status"))) for event in events[-2:]] == [
        ("entry", "closed"),
        ("status", "closed"),
    ]
    again = await client.request("GET", f"{thread}/events", headers={"Last-Event-ID": events[-1].id})
    assert again.status == 204
    async with client.events(thread) as stream:
        whole = await stream.rest()
    assert len(lasting(whole)) == 3


@pytest.mark.parametrize(
    ("query", "header", "first"),
    [("", None, 1), ("", "1", 2), ("?last_event_id=1", None, 2), ("?last_event_id=0", "1", 2)],
)
async def test_a_place_is_named_by_the_header_or_where_there_is_none_by_the_query(
    agent: RunningAgent, query: str, header: str | None, first: int
) -> None:
    """The header counts more: an EventSource comes again to the same URL."""
    talk = await agent.talk("hello")
    await talk.hears("hello")

    async with Client(agent.port).events(f"/v1/threads/{talk.id}", header, query) as stream:
        *_, entry = await stream.until("entry")

    assert entry.data["seq"] == first


@pytest.mark.parametrize("place", ["x", "-1", "0.1", "1.2", "1.", "01", "9" * 16, "3", "3.1", "²"])
async def test_a_place_that_is_none_of_the_thread_is_refused(agent: RunningAgent, place: str) -> None:
    talk = await agent.talk("hello")
    await talk.becomes("idle")

    path = f"/v1/threads/{talk.id}/events"
    reply = await Client(agent.port).request("GET", path, headers={"Last-Event-ID": place})

    assert reply.status == 400
    assert "Leave it out" in reply.detail


async def test_a_silent_stream_says_that_it_lives(store: str) -> None:
    async with serving_api(store, keep_alive=0.02) as api:
        thread = await api.client().begin()
        async with api.client().events(thread) as stream:
            await stream.until("status")
            await stream.breath()
            await stream.breath()


async def test_who_is_gone_is_not_told_anything_any_more(api: Api, client: Client) -> None:
    thread = await client.begin()
    async with client.events(thread) as stream:
        await stream.until("status")
        assert api.broadcast.watched == 1

    await until(lambda: api.broadcast.watched == 0)


async def test_streams_end_when_the_process_is_to_stop(api: Api, client: Client) -> None:
    thread = await client.begin()
    async with client.events(thread) as stream:
        await stream.until("status")

        api.broadcast.end()

        assert await stream.rest() == []
    async with client.events(thread) as stream:
        assert [event.name for event in await stream.rest()] == ["status"]


async def _written(api: Api, thread_id: str, text: str) -> None:
    """As a worker would, but without telling anybody."""
    await api.store.renew("w")
    (claim,) = await api.store.claim("w", THREAD, 1)
    assert claim.box.id == thread_id
    entries = [Entry("user", dump_entry(UserSaid(text)))]
    await api.store.commit(claim, Commit(consumed=[mail.seq for mail in claim.mail], entries=entries))


async def _names(events: AsyncIterator[ThreadEvent], count: int) -> list[EventName]:
    """So many, apart from the status."""
    names: list[EventName] = []
    async with asyncio.timeout(PATIENCE):
        while len(names) < count:
            event = await anext(events)
            if event.name is not EventName.STATUS:
                names.append(event.name)
    return names


async def test_pieces_that_come_after_their_entry_are_void(api: Api) -> None:
    thread_id = await api.threads.create(text="hello")
    events = api.threads.follow(thread_id)
    assert (await anext(events)).name is EventName.STATUS
    await _written(api, thread_id, "hello")
    for news in (MaybeChanged(), Delta("he"), Delta("llo")):
        api.broadcast.publish(thread_id, news)
    assert await _names(events, 3) == [EventName.ENTRY, EventName.DELTA, EventName.DELTA]

    api.broadcast.publish(thread_id, Changed())

    assert await _names(events, 1) == [EventName.RESET]
    await events.aclose()


async def test_a_stream_ends_after_a_while_and_whoever_comes_again_misses_nothing(store: str) -> None:
    async with serving_api(store, longest_stream=0.1) as api:
        client = api.client()
        thread = await client.begin()
        async with client.events(thread) as stream:
            first = await stream.rest()
        await client.post(f"{thread}/close")
        async with client.events(thread, last=first[-1].id) as stream:
            second = await stream.rest()

    assert [event.data["status"] for event in (*first, *second)] == ["idle", "running"]


async def test_a_server_that_waits_for_its_connections_stops_all_the_same(api: Api) -> None:
    """As a stock uvicorn does: without timeout_graceful_shutdown it waits as long as anybody is there."""
    routes = api_routes(lambda: api.threads, nobody, Callers({}), 1000, longest_stream=0.1)
    config = uvicorn.Config(Router(routes=routes), lifespan="off", ws="none", log_config=None)
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    thread = await api.client().begin()
    async with contextlib.AsyncExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        await server.startup(sockets=[listener])
        stream = await stack.enter_async_context(Client(listener.getsockname()[1]).events(thread))
        await stream.until("status")

        async with asyncio.timeout(PATIENCE):
            await server.shutdown(sockets=[listener])

        assert await stream.rest() == []
