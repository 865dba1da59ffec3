"""Calls and their results: from what the model wants to what it hears."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from rapkit.kernel.completion import Question, Reply
from rapkit.kernel.conversation import Heard
from rapkit.kernel.entries import Answered, ModelSaid, ViewChanged
from rapkit.kernel.limits import ThreadLimits
from rapkit.models.registry import open_model
from tests.call_ids import numbers
from tests.runtime.agents import RunningAgent, ScriptedReplies, call, calling, last_heard, please, quick, working
from tests.runtime.examples import example, served
from tests.runtime.foreign_toolset import INVOKE, ForeignToolset, Invocation, tool
from tests.server.sink import after, answer, never

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


async def test_an_invocation_says_what_is_called_and_where_to_answer(
    agent: RunningAgent, stranger: ForeignToolset
) -> None:
    """INV-1, TRA-1: and nothing that is not known is sent."""
    talk = await agent.talk(please(call("work", city="Åre", days=3)), user_id="u1")

    invocation = await stranger.invoked()

    assert invocation.post.method == "POST"
    assert invocation.post.headers["content-type"] == "application/json"
    assert invocation.callback_url.startswith(f"{agent.url}/callback/")
    assert invocation.message == {
        "operation": "work",
        "arguments": {"city": "Åre", "days": 3},
        "id": invocation.id,
        "call_id": "call_0",
        "callback_url": invocation.callback_url,
        "group_id": talk.id,
        "user_id": "u1",
        "toolset_version": "1",
    }


async def test_a_result_wakes_the_model_that_waits_for_it(
    agent: RunningAgent, stranger: ForeignToolset, model: ScriptedReplies
) -> None:
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()
    look = await talk.becomes("waiting")
    assert list(look.thread.pending) == [invocation.id]
    assert len(model.questions) == 1

    reply = await invocation.result("42")

    assert (reply.status, reply.body) == (200, b"")
    await talk.hears("heard: 42")
    assert (await talk.becomes("idle")).thread.pending == {}


async def test_calls_of_one_reply_run_at_once_and_the_model_goes_on_when_all_are_answered(
    agent: RunningAgent, stranger: ForeignToolset, model: ScriptedReplies
) -> None:
    talk = await agent.doing(*(call("work", number=number) for number in range(5)))
    invocations = [await stranger.invoked_with(number=number) for number in range(5)]

    for invocation in reversed(invocations[1:]):
        await invocation.result(f"result {invocation.message['arguments']['number']}")
    await talk.until(Answered, 4)
    assert len(model.questions) == 1  # a strict provider takes no history with a call that is not answered
    await invocations[0].result("result 0")

    await talk.hears("heard: result 0 | result 1 | result 2 | result 3 | result 4")
    assert len({invocation.id for invocation in invocations}) == 5
    assert len({invocation.token for invocation in invocations}) == 5


async def test_a_model_that_uses_its_ids_again_mixes_nothing_up(
    agent: RunningAgent, stranger: ForeignToolset, model: ScriptedReplies
) -> None:
    talk = await agent.doing(call("work", number=1))
    await (await stranger.invoked(1)).result("first")
    await talk.hears("heard: first")
    await talk.do(call("work", number=2))
    await (await stranger.invoked(2)).result("second")
    await talk.hears("heard: second")

    messages = [post.message for post in stranger.to(INVOKE)]
    assert [message["call_id"] for message in messages] == ["call_0", "call_0"]
    assert numbers(message["id"] for message in messages) == ["c1", "c2"]
    assert model.shown() == [("work", {"number": 1}, "first"), ("work", {"number": 2}, "second")]


async def test_a_tool_that_nobody_offers_is_never_called_and_the_model_is_told_what_there_is(
    agent: RunningAgent, stranger: ForeignToolset, model: ScriptedReplies
) -> None:
    """INV-2"""
    talk = await agent.doing(call("wrok"))

    said = await talk.hears("There is no tool 'wrok'")

    listed = said.text.partition("There are: ")[2].rstrip(".").split(", ")
    assert listed == [tool.name for tool in model.last.tools]
    assert listed[-2:] == ["work", "other_work"]
    await agent.quiet()
    assert stranger.to(INVOKE) == []


async def test_arguments_that_do_not_fit_go_back_to_the_model(agent: RunningAgent, stranger: ForeignToolset) -> None:
    """INV-3: what fits is sent all the same."""
    schema = {"type": "object", "properties": {"days": {"type": "integer"}}, "required": ["days"]}
    stranger.tools = [tool("work", schema), tool("other_work")]
    talk = await agent.doing(call("work", days="three"), call("other_work"))

    await (await stranger.invoked()).result("fine")

    said = await talk.hears("fine")
    assert "Error: The arguments do not fit: " in said.text
    assert "days" in said.text
    await agent.quiet()
    assert [post.message["operation"] for post in stranger.to(INVOKE)] == ["other_work"]


async def test_a_model_that_gets_nothing_right_is_stopped(stranger: ForeignToolset, store: str) -> None:
    """INV-2: the number of such completions is capped, and a message starts afresh."""

    def stubborn(question: Question) -> Reply | str:
        return "hello" if "hello" in last_heard(question).texts else calling(call("nothing"))

    async with working(stubborn, [stranger.url], store, limits=ThreadLimits(mistakes=3)) as agent:
        talk = await agent.talk("go")
        look = await talk.becomes("parked")
        assert look.thread.parked == "The model made 3 wrong calls in a row. Write to it to go on."
        assert len(await talk.all(ModelSaid)) == 3

        await talk.say("hello")
        await talk.hears("hello")


@pytest.mark.parametrize(
    "acknowledgement",
    [
        answer(200, body=b'{"type": "tool_result", "text": "not this way"}'),
        answer(200, "Content-Type: application/json\r\n", b"{not json"),
        answer(202, body=b"queued"),
        answer(200, "X-Nothing: follows\r\n", b"\xff\xfe\x00"),
    ],
)
async def test_what_an_acknowledgement_says_is_not_read(
    agent: RunningAgent, stranger: ForeignToolset, acknowledgement: Any
) -> None:
    """INV-7"""
    stranger.script[INVOKE] = [acknowledgement]
    talk = await agent.doing(call("work"))

    await (await stranger.invoked()).result("this way")

    await talk.hears("heard: this way")
    await agent.quiet()
    assert len(stranger.to(INVOKE)) == 1


async def test_a_result_may_come_before_its_call_is_acknowledged(
    agent: RunningAgent, stranger: ForeignToolset, model: ScriptedReplies
) -> None:
    async def answer_first(invocation: Invocation) -> None:
        assert (await invocation.result("quicker than 200")).status == 200
        await talk.hears("heard: quicker than 200")  # the model went on, and the call is not acknowledged yet

    stranger.before_answering = answer_first
    talk = await agent.talk()
    await talk.do(call("work"))

    await talk.hears("heard: quicker than 200")
    await agent.quiet()
    assert [each.text for each in await talk.all(Answered)] == ["quicker than 200"]
    assert len(model.questions) == 2


async def test_a_server_may_take_its_time_to_acknowledge(agent: RunningAgent, stranger: ForeignToolset) -> None:
    """INV-7: nobody waits for it: not the user, not other threads, not the result."""
    acknowledged = asyncio.Event()
    stranger.script[INVOKE] = [after(acknowledged, answer(200))]
    talk = await agent.doing(call("work", n=1))
    invocation = await stranger.invoked()

    await talk.say("well?")
    await talk.hears("well?")
    other = await agent.doing(call("work", n=2))
    await (await stranger.invoked_with(n=2)).result("meanwhile")
    await other.hears("heard: meanwhile")
    acknowledged.set()
    await invocation.result("in the end")

    await talk.hears("heard: in the end")
    await agent.quiet()
    assert len(stranger.to(INVOKE)) == 2


@pytest.mark.parametrize("acknowledgement", [answer(500), answer(400), answer(409), never])
async def test_a_result_counts_whatever_becomes_of_the_acknowledgement(
    model: ScriptedReplies, stranger: ForeignToolset, store: str, acknowledgement: Any
) -> None:
    """The server did what it was told, and said so. That its 200 is lost, or was none, changes nothing of it."""
    stranger.script[INVOKE] = [acknowledgement]
    stranger.before_answering = lambda invocation: invocation.result("done all the same")
    async with working(model, [stranger.url], store, policies=quick(0.2)) as agent:
        talk = await agent.doing(call("work"))
        await talk.hears("heard: done all the same")
        if acknowledgement is not never:
            await agent.quiet()
        assert [each.text for each in await talk.all(Answered)] == ["done all the same"]
        assert len(model.questions) == 2


async def test_content_wins_over_text_and_what_people_see_changes_nothing_for_the_model(
    agent: RunningAgent, stranger: ForeignToolset, model: ScriptedReplies
) -> None:
    """CB-13"""
    talk = await agent.doing(call("work"))
    content = [
        {"type": "text", "text": "a pixel"},
        {"type": "image", "data": PIXEL, "mediaType": "image/png"},
    ]
    display = [{"type": "hologram", "content": 1}, {"type": "text", "content": "for people"}]

    await (await stranger.invoked()).result("plain text", content=content, display_as=display)

    await talk.hears("heard: a pixel (image/png)")
    (answered,) = await talk.all(Answered)
    assert answered.text == "plain text"
    assert [segment.type for segment in answered.display_as or ()] == [
        "hologram",
        "text",
    ]  # clients skip what they do not know
    assert "for people" not in str(model.questions)


async def test_a_model_that_takes_no_images_is_told_that_there_was_one(stranger: ForeignToolset, store: str) -> None:
    """CB-13: here with a model of pydantic-ai's."""
    heard: list[ModelMessage] = []

    async def blind(messages: list[ModelMessage], _info: AgentInfo) -> Any:
        heard[:] = messages
        if len(messages) == 1:
            yield {0: DeltaToolCall("work", "{}", tool_call_id="x")}
        else:
            yield "I see"

    model = FunctionModel(stream_function=blind, profile={"supports_image_input": False})
    async with working(open_model(model), [stranger.url], store) as agent:
        talk = await agent.talk("go")
        await (await stranger.invoked()).result(
            "", content=[{"type": "image", "data": PIXEL, "mediaType": "image/png"}]
        )
        await talk.hears("I see")

    last = heard[-1]
    assert isinstance(last, ModelRequest)
    (part,) = last.parts
    assert isinstance(part, ToolReturnPart)
    assert part.content == "[image image/png, 70 bytes]"


async def test_the_weather_example_forecasts_draws_and_takes_its_time(
    model: ScriptedReplies, store: str, tmp_path: Path
) -> None:
    """VIE-1: how far the long call is, is shown while it runs."""
    async with served(example("weather", tmp_path)) as weather, working(model, [weather], store) as agent:
        talk = await agent.doing(
            call("forecast", city="Oslo"),
            call("temperature_map", city="Rome"),
            call("climate_report", city="Bonn", years=1),
        )
        await talk.until(ViewChanged)
        look = await talk.look()
        assert list(look.views) == ["progress"]
        assert "c3" in numbers(look.thread.pending)

        said = await talk.hears(
            "heard: Sunny in Oslo for the next 3 days. | The temperatures around Rome: (image/png) | "
        )
        assert said.text.endswith("It has been getting warmer in Bonn.")
        heard = model.last.conversation[-1]
        assert isinstance(heard, Heard)
        assert numbers(each.call_id for each in heard.answers) == ["c1", "c2", "c3"]
