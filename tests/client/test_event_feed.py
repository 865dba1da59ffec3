"""Following a thread: typed, in order, once, whatever becomes of connections and of the agent."""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

from rapkit import Client
from rapkit.client import (
    AssistantEntry,
    ChoiceEvent,
    ClientRetries,
    ClientTimeouts,
    DeltaEvent,
    EntryEvent,
    EventFeed,
    FeedEvent,
    ResetEvent,
    StatusEvent,
    UnknownEntry,
    UnknownEvent,
    UserEntry,
)
from rapkit.errors import AgentUnreachable, BadRequest, InvalidAnswer, NotFound, Unauthorized, Unavailable
from rapkit.kernel.completion import Question, Reply
from rapkit.models.errors import ModelError
from tests.client.proxy import Proxy, proxied
from tests.interop.conftest import Up
from tests.interop.processes import free_port
from tests.runtime.agents import RunningAgent, working
from tests.server.sink import PATIENCE, Behaviour, Sink, answer, never, reset

QUICK = ClientRetries(attempts=3, first_pause=0.01, longest_pause=0.05)


async def take(events: EventFeed, until: Callable[[FeedEvent], bool]) -> list[FeedEvent]:
    """The events up to the first that is as wanted, that one included."""
    taken: list[FeedEvent] = []
    async with asyncio.timeout(PATIENCE):
        async for event in events:
            taken.append(event)
            if until(event):
                return taken
    raise AssertionError(f"it ended after {taken}")


def says(text: str) -> Callable[[FeedEvent], bool]:
    """Whether the model says this in an entry."""
    return lambda event: (
        isinstance(event, EntryEvent) and isinstance(event.entry, AssistantEntry) and text in event.entry.text
    )


def is_status(status: str) -> Callable[[FeedEvent], bool]:
    return lambda event: isinstance(event, StatusEvent) and event.status == status


def seqs(events: list[FeedEvent]) -> list[int]:
    return [event.entry.seq for event in events if isinstance(event, EntryEvent)]


def statuses(events: list[FeedEvent]) -> list[str]:
    return [event.status for event in events if isinstance(event, StatusEvent)]


# With a real agent


async def test_everything_comes_typed_and_the_feed_ends_with_the_thread(agent: RunningAgent, client: Client) -> None:
    thread = await client.create_thread("hello")
    async with thread.events() as events:
        taken = await take(events, is_status("idle"))
        await thread.close()
        taken += [event async for event in events]

    assert [type(event.entry).__name__ for event in taken if isinstance(event, EntryEvent)] == [
        "UserEntry",
        "AssistantEntry",
        "ClosedEntry",
    ]
    assert statuses(taken)[-1] == "closed"
    assert "idle" in statuses(taken)
    assert events.last_event_id == "3"


async def test_it_can_be_continued_after_an_event_or_an_entry(agent: RunningAgent, client: Client) -> None:
    thread = await client.create_thread("hello")
    await thread.ask("again")
    await agent.quiet()
    await thread.close()

    whole = [event async for event in thread.events()]
    assert seqs(whole) == [1, 2, 3, 4, 5]
    for after in (2, "2"):
        assert seqs([event async for event in thread.events(after)]) == [3, 4, 5]
    for number, event in enumerate(whole):
        assert [each async for each in thread.events(event.id)] == whole[number + 1 :] or event.id == "5"
    assert [event async for event in thread.events("5")] == []


async def test_whoever_leaves_the_loop_can_go_on_where_they_were(agent: RunningAgent, client: Client) -> None:
    thread = await client.create_thread("hello")
    await agent.quiet()
    await thread.close()
    feed = thread.events()
    async for event in feed:
        if isinstance(event, EntryEvent):
            break
    assert feed.last_event_id == "1"

    assert seqs([event async for event in thread.events(feed.last_event_id)]) == [2, 3]


async def test_an_agent_that_is_killed_in_the_middle_is_followed_through_its_restart(up: Up) -> None:
    plan = """
    - user: slow
      delay: 1.5
      say: That took a while.
    - say: "So be it."
    """
    runtime = await asyncio.to_thread(up, plan)
    async with Client(runtime.url) as client:
        thread = await client.create_thread("one")
        taken: list[FeedEvent] = []
        async with thread.events() as events:
            taken += await take(events, is_status("idle"))
            await thread.send("slow")
            taken += await take(
                events, lambda event: isinstance(event, EntryEvent) and isinstance(event.entry, UserEntry)
            )
            await asyncio.to_thread(runtime.kill)

            async def restart() -> None:
                await asyncio.sleep(0.5)
                await asyncio.to_thread(runtime.start)

            restarting = asyncio.create_task(restart())
            taken += await take(events, says("That took a while."))
            await restarting
            await thread.send("three")
            taken += await take(events, says("So be it."))
            await asyncio.to_thread(runtime.kill)
            restarting = asyncio.create_task(restart())
            await thread.send("four")  # the client waits for the agent
            taken += await take(events, says("So be it."))
            await restarting
            await thread.close()
            taken += [event async for event in events]
        history = [entry async for entry in thread.history()]

    assert [event.entry for event in taken if isinstance(event, EntryEvent)] == history
    assert [entry.text for entry in history if isinstance(entry, UserEntry)] == ["one", "slow", "three", "four"]
    assert all(one != other for one, other in pairwise(statuses(taken)))


async def test_nothing_is_lost_or_doubled_on_a_line_that_breaks_all_the_time(agent: RunningAgent) -> None:
    async with proxied(agent.url) as proxy, Client(proxy.url, retries=ClientRetries(50, 0.01, 0.05)) as client:
        thread = await client.create_thread()
        taken: list[FeedEvent] = []

        async def follow() -> None:
            taken.extend([event async for event in thread.events()])

        following = asyncio.create_task(follow())
        breaking = asyncio.create_task(_break_often(proxy))
        for number in range(15):
            await thread.send(f"message {number}")
            await asyncio.sleep(0.02)
        breaking.cancel()
        await agent.quiet()
        await thread.close()
        async with asyncio.timeout(PATIENCE):
            await following
        history = [entry async for entry in thread.history()]

    assert [event.entry for event in taken if isinstance(event, EntryEvent)] == history
    assert sum(isinstance(entry, UserEntry) for entry in history) == 15
    assert sum(b"/events" in request for request in proxy.requests) > 2


async def _break_often(proxy: Proxy) -> None:
    while True:
        await asyncio.sleep(0.03)
        proxy.cut()


class Speaking:
    """A model that says what it is given, piece by piece: "" ends the reply, an error breaks it off."""

    name = "speaking"
    takes_images = False
    context_window = None

    def __init__(self) -> None:
        self.pieces: asyncio.Queue[str | ModelError] = asyncio.Queue()

    async def complete(self, _question: Question, on_text: Callable[[str], None]) -> Reply:
        text = ""
        while piece := await self.pieces.get():
            if isinstance(piece, ModelError):
                raise piece
            on_text(piece)
            text += piece
        return Reply(text)


async def test_text_comes_in_pieces_that_are_void_when_the_model_fails(store: str) -> None:
    model = Speaking()
    async with working(model, [], store) as agent, Client(agent.url) as client:
        thread = await client.create_thread("hello")
        async with thread.events() as events:
            await take(events, is_status("running"))
            model.pieces.put_nowait("Good ")
            model.pieces.put_nowait("bye")
            taken = await take(events, lambda event: event == DeltaEvent(text="bye"))
            model.pieces.put_nowait(ModelError("the line broke", retryable=True))
            taken += await take(events, lambda event: event == ResetEvent())
            for piece in ("Good ", "day", ""):
                model.pieces.put_nowait(piece)
            taken += await take(events, says("Good day"))
    pieces = [event for event in taken if isinstance(event, DeltaEvent | ResetEvent)]
    said = [
        DeltaEvent(text="Good "),
        DeltaEvent(text="bye"),
        ResetEvent(),
        DeltaEvent(text="Good "),
        DeltaEvent(text="day"),
    ]
    assert pieces == said


async def test_pieces_are_void_when_the_connection_breaks_and_their_rest_is_left_out(store: str) -> None:
    model = Speaking()
    async with (
        working(model, [], store) as agent,
        proxied(agent.url) as proxy,
        Client(proxy.url, retries=QUICK) as client,
    ):
        thread = await client.create_thread("hello")
        async with thread.events() as events:
            await take(events, is_status("running"))
            model.pieces.put_nowait("Good ")
            await take(events, lambda event: event == DeltaEvent(text="Good "))
            proxy.cut()
            following = asyncio.create_task(take(events, says("Good day")))
            async with asyncio.timeout(PATIENCE):
                while sum(b"/events" in request for request in proxy.requests) < 2:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            model.pieces.put_nowait("day")
            model.pieces.put_nowait("")
            taken = await following
            await thread.send("and now?")
            model.pieces.put_nowait("Next.")
            after = await take(events, lambda event: isinstance(event, DeltaEvent))
    assert [event for event in taken if not isinstance(event, StatusEvent)] == [ResetEvent(), taken[-1]]
    assert after[-1] == DeltaEvent(text="Next.")


# With an agent that is played by a plain socket


def streaming(*events: str, end: Callable[[asyncio.StreamWriter], Awaitable[None]] | None = None) -> Behaviour:
    """Send these events; then end in order, or otherwise."""

    async def behave(writer: asyncio.StreamWriter) -> None:
        head = (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        writer.write(head)
        for event in events:
            data = event.encode()
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))
        await writer.drain()
        if end is not None:
            await end(writer)
        else:
            writer.write(b"0\r\n\r\n")
            await writer.drain()

    return behave


async def _broken(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(0.05)
    writer.transport.abort()


def sse(name: str, data: Any, id: str | None = None) -> str:
    return f"event: {name}\n{'' if id is None else f'id: {id}' + chr(10)}data: {json.dumps(data)}\n\n"


def user(seq: int) -> str:
    return sse("entry", {"seq": seq, "at": 1.0, "kind": "user", "text": str(seq), "id": "m"}, str(seq))


def status(seq: int, status: str) -> str:
    return sse("status", {"status": status, "reason": None}, str(seq))


QUESTION = {"call_id": "c1", "prompt": "Which?", "choices": ["a"], "default": None, "in_words": False, "asked_at": 1.5}


@contextlib.asynccontextmanager
async def following(sink: Sink, **options: Any) -> AsyncIterator[EventFeed]:
    timeouts = options.pop("timeouts", None)
    async with (
        Client(sink.url, retries=QUICK, timeouts=timeouts) as client,
        client.thread("t").events(**options) as events,
    ):
        yield events


NOTHING_MORE = answer(204)


async def test_every_connection_says_which_event_was_the_last(sink: Sink) -> None:
    sink.script = [
        streaming(user(1), status(1, "idle"), end=_broken),
        reset,
        streaming(user(2), user(3)[:20], end=_broken),
        streaming(user(3), status(3, "closed")),
        NOTHING_MORE,
    ]
    async with following(sink) as events:
        taken = [event async for event in events]

    assert seqs(taken) == [1, 2, 3]
    assert [post.headers.get("last-event-id") for post in sink.posts] == [None, "1", "1", "2", "3"]
    assert {post.headers["accept"] for post in sink.posts} == {"text/event-stream"}


async def test_what_an_agent_says_again_is_not_told_again(sink: Sink) -> None:
    sink.script = [
        streaming(user(1), sse("choice", QUESTION, "1"), status(1, "waiting"), end=_broken),
        streaming(user(1), user(2), sse("choice", QUESTION, "2"), status(2, "waiting"), end=_broken),
        streaming(sse("choice", {**QUESTION, "asked_at": 2.5}, "3"), status(3, "running"), status(3, "closed")),
        NOTHING_MORE,
    ]
    async with following(sink) as events:
        taken = [event async for event in events]

    assert seqs(taken) == [1, 2]
    assert [event.question.asked_at for event in taken if isinstance(event, ChoiceEvent)] == [1.5, 2.5]
    assert statuses(taken) == ["waiting", "running", "closed"]


async def test_the_rest_of_a_text_whose_beginning_was_missed_is_left_out(sink: Sink) -> None:
    def piece(text: str) -> str:
        return sse("delta", {"text": text})

    sink.script = [
        streaming(status(0, "running"), piece("a"), end=_broken),
        streaming(status(0, "running"), piece("b"), user(1), piece("c"), end=_broken),
        streaming(status(1, "running"), piece("d"), sse("reset", {}), piece("e")),
        streaming(status(1, "idle"), status(1, "running"), piece("f"), user(2), status(2, "closed")),
        NOTHING_MORE,
    ]
    async with following(sink) as events:
        taken = [event async for event in events]

    told = [
        event.text if isinstance(event, DeltaEvent) else "|" if isinstance(event, ResetEvent) else "."
        for event in taken
    ]
    assert (
        "".join(each for each, event in zip(told, taken, strict=True) if not isinstance(event, StatusEvent))
        == "a|.c|e|f."
    )


async def test_kinds_of_a_newer_agent_do_no_harm(sink: Sink) -> None:
    sink.script = [
        streaming(
            sse("weather", {"rain": True}, "1"),
            sse("entry", {"seq": 2, "at": 1.0, "kind": "dream", "about": "sheep"}, "2"),
            sse("status", {"status": "dreaming", "reason": None, "since": 5}, "2"),
        ),
        NOTHING_MORE,
    ]
    async with following(sink) as events:
        taken = [event async for event in events]

    assert taken[0] == UnknownEvent(id="1", name="weather", data={"rain": True})
    assert isinstance(taken[1], EntryEvent)
    assert isinstance(taken[1].entry, UnknownEntry)
    assert (taken[1].entry.kind, taken[1].entry.data["about"]) == ("dream", "sheep")
    assert taken[2] == StatusEvent(id="2", status="dreaming", reason=None)


@pytest.mark.parametrize("data", ["", "{", "[]", '{"seq": "1"}', "null"])
async def test_garbage_in_a_stream_is_told_and_not_skipped(sink: Sink, data: str) -> None:
    sink.otherwise = streaming(f"event: entry\nid: 1\ndata: {data}\n\n")
    async with following(sink) as events:
        with pytest.raises(InvalidAnswer, match=sink.url):
            await anext(events)


async def test_a_page_is_no_stream(sink: Sink) -> None:
    sink.otherwise = answer(200, "Content-Type: text/html\r\n", b"<html>Welcome</html>")
    async with following(sink) as events:
        with pytest.raises(InvalidAnswer, match="did not answer with a stream of events"):
            await anext(events)


async def test_an_event_without_end_is_given_up(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rapkit.client.event_feed.LARGEST", 1000)
    sink.otherwise = streaming("data: " + "x" * 5000)
    async with following(sink) as events:
        with pytest.raises(InvalidAnswer, match="more than 1000 bytes"):
            await anext(events)


@pytest.mark.parametrize(("code", "kind"), [(401, Unauthorized), (404, NotFound), (400, BadRequest)])
async def test_a_refusal_ends_it_also_later(sink: Sink, code: int, kind: type[Exception]) -> None:
    sink.script = [streaming(user(1), end=_broken)]
    sink.otherwise = answer(code)
    async with following(sink) as events:
        await anext(events)
        with pytest.raises(kind):
            await anext(events)
        with pytest.raises(StopAsyncIteration):
            await anext(events)


async def test_where_there_never_was_an_agent_it_is_not_waited_for_one() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    async with Client(url, retries=QUICK) as client:
        with pytest.raises(AgentUnreachable, match=url):
            await anext(client.thread("t").events())


async def test_an_agent_that_was_there_is_waited_for_much_longer(sink: Sink, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rapkit.client")
    sink.script = [
        streaming(user(1), end=_broken),
        *[reset] * 10,
        answer(503),
        answer(503, "Retry-After: 3600\r\n"),
        answer(500),
        streaming(user(2)),
        NOTHING_MORE,
    ]
    async with following(sink) as events:
        assert seqs([event async for event in events]) == [1, 2]
    told = [record.message for record in caplog.records if record.name == "rapkit.client"]
    assert len(told) == 2
    assert told[0].startswith("connecting again: ")
    assert told[1] == f"connected to {sink.url} again"


async def test_unless_somebody_set_a_limit(sink: Sink) -> None:
    sink.script = [streaming(user(1), end=_broken)]
    sink.otherwise = answer(503)
    begin = time.monotonic()
    async with following(sink, reconnect_for=0.3) as events:
        await anext(events)
        with pytest.raises(Unavailable):
            await anext(events)
    assert 0.1 < time.monotonic() - begin < 10
    assert len(sink.posts) > 4


async def test_a_stream_that_is_quiet_for_too_long_is_dead(sink: Sink) -> None:
    async def silent(_writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async def commenting(writer: asyncio.StreamWriter) -> None:
        for _ in range(8):
            await asyncio.sleep(0.1)
            writer.write(b"3\r\n:\n\n\r\n")
            await writer.drain()
        data = user(2).encode()
        writer.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data))

    sink.script = [streaming(user(1), end=silent), streaming(end=commenting), NOTHING_MORE]
    begin = time.monotonic()
    async with following(sink, timeouts=ClientTimeouts(quiet=0.4)) as events:
        assert seqs([event async for event in events]) == [1, 2]
    assert len(sink.posts) == 3
    assert time.monotonic() - begin < 15


async def test_an_agent_that_hangs_is_given_up_at_first_and_tried_again_later(sink: Sink) -> None:
    sink.script = [never, never, never]
    async with following(sink, timeouts=ClientTimeouts(answer=0.1)) as events:
        with pytest.raises(AgentUnreachable, match=r"did not answer within 0\.1 s"):
            await anext(events)
    sink.script = [streaming(user(1), end=_broken), never, streaming(user(2)), NOTHING_MORE]
    async with following(sink, timeouts=ClientTimeouts(answer=0.1)) as events:
        assert seqs([event async for event in events]) == [1, 2]


async def test_an_agent_that_breaks_every_stream_is_not_hammered(sink: Sink) -> None:
    sink.script = [streaming(user(1))]
    sink.otherwise = streaming(end=_broken)
    async with Client(sink.url, retries=ClientRetries(3, 0.1, 10.0)) as client:
        events = client.thread("t").events()
        await anext(events)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(events), 1.5)
    assert 2 <= len(sink.posts) <= 7


@pytest.mark.parametrize("after", ["", "  ", "1\n2", "ä"])
async def test_what_is_no_id_is_not_sent(sink: Sink, after: str) -> None:
    async with Client(sink.url) as client:
        with pytest.raises(BadRequest, match="not the id of an event"):
            client.thread("t").events(after)
    assert sink.posts == []


async def test_an_id_of_another_thread_is_refused_by_the_agent(client: Client) -> None:
    thread = await client.create_thread()
    with pytest.raises(BadRequest, match="Last-Event-ID"):
        await anext(thread.events("99"))


async def test_leaving_the_context_closes_the_connection(sink: Sink) -> None:
    gone = asyncio.Event()

    async def until_gone(writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                writer.write(b"3\r\n:\n\n\r\n")
                await writer.drain()
                await asyncio.sleep(0.01)
        except ConnectionError:
            gone.set()

    sink.otherwise = streaming(user(1), end=until_gone)
    async with Client(sink.url) as client:
        async with client.thread("t").events() as events:
            await anext(events)
        async with asyncio.timeout(PATIENCE):
            await gone.wait()
        with pytest.raises(StopAsyncIteration):
            await anext(events)
