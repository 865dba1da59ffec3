"""Subscriptions: confirmed once, then events, inline or in threads of their own, until they end."""

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest

from rapkit.kernel.completion import Question, Reply
from rapkit.kernel.entries import Answered, Began, ChildEnded, ChildMade, Happened, Ignored, ModelSaid, Unsubscribed
from rapkit.kernel.limits import ThreadLimits
from tests.call_ids import numbers, plain
from tests.runtime.agents import RunningAgent, ScriptedReplies, ThreadDriver, call, calling, working
from tests.runtime.examples import UNASKED, example, served
from tests.runtime.foreign_toolset import CANCEL, INVOKE, ForeignToolset, Invocation, post_to


async def subscribed(
    agent: RunningAgent, stranger: ForeignToolset, **arguments: Any
) -> tuple[ThreadDriver, Invocation]:
    """A thread with an active subscription."""
    talk = await agent.doing(call("work", **arguments))
    invocation = await stranger.invoked_with(**arguments)
    await invocation.confirm("subscribed")
    await talk.hears("heard: subscribed")
    await talk.becomes("waiting")
    return talk, invocation


async def test_a_confirmed_call_is_a_subscription_of_its_own_thread_alone(
    agent: RunningAgent, stranger: ForeignToolset
) -> None:
    """SUB-10"""
    talk, invocation = await subscribed(agent, stranger, n=1)
    other = await agent.talk("hello")
    await other.becomes("idle")

    look = await talk.look()
    assert look.thread.pending == {}
    assert list(look.thread.subscriptions) == [invocation.id]
    assert (await other.look()).thread.subscriptions == {}


async def test_a_subscription_has_no_second_result(
    agent: RunningAgent, stranger: ForeignToolset, model: ScriptedReplies
) -> None:
    """SUB-11"""
    talk, invocation = await subscribed(agent, stranger)

    await invocation.result("another")

    ignored = await talk.until(Ignored)
    assert (ignored.what, ignored.call_id) == ("tool_result", invocation.id)
    await agent.quiet()
    assert [each.text for each in await talk.all(Answered)] == ["subscribed"]
    assert len(model.questions) == 2
    assert (await invocation.event("it goes on", associative=True)).status == 200
    await talk.hears("heard: it goes on")


async def test_an_associative_event_is_shown_in_the_thread_as_an_echo_of_its_call(
    agent: RunningAgent, stranger: ForeignToolset, model: ScriptedReplies
) -> None:
    """SUB-12, SUB-20, SUB-11: the original call keeps its one result."""
    talk, invocation = await subscribed(agent, stranger, city="Oslo")

    await invocation.event("a storm", associative=True)
    await talk.hears("heard: a storm")
    await invocation.event("the last storm", associative=True, final=True)
    await talk.hears("heard: the last storm")

    assert model.shown() == [
        ("work", {"city": "Oslo"}, "subscribed"),
        ("work", {"city": "Oslo", "kind": f"interrupt:{invocation.id} (subscription remains active)"}, "a storm"),
        ("work", {"city": "Oslo", "kind": f"interrupt:{invocation.id} (subscription ended)"}, "the last storm"),
    ]
    assert (await talk.look()).thread.children_made == 0


async def test_any_other_event_gets_a_thread_of_its_own(
    agent: RunningAgent, stranger: ForeignToolset, model: ScriptedReplies
) -> None:
    """SUB-13, SUB-20: it knows what its parent knew, and goes when it is done. The parent is not disturbed."""
    talk, invocation = await subscribed(agent, stranger, city="Oslo")

    await invocation.event("a storm")

    made = await talk.until(ChildMade)
    child = agent.thread(made.thread_id)
    assert (await child.hears("heard: a storm")).text == "heard: a storm"
    assert model.shown() == [
        ("work", {"city": "Oslo"}, "subscribed"),
        ("work", {"city": "Oslo", "kind": f"interrupt:{invocation.id} (subscription remains active)"}, "a storm"),
    ]
    assert model.last.conversation[0] == model.questions[0].conversation[0]
    await talk.until(ChildEnded)
    look = await child.becomes("closed")
    assert (look.thread.parent, look.thread.root) == (talk.id, talk.id)
    assert [each.text for each in await talk.all(ModelSaid)] == ["", "heard: subscribed"]
    assert list((await talk.look()).thread.subscriptions) == [invocation.id]


async def test_the_thread_of_an_event_calls_tools_as_a_child_of_its_parent(
    stranger: ForeignToolset, store: str
) -> None:
    """SUB-13, INV-1, DIS-6: ancestors are told to the server, and the session's toolset is shared."""
    obedient = ScriptedReplies()

    def diligent(question: Question) -> Reply | str:
        reply = obedient(question)
        return calling(call("other_work")) if reply == "heard: a storm" else reply

    async with working(diligent, [stranger.url], store) as agent:
        talk, invocation = await subscribed(agent, stranger)
        await invocation.event("a storm")
        of_child = await stranger.invoked(2)
        made = await talk.until(ChildMade)
        assert of_child.group_id == made.thread_id
        assert of_child.message["thread_ancestors"] == [talk.id]
        assert of_child.id != invocation.id
        child = agent.thread(made.thread_id)
        await of_child.result("dealt with")
        await child.becomes("closed")
        assert "heard: dealt with" in [each.text for each in await child.all(ModelSaid)]
        assert len(stranger.to("/.well-known/rap-toolset")) == 1


async def test_an_event_may_overtake_the_confirmation(
    agent: RunningAgent, stranger: ForeignToolset, model: ScriptedReplies
) -> None:
    """SUB-12, SUB-20: it is kept, shown to nobody, and comes after the confirmation."""
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()

    assert (await invocation.event("too early", associative=True)).status == 200
    assert (await invocation.event("also too early", associative=True)).status == 200
    await talk.until(Happened, 2)
    await agent.quiet()
    assert len(model.questions) == 1
    await invocation.confirm("now it is one")

    await talk.hears("also too early")
    assert [text for _, _, text in model.shown()] == ["now it is one", "too early", "also too early"]


async def test_events_may_come_before_the_call_is_even_acknowledged(
    agent: RunningAgent, stranger: ForeignToolset
) -> None:
    """SUB-13: a threaded one makes its child when it is confirmed, not before."""

    async def hasty(invocation: Invocation) -> None:
        assert (await invocation.event("first of all")).status == 200
        assert (await invocation.confirm()).status == 200
        assert (await invocation.event("and more")).status == 200

    stranger.before_answering = hasty
    talk = await agent.doing(call("work"))

    await talk.until(ChildEnded, 2)
    children = [agent.thread(made.thread_id) for made in await talk.all(ChildMade)]
    began = [(await child.until(Began)).text for child in children]
    assert began == ["first of all", "and more"]


async def test_early_events_of_a_call_that_is_no_subscription_are_ignored(
    agent: RunningAgent, stranger: ForeignToolset, model: ScriptedReplies
) -> None:
    """SUB-15"""
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()
    await invocation.event("news", associative=True)

    await invocation.result("an ordinary result")

    await talk.hears("heard: an ordinary result")
    ignored = await talk.until(Ignored)
    assert (ignored.what, ignored.reason) == ("subscription_event", "its call did not become a subscription")
    assert "news" not in str(model.last.conversation)


async def test_the_final_event_is_processed_and_ends_the_subscription(
    agent: RunningAgent, stranger: ForeignToolset
) -> None:
    """SUB-14"""
    talk, invocation = await subscribed(agent, stranger)

    await invocation.event("the end", final=True)

    made = await talk.until(ChildMade)
    await agent.thread(made.thread_id).hears("heard: the end")
    assert (await talk.until(Unsubscribed)).reason == "the subscription ended with its final event"
    assert (await talk.becomes("idle")).thread.subscriptions == {}
    await agent.quiet()
    assert stranger.to(CANCEL) == []  # its server knows


async def test_events_nobody_listens_to_are_discarded(
    agent: RunningAgent, stranger: ForeignToolset, model: ScriptedReplies, caplog: pytest.LogCaptureFixture
) -> None:
    """SUB-15: of calls that were never subscriptions, of finished ones, of cancelled ones."""
    caplog.set_level("INFO")
    plain = await agent.doing(call("work", n=0))
    never_one = await stranger.invoked_with(n=0)
    await never_one.result()
    await plain.hears("heard: done")
    finished, over = await subscribed(agent, stranger, n=1)
    await over.event("the end", associative=True, final=True)
    await finished.until(Unsubscribed)
    cancelled, unwanted = await subscribed(agent, stranger, n=2)
    await agent.threads.cancel(cancelled.id, unwanted.id)
    await cancelled.until(Unsubscribed)
    await agent.quiet()
    heard = len(model.questions)

    for invocation in (never_one, over, unwanted):
        assert (await invocation.event("too late", associative=True)).status == 410
        assert (await invocation.event("too late")).status == 410

    await agent.quiet()
    assert len(model.questions) == heard
    assert caplog.text.count("a callback is discarded") == 6


async def test_an_event_that_was_accepted_before_its_subscription_was_cancelled_is_discarded_too(
    stranger: ForeignToolset, store: str
) -> None:
    """SUB-15: the cancellation came between receipt and processing."""
    obedient = ScriptedReplies()

    async def slow(question: Question) -> Reply | str:
        reply = obedient(question)
        if reply != "heard: hold on":
            return reply
        # While the model is asked nothing else of the thread is processed; and then it cancels.
        assert (await invocations[0].event("in between", associative=True)).status == 200
        return calling(call("cancel_subscription", tool_call_id=invocations[0].id))

    invocations: list[Invocation] = []
    async with working(slow, [stranger.url], store) as agent:
        talk, invocation = await subscribed(agent, stranger)
        invocations.append(invocation)
        await talk.say("hold on")

        ignored = await talk.until(Ignored)

        assert (ignored.what, ignored.reason) == ("subscription_event", "no such subscription is active")
        await talk.hears("is cancelled. No more events of it will come.")
        await agent.quiet()
        assert "in between" not in str(obedient.last.conversation)


async def test_a_model_cancels_a_subscription_within_its_turn(
    agent: RunningAgent, stranger: ForeignToolset, model: ScriptedReplies
) -> None:
    """SUB-16, CAN-1: it has the answer at once, every server is told, and nothing is tracked any more."""
    talk, invocation = await subscribed(agent, stranger)

    await talk.do(call("cancel_subscription", tool_call_id=invocation.id))

    await talk.hears(f"heard: The subscription {invocation.id} is cancelled. No more events of it will come.")
    (notice,) = await stranger.received(CANCEL)
    assert notice.message == {"thread_id": talk.id, "tool_call_id": invocation.id}
    assert (await talk.becomes("idle")).thread.subscriptions == {}
    assert (await talk.until(Unsubscribed)).reason == "cancelled by the model"


async def test_a_model_can_cancel_only_what_is_active_in_its_own_thread(
    agent: RunningAgent, stranger: ForeignToolset
) -> None:
    """SUB-16, SUB-10"""
    _, foreign = await subscribed(agent, stranger, n=1)
    talk = await agent.talk("hello")
    await talk.do(call("cancel_subscription", tool_call_id=foreign.id))
    await talk.hears(f"heard: Error: {foreign.id!r} is no active subscription of this thread. Active: none.")
    await agent.quiet()
    assert stranger.to(CANCEL) == []


async def test_past_the_cap_a_known_subscription_is_refused_before_it_leaves(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """SUB-17"""
    async with working(model, [stranger.url], store, limits=ThreadLimits(subscriptions=1)) as agent:
        talk, _ = await subscribed(agent, stranger)
        await talk.do(call("work"))
        await talk.hears("Error: This thread has 1 active subscriptions, and may not have more.")
        await agent.quiet()
        assert len(stranger.to(INVOKE)) == 1


async def test_past_the_cap_a_call_that_turns_out_to_be_a_subscription_is_cancelled_at_once(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """SUB-17"""
    async with working(model, [stranger.url], store, limits=ThreadLimits(subscriptions=1)) as agent:
        talk, first = await subscribed(agent, stranger)
        await talk.do(call("other_work"))
        second = await stranger.invoked(2)
        await second.confirm("surprise")

        await talk.hears("Error: This subscription was cancelled at once")
        (notice,) = await stranger.received(CANCEL)
        assert notice.message["tool_call_id"] == second.id
        assert list((await talk.look()).thread.subscriptions) == [first.id]
        assert (await second.event("more")).status == 410


async def test_events_wait_for_a_child_when_there_are_many_and_none_is_lost(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """SUB-13: in the order in which they came."""
    async with working(model, [stranger.url], store, limits=ThreadLimits(children=1)) as agent:
        talk, invocation = await subscribed(agent, stranger)
        for number in range(5):
            await invocation.event(f"event {number}")

        await talk.until(ChildEnded, 5)

        children = [made.thread_id for made in await talk.all(ChildMade)]
        told = [(await agent.thread(child).until(Began)).text for child in children]
        assert told == [f"event {number}" for number in range(5)]


async def test_events_do_not_break_a_running_call(
    agent: RunningAgent, stranger: ForeignToolset, model: ScriptedReplies
) -> None:
    """SUB-12: they are heard when the call is answered, after its answer."""
    talk, invocation = await subscribed(agent, stranger, n=1)
    await talk.do(call("work", n=2))
    running = await stranger.invoked_with(n=2)
    asked = len(model.questions)

    await invocation.event("meanwhile", associative=True)
    await talk.until(Happened)
    await agent.quiet()
    assert len(model.questions) == asked
    await running.result("the result")

    await talk.hears("meanwhile")
    assert [text for _, _, text in model.shown()] == ["subscribed", "the result", "meanwhile"]


# The examples


def build(sha: str, conclusion: str) -> bytes:
    run = {
        "name": "tests",
        "head_branch": "main",
        "head_sha": sha,
        "conclusion": conclusion,
        "html_url": "https://github.com/acme/api/actions/runs/1",
    }
    return json.dumps({"action": "completed", "repository": {"full_name": "acme/api"}, "workflow_run": run}).encode()


async def github_says(server: str, body: bytes, delivery: str) -> None:
    signature = hmac.new(b"for a test", body, hashlib.sha256).hexdigest()
    headers = {
        "X-GitHub-Event": "workflow_run",
        "X-GitHub-Delivery": delivery,
        "X-Hub-Signature-256": f"sha256={signature}",
    }
    assert (await post_to(f"{server}/hooks/github", body, headers)).status == 200


async def test_the_ci_watcher_example_reports_builds_inline_and_in_threads_of_their_own(
    model: ScriptedReplies, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SUB-12, SUB-13, SUB-14"""
    monkeypatch.setenv("GITHUB_WEBHOOK_SECRET", "for a test")
    async with served(example("ci_watcher", tmp_path)) as ci, working(model, [ci], store) as agent:
        talk = await agent.doing(
            call("watch_builds", owner="acme", repo="api"),
            call("wait_for_build", owner="acme", repo="api", commit="c0ffee00"),
        )
        await talk.until(Answered, 2)
        await talk.becomes("waiting")

        await github_says(ci, build("c0ffee00", "failure"), "1")

        await talk.hears("heard: The build of c0ffee0 ended: failure.")
        assert plain((await talk.until(Unsubscribed)).call_id) == "c2"
        made = await talk.until(ChildMade)
        await agent.thread(made.thread_id).hears("acme/api: tests on main: failure.")
        assert numbers((await talk.look()).thread.subscriptions) == ["c1"]


async def test_the_shell_example_tells_what_a_command_writes_while_it_runs(
    model: ScriptedReplies, store: str, tmp_path: Path
) -> None:
    """SUB-12, SUB-14"""
    async with served(example("shell", tmp_path)) as shell, working(model, [shell], store, limits=UNASKED) as agent:
        talk = await agent.doing(call("follow", command="echo one"))
        await talk.until(Unsubscribed)
        told = "\n".join(each.text for each in await talk.all(Happened)).splitlines()
        assert told == ["$ echo one", "one", "exit status 0"]
        await talk.hears("exit status 0")
