"""One trace from a client's request through threads, models and tools, however long anybody sleeps in between."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NoOpTracerProvider, StatusCode

from rapkit import Toolset
from rapkit.kernel.completion import Question, Reply, Usage
from rapkit.kernel.entries import ChoiceAsked, ModelSaid
from rapkit.models.errors import ModelError
from rapkit.runtime.engine import AgentEnvironment
from rapkit.tracing import Tracing
from tests.runtime.agents import (
    RunningAgent,
    ScriptedReplies,
    ThreadDriver,
    call,
    calling,
    last_heard,
    please,
    texts_of,
    working,
)
from tests.runtime.examples import served
from tests.runtime.foreign_toolset import ANSWER, INVOKE, ForeignToolset, Invocation, post_to
from tests.server.served_toolset import until
from tests.server.sink import answer

TRACE = "0af7651916cd43dd8448eb211c80319c"
CLIENT = "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{CLIENT}-01"
OTHER = "4bf92f3577b34da6a3ce929d0e0e4736"
TOOL = "00f067aa0ba902b7"


class Spans:
    """What was recorded, in one process or in several."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()

    def environment(self) -> AgentEnvironment:
        """For another process: a provider of its own, and the same place to send spans to."""
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        return AgentEnvironment(tracing=Tracing(provider))

    @property
    def all(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    def called(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all if span.name == name]

    async def ended(self, name: str, count: int = 1) -> list[ReadableSpan]:
        """The spans of a name, once so many have ended."""
        await until(lambda: len(self.called(name)) >= count)
        return self.called(name)

    def traces(self) -> set[str]:
        return {trace_of(span) for span in self.all}


def trace_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


def id_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.span_id:016x}"


def parent_of(span: ReadableSpan) -> str | None:
    return None if span.parent is None else f"{span.parent.span_id:016x}"


def about(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.fixture
def spans() -> Spans:
    return Spans()


async def begin(agent: RunningAgent, text: str, traceparent: str | None = TRACEPARENT) -> ThreadDriver:
    """A thread that a client begins over HTTP."""
    headers = {} if traceparent is None else {"traceparent": traceparent}
    reply = await post_to(f"{agent.url}/v1/threads", json.dumps({"text": text}).encode(), headers)
    assert reply.status == 201, reply
    return agent.thread(reply.json["thread_id"])


async def say(agent: RunningAgent, talk: ThreadDriver, text: str, traceparent: str) -> None:
    url = f"{agent.url}/v1/threads/{talk.id}/messages"
    assert (await post_to(url, json.dumps({"text": text}).encode(), {"traceparent": traceparent})).status == 202


async def result(invocation: Invocation, text: str, traceparent: str) -> None:
    """What a tool answers that passes the trace on."""
    message = {"type": "tool_result", "group_id": invocation.group_id, "id": invocation.id, "text": text}
    assert (await invocation.call_back(message, traceparent=traceparent)).status == 200


async def test_one_trace_leads_from_the_client_through_the_tool_into_the_slice_that_wakes_elsewhere(
    model: ScriptedReplies, stranger: ForeignToolset, store: str, spans: Spans
) -> None:
    async with working(model, [stranger.url], store, environment=spans.environment()) as agent:
        talk = await begin(agent, please(call("work")))
        invocation = await stranger.invoked()
        await agent.quiet()
    first = invocation.post.headers["traceparent"]

    async with working(model, [stranger.url], store, port=agent.port, environment=spans.environment()) as agent:
        await result(invocation, "done", f"00-{TRACE}-{TOOL}-01")
        await agent.thread(talk.id).hears("heard: done")
        await spans.ended("rap.slice", 2)

    assert spans.traces() == {TRACE}
    before, after = spans.called("rap.slice")
    (posted,) = spans.called("rap.invocation")
    asked, asked_again = spans.called("rap.completion scripted")
    assert parent_of(before) == CLIENT
    assert parent_of(asked) == parent_of(posted) == id_of(before)
    assert first == f"00-{TRACE}-{id_of(posted)}-01"
    assert parent_of(after) == TOOL
    assert parent_of(asked_again) == id_of(after)
    assert about(before) == {
        "rap.thread_id": talk.id,
        "rap.attempt": 1,
        "rap.letters": 1,
        "rap.timers": 0,
        "rap.outcome": "ok",
    }
    assert about(posted)["rap.outcome"] == "delivered"
    assert about(posted)["http.response.status_code"] == 200


async def test_a_tool_that_knows_nothing_of_traces_does_not_end_one(
    model: ScriptedReplies, stranger: ForeignToolset, store: str, spans: Spans
) -> None:
    """The slice that hears its answer continues from the one that made the call, also in another process."""
    async with working(model, [stranger.url], store, environment=spans.environment()) as agent:
        talk = await begin(agent, please(call("work")))
        invocation = await stranger.invoked()
        await agent.quiet()

    async with working(model, [stranger.url], store, port=agent.port, environment=spans.environment()) as agent:
        await invocation.result("done")
        await agent.thread(talk.id).hears("heard: done")
        await spans.ended("rap.slice", 2)

    assert spans.traces() == {TRACE}
    before, after = spans.called("rap.slice")
    assert parent_of(after) == id_of(before)


@pytest.mark.parametrize("tracing", [Tracing, lambda: Tracing(NoOpTracerProvider())], ids=["none", "switched off"])
async def test_without_a_provider_the_trace_is_still_passed_on(
    stranger: ForeignToolset, store: str, tracing: Callable[[], Tracing]
) -> None:
    """To the second tool too, although the first has not sent it back, and everybody slept in between."""

    def model(question: Question) -> Reply | str:
        heard = last_heard(question)
        if heard.answers:
            return calling(call("work", n=2)) if texts_of(heard) == ["more"] else "Enough."
        return calling(*json.loads(heard.texts[-1]))

    environment = AgentEnvironment(tracing=tracing())
    async with working(model, [stranger.url], store, environment=environment) as agent:
        await begin(agent, please(call("work", n=1)))
        first = await stranger.invoked_with(n=1)
        assert first.post.headers["traceparent"] == TRACEPARENT
        await agent.quiet()

    async with working(model, [stranger.url], store, port=agent.port, environment=environment) as agent:
        await first.result("more")
        assert (await stranger.invoked_with(n=2)).post.headers["traceparent"] == TRACEPARENT
        await begin(agent, please(call("work", n=3)), traceparent=None)
        assert "traceparent" not in (await stranger.invoked_with(n=3)).post.headers


async def test_a_toolset_of_ours_keeps_the_trace_as_well(model: ScriptedReplies, store: str, spans: Spans) -> None:
    tools = Toolset("office", store="sqlite:///:memory:")

    @tools.tool
    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    async with served(tools) as url, working(model, [url], store, environment=spans.environment()) as agent:
        talk = await begin(agent, please(call("add", a=1, b=2)))
        await talk.hears("heard: 3")
        await spans.ended("rap.slice", 2)

    assert spans.traces() == {TRACE}
    (posted,) = spans.called("rap.invocation")
    assert parent_of(spans.called("rap.slice")[1]) == id_of(posted)


async def test_without_a_clients_trace_every_message_begins_one(
    model: ScriptedReplies, stranger: ForeignToolset, store: str, spans: Spans
) -> None:
    async with working(model, [stranger.url], store, environment=spans.environment()) as agent:
        talk = await begin(agent, "hello", traceparent=None)
        await talk.hears("heard: hello")
        await talk.say("again")
        await talk.hears("heard: again")
        first, second = await spans.ended("rap.slice", 2)

    assert parent_of(first) is None
    assert parent_of(second) is None
    assert trace_of(first) != trace_of(second)


async def test_who_uses_the_agent_from_within_a_span_is_continued_too(
    model: ScriptedReplies, stranger: ForeignToolset, store: str, spans: Spans
) -> None:
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("a program")
    async with working(model, [stranger.url], store, environment=spans.environment()) as agent:
        with tracer.start_as_current_span("its own") as span:
            talk = await agent.talk("hello")
        await talk.hears("heard: hello")
        (woken,) = await spans.ended("rap.slice")

    assert parent_of(woken) == f"{span.get_span_context().span_id:016x}"


async def test_messages_that_are_heard_together_are_linked(stranger: ForeignToolset, store: str, spans: Spans) -> None:
    gate = asyncio.Event()
    asked = asyncio.Event()

    async def model(question: Question) -> str:
        asked.set()
        await gate.wait()
        return "heard: " + " | ".join(texts_of(last_heard(question)))

    async with working(model, [stranger.url], store, environment=spans.environment()) as agent:
        talk = await begin(agent, "first")
        await asked.wait()
        await say(agent, talk, "second", f"00-{OTHER}-{TOOL}-01")
        await say(agent, talk, "third", TRACEPARENT)
        gate.set()
        await talk.hears("heard: second | third")
        _, both = await spans.ended("rap.slice", 2)

    assert (trace_of(both), parent_of(both)) == (OTHER, TOOL)
    assert [f"{link.context.trace_id:032x}-{link.context.span_id:016x}" for link in both.links] == [f"{TRACE}-{CLIENT}"]
    assert about(both)["rap.letters"] == 2


async def test_a_completion_that_fails_is_tried_again_in_the_same_trace_and_of_the_error_only_the_class_is_told(
    stranger: ForeignToolset, store: str, spans: Spans
) -> None:
    failures = [ModelError("s3cret", retryable=True, retry_after=0.0)]

    def model(_: Question) -> Reply:
        if failures:
            raise failures.pop()
        return Reply("done", usage=Usage(1, 120, 30, 0.25))

    async with working(model, [stranger.url], store, environment=spans.environment()) as agent:
        talk = await begin(agent, "s3cret too")
        await talk.hears("done")
        await spans.ended("rap.slice", 2)

    assert spans.traces() == {TRACE}
    failed, made = spans.called("rap.completion scripted")
    first, second = spans.called("rap.slice")
    assert parent_of(second) == id_of(first)
    assert (failed.status.status_code, failed.status.description) == (StatusCode.ERROR, "ModelError")
    assert about(made)["gen_ai.usage.input_tokens"] == 120
    assert about(made)["gen_ai.usage.output_tokens"] == 30
    assert about(made)["rap.cost_dollars"] == 0.25
    assert not any("s3cret" in str(span.to_json()) for span in spans.all)


async def test_a_refused_call_wakes_its_thread_in_the_same_trace(
    model: ScriptedReplies, stranger: ForeignToolset, store: str, spans: Spans
) -> None:
    """INV-6"""
    stranger.script[INVOKE] = [answer(400)]
    async with working(model, [stranger.url], store, environment=spans.environment()) as agent:
        talk = await begin(agent, please(call("work")))
        await talk.until(ModelSaid, 2)
        await spans.ended("rap.slice", 2)

    assert spans.traces() == {TRACE}
    (posted,) = spans.called("rap.invocation")
    assert about(posted)["rap.outcome"] == "dead"
    assert posted.status.status_code is StatusCode.ERROR
    assert parent_of(spans.called("rap.slice")[1]) == id_of(posted)


async def test_an_answer_to_a_question_belongs_to_the_trace_of_whoever_gave_it(
    model: ScriptedReplies, stranger: ForeignToolset, store: str, spans: Spans
) -> None:
    """CHO-1"""
    async with working(model, [stranger.url], store, environment=spans.environment()) as agent:
        talk = await begin(agent, please(call("work")))
        invocation = await stranger.invoked()
        await invocation.choice("Which?", ["a", "b"], 0, stranger.url + ANSWER)
        await talk.until(ChoiceAsked)
        url = f"{agent.url}/v1/threads/{talk.id}/calls/{invocation.id}/choice"
        headers = {"traceparent": f"00-{OTHER}-{TOOL}-01"}
        assert (await post_to(url, b'{"selected": 1}', headers)).status < 300
        (post,) = await stranger.received(ANSWER)
        (sent,) = await spans.ended("rap.answer")

    assert post.headers["traceparent"] == f"00-{OTHER}-{id_of(sent)}-01"


async def test_a_child_thread_continues_the_trace_of_the_event_it_was_made_for(
    model: ScriptedReplies, stranger: ForeignToolset, store: str, spans: Spans
) -> None:
    """SUB-13"""
    async with working(model, [stranger.url], store, environment=spans.environment()) as agent:
        talk = await begin(agent, please(call("work")))
        invocation = await stranger.invoked()
        await invocation.confirm()
        await talk.hears("heard: subscribed")
        await invocation.event("news")
        child = await talk.until_child()
        await until(lambda: any(about(span).get("rap.thread_id") == child for span in spans.called("rap.slice")))

    assert spans.traces() == {TRACE}


async def test_a_completion_that_is_not_wanted_any_more_was_cancelled_which_is_no_error(
    stranger: ForeignToolset, store: str, spans: Spans
) -> None:
    asked = asyncio.Event()

    async def model(_: Question) -> str:
        asked.set()
        await asyncio.Event().wait()
        return "never"

    async with working(model, [stranger.url], store, environment=spans.environment()) as agent:
        talk = await begin(agent, "hello")
        await asked.wait()
        await talk.threads.close(talk.id)
        (completion,) = await spans.ended("rap.completion scripted")
        interrupted, *_ = await spans.ended("rap.slice")

    for span in (completion, interrupted):
        assert about(span)["rap.outcome"] == "cancelled"
        assert span.status.status_code is StatusCode.UNSET
