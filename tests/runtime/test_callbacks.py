"""What tools say: believed only if it is a message, from the call it is about, for a call that is live; then kept, then acknowledged."""

import json
import threading
from typing import Any

import pytest

from rapkit.kernel.entries import Answered, Happened, Ignored, ViewChanged
from rapkit.mailbox import AcceptResult, NewMail
from rapkit.protocol import Callback, parse_callback
from rapkit.runtime.event_feed import EventName
from rapkit.work.offload import LARGE
from tests.runtime.agents import RunningAgent, ScriptedReplies, ThreadDriver, call, opened, working
from tests.runtime.clocks import ManualClock
from tests.runtime.foreign_toolset import ForeignToolset, Invocation, post_to
from tests.server.served_toolset import exchange, failing


async def waiting(agent: RunningAgent, stranger: ForeignToolset) -> tuple[ThreadDriver, Invocation]:
    """A thread that waits for a call."""
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()
    await talk.becomes("waiting")
    return talk, invocation


BROKEN: list[dict[str, Any]] = [
    {},
    {"type": "tool_result"},
    {"type": "tool_result", "id": ..., "text": "no thread"},
    {"type": "tool_result", "group_id": ..., "text": "no call"},
    {"type": "subscription_event", "group_id": ..., "id": ..., "text": "the wrong id"},
    {"type": "oauth", "group_id": ..., "id": ..., "auth_url": "javascript:alert(1)"},
    {
        "type": "user_choice",
        "group_id": ...,
        "id": ...,
        "prompt": "?",
        "choices": [],
        "default": 0,
        "response_url": "http://a",
    },
    {
        "type": "user_choice",
        "group_id": ...,
        "id": ...,
        "prompt": "?",
        "choices": ["a"],
        "default": 1,
        "response_url": "http://a",
    },
    {"type": "view_update", "group_id": ..., "content": 1},
    {"type": "something_new", "group_id": ..., "id": ..., "text": "x"},
]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: json.dumps(broken, default=lambda _: "…")[:60])
async def test_a_message_that_is_none_is_refused_and_changes_nothing(
    agent: RunningAgent, stranger: ForeignToolset, broken: dict[str, Any]
) -> None:
    """CB-7"""
    talk, invocation = await waiting(agent, stranger)
    before = await talk.entries()
    ids = {"group_id": invocation.group_id, "id": invocation.id}

    reply = await invocation.call_back({key: ids.get(key) if value is ... else value for key, value in broken.items()})

    assert reply.status == 400
    assert reply.detail
    await agent.quiet()
    assert await talk.entries() == before
    await invocation.result("and now properly")
    await talk.hears("heard: and now properly")


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"{", b'"text"', b"\xff\xfe", b'{"type":' * 2000])
async def test_what_is_not_even_json_is_refused(agent: RunningAgent, stranger: ForeignToolset, body: bytes) -> None:
    """CB-7, TRA-1"""
    talk, invocation = await waiting(agent, stranger)

    assert (await post_to(invocation.callback_url, body)).status == 400
    assert (await post_to(invocation.callback_url, body, {"Content-Type": "text/plain"})).status == 400

    assert list((await talk.look()).thread.pending) == [invocation.id]


async def test_a_message_that_is_too_large_is_refused(agent: RunningAgent, stranger: ForeignToolset) -> None:
    """CB-7"""
    talk, invocation = await waiting(agent, stranger)

    assert (await invocation.result("x" * (16 * 1024 * 1024))).status == 413

    await invocation.result("smaller")
    await talk.hears("heard: smaller")


UNUSABLE: list[dict[str, Any]] = [
    {"text": 42},
    {"content": [{"type": "image", "data": "?", "mediaType": "image/png"}]},
    {"text": "x", "subscription": "yes"},
]


@pytest.mark.parametrize("unusable", UNUSABLE, ids=lambda unusable: json.dumps(unusable)[:40])
async def test_a_result_that_cannot_be_used_ends_its_call_with_an_error(
    agent: RunningAgent, stranger: ForeignToolset, unusable: dict[str, Any]
) -> None:
    """CB-15: once, however often it is sent; and a real result is taken after it."""
    talk, invocation = await waiting(agent, stranger)
    message = {"type": "tool_result", "group_id": invocation.group_id, "id": invocation.id, **unusable}

    for message_id in (None, None, "m1", "m1"):
        assert (await invocation.call_back(message, message_id)).status == 400

    await talk.hears("heard: Error: The tool 'work' answered, but its answer was refused: it is not a valid message")
    await agent.quiet()
    assert len(await talk.all(Answered)) == 1
    assert await talk.all(Ignored) == []
    assert (await invocation.result("and now properly", message_id="m1")).status == 200
    await talk.hears("and now properly")


@pytest.mark.parametrize(
    "body",
    [
        b'{"type": "tool_result", "group_id": "%b", "id": "%b", "text": "Gr\xfc\xdfe"}',
        b'{"type": "tool_result", "group_id": "%b", "id": "%b", "text": "half a messa',
    ],
    ids=["latin-1", "half"],
)
async def test_a_result_that_is_hardly_json_ends_its_call_too(
    agent: RunningAgent, stranger: ForeignToolset, body: bytes
) -> None:
    """CB-15"""
    talk, invocation = await waiting(agent, stranger)

    reply = await post_to(invocation.callback_url, body % (invocation.group_id.encode(), invocation.id.encode()))

    assert reply.status == 400
    await talk.hears("its answer was refused")


async def test_what_is_refused_is_settled_before_or_not_refused(
    agent: RunningAgent, stranger: ForeignToolset, store: str
) -> None:
    """CB-15: where nothing can be stored the answer is 503, so that its sender comes again."""
    talk, invocation = await waiting(agent, stranger)
    large = "x" * (17 * 1024 * 1024)

    with failing(store, "INSERT", "mail"):
        assert (await invocation.call_back({**message_of(invocation), "text": 42})).status == 503
        assert (await invocation.result(large)).status == 503
    assert list((await talk.look()).thread.pending) == [invocation.id]

    assert (await invocation.result(large)).status == 413
    await talk.hears("its answer was refused: it is too large.")


def message_of(invocation: Invocation) -> dict[str, Any]:
    return {"type": "tool_result", "group_id": invocation.group_id, "id": invocation.id}


async def test_a_body_that_is_too_large_and_shows_another_type_ends_no_call(
    agent: RunningAgent, stranger: ForeignToolset, caplog: pytest.LogCaptureFixture
) -> None:
    """CB-15: a view is only logged, and so is what names another call."""
    talk, invocation = await waiting(agent, stranger)
    before = await talk.entries()
    large = "x" * (17 * 1024 * 1024)

    assert (await invocation.view("board", large)).status == 413
    assert (await invocation.result(large, id="another")).status == 413
    assert (await invocation.event(large)).status == 413

    await agent.quiet()
    assert await talk.entries() == before
    assert "a callback is refused, because it is too large: view_update" in caplog.text


async def test_a_type_that_cannot_be_found_is_taken_for_a_result(agent: RunningAgent, stranger: ForeignToolset) -> None:
    """CB-15: better an error than a call that waits for ever."""
    talk, invocation = await waiting(agent, stranger)
    body = b'{"content": [{"type": "image", "data": "' + b"x" * (17 * 1024 * 1024) + b'"}], "type": "tool_result"}'

    assert (await post_to(invocation.callback_url, body)).status == 413

    await talk.hears("its answer was refused: it is too large.")


async def test_events_that_are_too_large_are_told_once(agent: RunningAgent, stranger: ForeignToolset) -> None:
    """CB-15, SUB-21"""
    talk, invocation = await waiting(agent, stranger)
    await invocation.confirm("on it")
    await talk.hears("heard: on it")
    large = "x" * (17 * 1024 * 1024)

    for _ in range(2):
        assert (await invocation.event(large)).status == 413
    await talk.hears("An event was refused and is lost: it is too large.")

    assert (await invocation.event("small", associative=True)).status == 200
    await talk.hears("heard: small")
    await agent.quiet()
    assert len(await talk.all(Happened)) == 2


async def test_repetitions_are_known_for_four_days_and_no_longer(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """CB-9, CB-12: a day longer than our servers go on trying."""
    clock = ManualClock()
    async with working(model, [stranger.url], store, environment=clock.environment()) as agent:
        talk, invocation = await waiting(agent, stranger)
        assert (await invocation.confirm("on it")).status == 200
        await talk.hears("heard: on it")
        assert (await invocation.event("one", associative=True, message_id="m1")).status == 200
        await talk.hears("heard: one")

        clock.advance(4 * 24 * 3600 - 60)
        assert (await invocation.event("one", associative=True, message_id="m1")).status == 200
        await agent.quiet()
        assert len(await talk.all(Happened)) == 1

        clock.advance(120)
        assert (await invocation.event("one", associative=True, message_id="m1")).status == 200
        await talk.until(Happened, 2)
        assert (await invocation.confirm("in other words")).status == 200  # while it is active, however long that is
        assert (await invocation.event("over", associative=True, final=True)).status == 200
        await talk.hears("heard: over")

        clock.advance(4 * 24 * 3600 - 60)
        assert (await invocation.result("in other words still")).status == 200
        clock.advance(120)
        assert (await invocation.result("in other words still")).status == 410
        assert len(await talk.all(Answered)) == 1


async def test_a_view_comes_after_the_result_and_is_cleared_by_an_empty_one(
    agent: RunningAgent, stranger: ForeignToolset
) -> None:
    """VIE-2"""
    talk, invocation = await waiting(agent, stranger)
    await invocation.result("done")
    await talk.hears("heard: done")

    assert (await invocation.view("board", {"rows": 1})).status == 200
    await talk.until(ViewChanged)
    assert (await talk.look()).views == {"board": {"rows": 1}}
    assert (await invocation.view("board", {})).status == 200
    await talk.until(ViewChanged, 2)
    assert (await talk.look()).views == {}
    shown = await talk.event(EventName.VIEW)
    assert shown.data == {"view_type": "board", "content": None}


async def test_a_charset_does_no_harm(agent: RunningAgent, stranger: ForeignToolset) -> None:
    """TRA-1"""
    talk, invocation = await waiting(agent, stranger)
    message = {"type": "tool_result", "group_id": invocation.group_id, "id": invocation.id, "text": "Grüße"}
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}

    reply = await post_to(invocation.callback_url, json.dumps(message, ensure_ascii=False).encode(), headers)

    assert reply.status == 200
    await talk.hears("heard: Grüße")


async def test_a_result_for_a_call_that_has_one_enters_no_conversation(
    agent: RunningAgent, stranger: ForeignToolset, model: ScriptedReplies, caplog: pytest.LogCaptureFixture
) -> None:
    """CB-8, CB-9: its sender repeats itself in other words, and that is logged."""
    caplog.set_level("INFO")
    talk, invocation = await waiting(agent, stranger)
    await invocation.result("the result")
    await talk.hears("heard: the result")
    before = await talk.entries()

    reply = await invocation.result("another result")

    assert reply.status == 200
    assert "a further result is ignored" in caplog.text
    assert (await invocation.event("an event")).status == 410
    assert "a callback is discarded: unwanted" in caplog.text
    await agent.quiet()
    assert await talk.entries() == before
    assert len(model.questions) == 2


async def test_two_results_at_once_are_one_result_and_one_that_is_ignored(
    agent: RunningAgent, stranger: ForeignToolset, store: str
) -> None:
    """CB-8, CB-9: the second was accepted before the first was looked at; it is noted, with its reason, and not heard."""
    talk, invocation = await waiting(agent, stranger)
    named = {"type": "tool_result", "group_id": talk.id, "id": invocation.id}
    async with opened(store) as other_process:
        # One after the other into the mail, in one moment: no slice can come between.
        new_mails = [
            NewMail(
                talk.id,
                f"tool_result/{invocation.id}",
                json.dumps({**named, "text": text}).encode(),
                needs=("live", invocation.id),
            )
            for text in ("first", "second")
        ]
        with failing(store, "INSERT", "entries"):
            assert [await other_process.accept(new_mail) for new_mail in new_mails] == [AcceptResult.ACCEPTED] * 2

    await talk.hears("heard: first")
    await agent.quiet()
    assert [each.text for each in await talk.all(Answered)] == ["first"]
    assert [(each.what, each.call_id) for each in await talk.all(Ignored)] == [("tool_result", invocation.id)]


async def test_repetitions_change_nothing(
    agent: RunningAgent, stranger: ForeignToolset, model: ScriptedReplies
) -> None:
    """CB-9, CB-12: a result says by itself that it is a repetition, an event by its message id; the sender is told 200 each time."""
    talk, invocation = await waiting(agent, stranger)

    assert [(await invocation.confirm("on it")).status for _ in range(3)] == [200] * 3
    await talk.hears("heard: on it")
    assert (await invocation.confirm("on it")).status == 200
    for _ in range(3):
        assert (await invocation.event("one", associative=True, message_id="m1")).status == 200
    await talk.hears("heard: one")
    assert (await invocation.event("one", associative=True, message_id="m1")).status == 200

    await agent.quiet()
    assert [each.text for each in await talk.all(Answered)] == ["on it"]
    assert [each.text for each in await talk.all(Happened)] == ["one"]
    assert len(model.questions) == 3


async def test_equal_events_without_a_message_id_are_two_events(agent: RunningAgent, stranger: ForeignToolset) -> None:
    """CB-9: nobody can tell them apart."""
    talk, invocation = await waiting(agent, stranger)
    await invocation.confirm()

    await invocation.event("tick", associative=True)
    await invocation.event("tick", associative=True)
    await invocation.event("tick", associative=True, message_id="m1")
    await invocation.event("tick", associative=True, message_id="m2")

    await talk.until(Happened, 4)


async def test_a_message_id_counts_within_one_call_only(agent: RunningAgent, stranger: ForeignToolset) -> None:
    """CB-9: servers choose them, and know nothing of each other."""
    talk = await agent.doing(call("work", n=1), call("work", n=2))
    for n in (1, 2):
        invocation = await stranger.invoked_with(n=n)
        assert (await invocation.result(f"result {n}", message_id="the same")).status == 200

    await talk.hears("heard: result 1 | result 2")


async def test_what_cannot_be_stored_is_not_acknowledged(
    agent: RunningAgent, stranger: ForeignToolset, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    """CB-10, RUN-5: the sender is told to come again, and loses nothing."""
    talk, invocation = await waiting(agent, stranger)

    with failing(store, "INSERT", "mail"):
        reply = await invocation.result("precious")
        assert reply.status == 503
        assert int(reply.headers["retry-after"]) > 0
        assert list((await talk.look()).thread.pending) == [invocation.id]
    assert "a callback was not stored" in caplog.text

    assert (await invocation.result("precious")).status == 200
    await talk.hears("heard: precious")


async def test_what_is_acknowledged_is_durable_whatever_comes_then(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """CB-10: the agent cannot do anything with it, and is stopped; the next one finds it."""
    clock = ManualClock()
    async with working(model, [stranger.url], store, environment=clock.environment()) as agent:
        talk, invocation = await waiting(agent, stranger)
        with failing(store, "INSERT", "entries"):
            assert (await invocation.result("kept")).status == 200
            async with opened(store) as other_process:
                box = await other_process.box(talk.id)
                assert box is not None
                assert box.busy

    clock.advance(10)
    async with working(model, [stranger.url], store, environment=clock.environment()) as agent:
        await agent.thread(talk.id).hears("heard: kept")


@pytest.mark.parametrize("field", ["group_id", "id"])
async def test_a_message_about_another_call_than_its_url_is_refused(
    agent: RunningAgent, stranger: ForeignToolset, field: str, caplog: pytest.LogCaptureFixture
) -> None:
    """CB-14: even if that call is live, and waits for a result."""
    victim = await agent.doing(call("work", who="victim"))
    target = await stranger.invoked_with(who="victim")
    talk = await agent.doing(call("work", who="thief"))
    thief = await stranger.invoked_with(who="thief")
    wrong = {"group_id": target.group_id} if field == "group_id" else {"id": "call_7"}

    reply = await thief.result("mine now", **wrong)

    assert reply.status == 404
    assert "made for another call" in reply.detail
    assert "a callback for one call came to the URL of another" in caplog.text
    await target.result("to whom it belongs")
    await victim.hears("heard: to whom it belongs")
    assert list((await talk.look()).thread.pending) == [thief.id]


async def test_every_kind_of_message_is_bound_to_its_call(agent: RunningAgent, stranger: ForeignToolset) -> None:
    """CB-14"""
    talk = await agent.doing(call("work", n=1), call("work", n=2))
    one, two = await stranger.invoked_with(n=1), await stranger.invoked_with(n=2)
    strangers_word = Invocation(one.post)
    strangers_word.id = two.id

    url = f"{stranger.url}/answer"
    assert (await strangers_word.result("x")).status == 404
    assert (await strangers_word.event("x")).status == 404
    assert (await strangers_word.oauth("https://example.com")).status == 404
    assert (await strangers_word.choice("x", ["x"], 0, url)).status == 404
    strangers_word.group_id = "thr_somebody_else"
    assert (await strangers_word.view("x", 1)).status == 404

    await agent.quiet()
    assert len(await talk.entries()) == 2  # what the user said, and the calls


async def test_only_post_is_for_tools(agent: RunningAgent, stranger: ForeignToolset) -> None:
    """CB-7"""
    _, invocation = await waiting(agent, stranger)
    path = invocation.callback_url.removeprefix(agent.url)
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"

    assert (await exchange(agent.port, request.encode())).status == 405


async def test_a_large_message_is_not_parsed_on_the_event_loop(
    agent: RunningAgent, stranger: ForeignToolset, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed_in: list[bool] = []

    def parse(body: bytes) -> Callback:
        parsed_in.append(threading.current_thread() is threading.main_thread())
        return parse_callback(body)

    monkeypatch.setattr("rapkit.runtime.callbacks.parse_callback", parse)
    monkeypatch.setattr("rapkit.runtime.mail_codec.parse_callback", parse)
    _, invocation = await waiting(agent, stranger)

    await invocation.result("x" * LARGE)
    await agent.quiet()

    assert parsed_in == [False, False]
