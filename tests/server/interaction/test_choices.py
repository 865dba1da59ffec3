"""Questions to the user: asked, waited for without running, answered, and survived (semantics 24)."""

import asyncio
import contextlib
import logging
import random
from collections import Counter
from typing import Any, Literal

import pytest

from rapkit import Context, Durations, Limits, ToolError, Toolset, testing
from rapkit.errors import StoreBusy
from rapkit.testing import Call, Choice, Client
from tests.server.store_interception import meddle

CANCELLED = "Error: Cancelled."
DAY = 24 * 3600.0


@pytest.fixture
def events() -> list[str]:
    """What handlers did."""
    return []


@pytest.fixture
def tools(events: list[str]) -> Toolset:
    tools = Toolset("tools")

    @tools.tool
    async def ask(
        ctx: Context,
        prompt: str = "Well?",
        default: str | None = None,
        remember: Literal["thread", "user"] | None = None,
        expires_in: float | None = None,
    ) -> str:
        """Ask, and do something about it."""
        events.append("begun")
        answer = await ctx.choose(prompt, ["Yes", "No"], default=default, remember=remember, expires_in=expires_in)
        events.append("done")
        return answer

    return tools


async def answered(call: Call, *answers: str) -> str:
    """The result of a call whose questions are answered like this."""
    for answer in answers:
        await (await call.choice()).select(answer)
    return (await call.result()).text


# Asking


async def test_a_question_has_choices_a_default_and_its_own_place_for_the_answer(tools: Toolset) -> None:
    """CHO-2, CB-2"""
    async with testing.serve(tools) as client:
        call = await client.start("ask", default="No")
        choice = await call.choice()
        (message,) = call.messages

        assert message.model_dump(exclude_none=True) == {
            "type": "user_choice",
            "group_id": "thread_1",
            "id": call.id,
            "call_id": "model_1",
            "prompt": "Well?",
            "choices": ("Yes", "No"),
            "default": 1,
            "response_url": choice.response_url,
        }
        other = await (await client.start("ask")).choice()
        assert choice.response_url != other.response_url


async def test_a_valid_answer_completes_the_call(tools: Toolset, events: list[str]) -> None:
    """CHO-2, CB-5"""
    async with testing.serve(tools) as client:
        call = await client.start("ask")

        assert await answered(call, "No") == "No"
        await client.advance(7 * DAY)
        assert [message.type for message in call.messages] == ["user_choice", "tool_result"]
        assert events == ["begun", "begun", "done"]


@pytest.mark.parametrize(("default", "counts_as"), [(None, "Yes"), ("Yes", "Yes"), ("No", "No")])
async def test_a_dismissed_question_counts_as_its_default(tools: Toolset, default: str | None, counts_as: str) -> None:
    """CHO-2: without a default it is the first choice."""
    async with testing.serve(tools) as client:
        call = await client.start("ask", default=default)
        choice = await call.choice()

        assert choice.default == counts_as
        await choice.dismiss()
        assert (await call.result()).text == counts_as


@pytest.mark.parametrize(
    ("arguments", "options", "problem"),
    [
        (("Well?", []), {}, "choices is a list of at least one text"),
        (("Well?", [""]), {}, "choices is a list of at least one text"),
        (("Well?", "Yes"), {}, "choices is a list of at least one text"),
        (("Well?", ["Yes", "Yes"]), {}, "Two choices are the same"),
        (("Well?", ["Yes", "No"]), {"default": "Maybe"}, "The default 'Maybe' is none of the choices: 'Yes', 'No'"),
        (("Well?", ["Yes", "No"]), {"remember": "always"}, "remember is 'thread' or 'user', not 'always'"),
    ],
)
async def test_a_question_nobody_could_answer_is_not_asked(
    arguments: tuple[Any, ...], options: dict[str, Any], problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    """CHO-2"""
    tools = Toolset("tools")

    @tools.tool
    async def ask(ctx: Context) -> str:
        """Ask wrongly."""
        return await ctx.choose(*arguments, **options)

    async with testing.serve(tools) as client:
        call = await client.start("ask")

        assert "failed unexpectedly" in (await call.result()).text
        assert len(call.messages) == 1
        assert problem in caplog.text


async def test_a_plain_function_cannot_wait_for_people(caplog: pytest.LogCaptureFixture) -> None:
    tools = Toolset("tools")

    @tools.tool
    def ask(ctx: Context) -> str:
        """Ask from a thread."""
        return asyncio.run(ctx.choose("Well?", ["Yes", "No"]))

    async with testing.serve(tools) as client:
        call = await client.start("ask")

        assert (await call.result()).is_error
        assert len(call.messages) == 1
        assert "A plain function cannot wait for people. Define the tool with `async def`." in caplog.text


# Answers, at the door


async def test_a_repeated_answer_is_acknowledged_and_the_first_one_counts(tools: Toolset, events: list[str]) -> None:
    async with testing.serve(tools) as client:
        call = await client.start("ask")
        choice = await call.choice()

        assert [(await choice.answer(selected)).status for selected in (1, 1, 0)] == [200, 200, 200]
        assert (await call.result()).text == "No"
        assert (await choice.answer(1)).status == 200  # the runtime may not have heard our first 200
        await client.settled()
        assert events.count("done") == 1


@pytest.mark.parametrize("selected", [2, -1, 2**40])
async def test_an_answer_that_is_none_of_the_choices_is_an_error_result(
    tools: Toolset, events: list[str], selected: int
) -> None:
    """CHO-2, CB-6"""
    async with testing.serve(tools) as client:
        call = await client.start("ask")

        await (await call.choice()).select(selected)

        assert (await call.result()).text == (
            f"Error: 'Well?': {selected} is none of the 2 choices, numbered from 0. Ask again."
        )
        assert "done" not in events


async def test_what_is_no_answer_is_refused_and_changes_nothing(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        call = await client.start("ask")
        choice = await call.choice()

        for wrong in ("Yes", None, 1.5, True, [0]):
            assert (await choice.answer(wrong)).status == 400
        for body in (b"", b"no json", b"[]", b"{}"):
            assert (await client.request("POST", choice.response_url, body)).status == 400
        assert (await client.request("GET", choice.response_url)).status == 405

        assert (await choice.answer(0)).status == 200
        assert (await call.result()).text == "Yes"


async def test_an_answer_under_another_id_is_refused(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        first, second = await client.start("ask"), await client.start("ask")
        choice = await first.choice()

        assert (await choice.answer(0, id=second.id)).status == 404
        assert (await choice.answer(0, id="call_99")).status == 404
        assert await answered(second, "No") == "No"
        await choice.select("Yes")
        assert (await first.result()).text == "Yes"


async def test_an_answer_to_a_forged_place_is_refused(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        call = await client.start("ask")
        url = (await call.choice()).response_url
        made = {"id": call.id, "selected": 0}
        base, token = url.rsplit("/", 1)
        forged = [
            token[:-1] + ("A" if token[-1] != "A" else "B"),
            ("A" if token[0] != "A" else "B") + token[1:],
            token[: len(token) // 2],
            "x",
            "%00",
            "é",
        ]

        for each in forged:
            assert (await client.request("POST", f"{base}/{each}", made)).status == 404
        await client.settled()
        assert len(call.messages) == 1


async def test_the_place_for_an_answer_needs_no_credentials_and_the_server_no_memory_of_it() -> None:
    """It carries its own proof, also for a server that started after it was given away."""
    tools = Toolset("tools", tokens="a-token-nobody-guesses")

    @tools.tool
    async def ask(ctx: Context) -> str:
        """Ask."""
        return await ctx.choose("Well?", ["Yes", "No"])

    async with testing.serve(tools) as client:
        call = await client.start("ask")
        choice = await call.choice()
        await client.crash()

        assert (await choice.answer(0)).status == 200
        assert (await call.result()).text == "Yes"


# Time


async def test_a_question_that_nobody_answers_expires(tools: Toolset, events: list[str]) -> None:
    async with testing.serve(tools) as client:
        call = await client.start("ask")
        choice = await call.choice()

        await client.advance(3 * DAY - 1)
        assert len(call.messages) == 1
        await client.advance(1)

        assert (await call.result()).text == (
            "Error: 'Well?': nobody answered in time. Ask the user, and call again if they want it."
        )
        assert "done" not in events
        assert (await choice.answer(0)).status == 410


async def test_a_question_expires_when_it_or_the_toolset_says(tools: Toolset) -> None:
    tools.durations = Durations(answer=100)
    async with testing.serve(tools) as client:
        short = await client.start("ask", expires_in=10)
        usual = await client.start("ask")
        await asyncio.gather(short.choice(), usual.choice())

        await client.advance(10)
        assert (await short.result()).is_error
        assert len(usual.messages) == 1
        await client.advance(90)
        assert (await usual.result()).is_error


async def test_a_question_expires_although_the_server_was_lost_meanwhile(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        call = await client.start("ask", expires_in=10)
        choice = await call.choice()
        await client.crash()
        await client.advance(10)

        assert (await call.result()).is_error
        assert (await choice.answer(0)).status == 410


async def test_an_answer_that_came_in_time_counts_although_nobody_had_time_for_it(tools: Toolset) -> None:
    tools.limits = Limits(concurrency=1)

    @tools.tool
    async def wait(ctx: Context) -> None:
        """Keep the worker."""
        await ctx.sleep(60)

    async with testing.serve(tools) as client:
        call = await client.start("ask", expires_in=10)
        choice = await call.choice()
        await client.settled()
        await client.start("wait")
        await client.settled()
        await choice.select("No")

        await client.advance(60)

        assert (await call.result()).text == "No"


async def test_a_handler_can_go_on_without_an_answer() -> None:
    tools = Toolset("tools")

    @tools.tool
    async def ask(ctx: Context) -> str:
        """Ask twice."""
        try:
            first = await ctx.choose("In a hurry?", ["Yes", "No"], expires_in=10)
        except ToolError:
            first = "nobody knows"
        return f"{first}, {await ctx.choose('Well?', ['Yes', 'No'])}"

    async with testing.serve(tools) as client:
        call = await client.start("ask")
        hurry = await call.choice()
        await client.advance(10)
        choice = await call.choice()

        assert (await hurry.answer(0)).status == 410  # though the call lives on
        await choice.select("Yes")
        assert (await call.result()).text == "nobody knows, Yes"


async def test_the_time_people_take_is_not_the_handlers() -> None:
    """A tool's timeout is for every run of its handler, not for the wait between two."""
    tools = Toolset("tools")

    @tools.tool(timeout=30)
    async def ask(ctx: Context, before: float = 0, after: float = 0) -> str:
        """Ask."""
        await ctx.sleep(before)
        answer = await ctx.choose("Well?", ["Yes", "No"])
        await ctx.sleep(after)
        return answer

    async with testing.serve(tools) as client:
        patient = await client.start("ask", before=20)
        await client.advance(20)
        choice = await patient.choice()
        await client.advance(DAY)
        await choice.select("Yes")
        await client.advance(20)
        assert (await patient.result()).text == "Yes"

        slow = await client.start("ask", after=31)
        await (await slow.choice()).select("Yes")
        await client.advance(31)
        assert "30" in (await slow.result()).text
        assert (await slow.result()).is_error


# Waiting without running


async def test_those_who_wait_hold_no_worker_and_no_memory(tools: Toolset) -> None:
    tools.limits = Limits(concurrency=1)

    @tools.tool
    async def quick() -> str:
        """Take no time."""
        return "quick"

    async with testing.serve(tools) as client:
        await client.settled()
        tasks = len(asyncio.all_tasks())
        waiting = [await client.start("ask", prompt=f"{number}?") for number in range(50)]
        choices = [await call.choice() for call in waiting]
        await client.settled()

        assert len(asyncio.all_tasks()) == tasks
        assert (await client.call("quick")).text == "quick"
        for choice in reversed(choices):
            await choice.select("Yes")
        assert [(await call.result()).text for call in waiting] == ["Yes"] * 50


async def test_a_call_that_waits_is_logged_and_counted_as_one(tools: Toolset, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rapkit.calls")
    async with testing.serve(tools) as client:
        call = await client.start("ask")
        await call.choice()
        await client.settled()

        (line,) = [record for record in caplog.records if record.name == "rapkit.calls"]
        assert line.getMessage() == "call suspended"
        assert vars(line)["call_id"] == call.id
        metrics = (await client.request("GET", "/metrics", authenticated=True)).text
        assert 'outcome="suspended"' in metrics


async def test_those_who_wait_are_still_there_after_a_restart_in_order(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        call = await client.start("ask")
        choice = await call.choice()
        await client.restart()

        await choice.select("Yes")
        assert (await call.result()).text == "Yes"


async def test_a_handler_that_does_not_let_itself_be_interrupted_is_not_heard(events: list[str]) -> None:
    tools = Toolset("tools")

    @tools.tool
    async def ask(ctx: Context) -> str:
        """Ask, and do not want to wait."""
        for _ in range(3):
            with contextlib.suppress(asyncio.CancelledError):
                return await ctx.choose("Well?", ["Yes", "No"])
            events.append("interrupted")
        return "impatient"

    async with testing.serve(tools) as client:
        call = await client.start("ask")
        choice = await call.choice()
        await client.settled()
        assert len(call.messages) == 1  # the question, once
        assert "interrupted" in events

        await choice.select("No")
        assert (await call.result()).text == "No"
        await client.settled()
        assert len(call.messages) == 2


async def test_a_question_overtaken_by_its_answer_still_comes_first(tools: Toolset) -> None:
    """The runtime has the question and we do not know it: the result waits in line behind it (semantics 18)."""
    async with testing.serve(tools) as client:
        client.callbacks.fail(heard=True)
        call = await client.start("ask")
        choice = await call.choice()
        await choice.select("Yes")
        await client.settled()
        assert [message.type for message in call.messages] == ["user_choice"]

        await client.advance(60)

        assert [message.type for message in call.messages] == ["user_choice", "tool_result"]
        assert client.callbacks.attempts == 3


# Several questions


async def test_questions_are_asked_one_after_another(events: list[str]) -> None:
    tools = Toolset("tools")

    @tools.tool
    async def ask(ctx: Context) -> list[str]:
        """Ask three times."""
        events.append("run")
        return [await ctx.choose(f"{n}?", ["Yes", "No"]) for n in range(3)]

    async with testing.serve(tools) as client:
        call = await client.start("ask")

        assert await answered(call, "Yes", "No", "Yes") == '["Yes","No","Yes"]'
        assert events == ["run"] * 4


@pytest.mark.parametrize("grouped", [False, True])
async def test_questions_asked_at_once_are_asked_one_after_another(grouped: bool) -> None:
    tools = Toolset("tools")

    @tools.tool
    async def ask(ctx: Context) -> list[str]:
        """Ask three times at once."""
        questions = [ctx.choose(f"{n}?", ["Yes", "No"]) for n in range(3)]
        if not grouped:
            return await asyncio.gather(*questions)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(question) for question in questions]
        return [task.result() for task in tasks]

    async with testing.serve(tools) as client:
        call = await client.start("ask")
        for prompt, answer in (("0?", "Yes"), ("1?", "No"), ("2?", "Yes")):
            choice = await call.choice()
            assert choice.prompt == prompt
            await client.settled()
            assert sum(message.type == "user_choice" for message in call.messages) == int(prompt[0]) + 1
            await choice.select(answer)

        assert (await call.result()).json() == ["Yes", "No", "Yes"]


async def test_the_same_question_twice_is_two_questions() -> None:
    tools = Toolset("tools")

    @tools.tool
    async def ask(ctx: Context) -> list[str]:
        """Ask until it is enough."""
        answers: list[str] = []
        while "Enough" not in answers:
            answers.append(await ctx.choose("More?", ["More", "Enough"]))
        return answers

    async with testing.serve(tools) as client:
        call = await client.start("ask")

        assert await answered(call, "More", "More", "Enough") == '["More","More","Enough"]'
        assert len({message.response_url for message in call.messages if message.type == "user_choice"}) == 3


async def test_questions_with_the_same_words_and_other_choices_are_different() -> None:
    tools = Toolset("tools")

    @tools.tool
    async def ask(ctx: Context) -> list[str]:
        """Ask twice."""
        return [await ctx.choose("Which?", ["a", "b"]), await ctx.choose("Which?", ["b", "a"])]

    async with testing.serve(tools) as client:
        call = await client.start("ask")

        assert await answered(call, "b", "b") == '["b","b"]'


async def test_an_answer_holds_for_the_choices_it_was_given_to() -> None:
    """Between the question and the answer the world may change: then the user is asked about the new one."""
    tools = Toolset("tools")
    files = ["a", "b", "c"]

    @tools.tool
    async def delete(ctx: Context) -> str:
        """Delete a file."""
        return f"deleted {await ctx.choose('Which?', files)}"

    async with testing.serve(tools) as client:
        call = await client.start("delete")
        choice = await call.choice()
        files.remove("a")
        await choice.select("b")

        choice = await call.choice()
        assert choice.choices == ("b", "c")
        await choice.select("b")
        assert (await call.result()).text == "deleted b"


async def test_an_old_answer_repeated_does_not_answer_the_next_question() -> None:
    tools = Toolset("tools")

    @tools.tool
    async def ask(ctx: Context) -> list[str]:
        """Ask twice."""
        return [await ctx.choose("Well?", ["Yes", "No"]), await ctx.choose("Well?", ["Yes", "No"])]

    async with testing.serve(tools) as client:
        call = await client.start("ask")
        first = await call.choice()
        await first.select("Yes")
        second = await call.choice()

        assert (await first.answer(1)).status == 200
        await client.settled()
        assert [message.type for message in call.messages] == ["user_choice"] * 2
        await second.select("No")
        assert (await call.result()).json() == ["Yes", "No"]


# Servers that are lost


async def test_a_server_that_is_lost_before_the_answer(tools: Toolset, events: list[str]) -> None:
    async with testing.serve(tools) as client:
        call = await client.start("ask")
        choice = await call.choice()
        await client.crash()
        await client.settled()
        assert events == ["begun"]

        await choice.select("Yes")

        assert (await call.result()).text == "Yes"
        assert events == ["begun", "begun", "done"]


async def test_a_server_that_is_lost_after_the_answer(tools: Toolset, events: list[str]) -> None:
    """The answer was acknowledged, and nobody has looked at it yet."""
    tools.limits = Limits(concurrency=1)

    @tools.tool(idempotent=True)
    async def wait(ctx: Context) -> None:
        """Keep the worker."""
        await ctx.sleep(60)

    async with testing.serve(tools) as client:
        call = await client.start("ask")
        choice = await call.choice()
        await client.settled()
        await client.start("wait")
        await client.settled()
        await choice.select("Yes")
        await client.settled()
        assert events == ["begun"]

        await client.crash()
        await client.advance(60)

        assert (await call.result()).text == "Yes"
        assert events == ["begun", "begun", "done"]


@pytest.mark.parametrize("idempotent", [False, True])
async def test_a_server_that_is_lost_between_the_answer_and_the_result(events: list[str], idempotent: bool) -> None:
    """Semantics 23 and 24: past its last answer a handler runs again only if it says that it may."""
    tools = Toolset("tools")

    @tools.tool(idempotent=idempotent)
    async def launch(ctx: Context) -> str:
        """Ask, then act."""
        answer = await ctx.choose("Launch?", ["Yes", "No"])
        events.append("launched")
        await ctx.sleep(10)
        return answer

    async with testing.serve(tools) as client:
        call = await client.start("launch")
        await (await call.choice()).select("Yes")
        await client.settled()
        assert events == ["launched"]

        await client.crash()
        await client.advance(10)

        text = (await call.result()).text
        if idempotent:
            assert (text, events) == ("Yes", ["launched"] * 2)
        else:
            assert "it is not known whether it took effect" in text
            assert events == ["launched"]


async def test_a_handler_lost_between_two_questions_follows_the_same_rule(events: list[str]) -> None:
    tools = Toolset("tools")

    @tools.tool
    async def launch(ctx: Context) -> str:
        """Ask, act, ask."""
        await ctx.choose("Fuel?", ["Yes", "No"])
        events.append("fuelled")
        await ctx.sleep(10)
        return await ctx.choose("Launch?", ["Yes", "No"])

    async with testing.serve(tools) as client:
        call = await client.start("launch")
        await (await call.choice()).select("Yes")
        await client.settled()

        await client.crash()

        assert "it is not known whether it took effect" in (await call.result()).text
        assert events == ["fuelled"]


async def test_a_handler_lost_on_its_way_to_its_last_answer_runs_again(events: list[str]) -> None:
    """What stands before a wait must bear to be repeated, also when the answer is there."""
    tools = Toolset("tools")

    @tools.tool
    async def launch(ctx: Context) -> str:
        """Ask, take a while, ask."""
        events.append("begun")
        fuel = await ctx.choose("Fuel?", ["Yes", "No"])
        await ctx.sleep(10)
        launch = await ctx.choose("Launch?", ["Yes", "No"])
        events.append("launched")
        return f"{fuel}, {launch}"

    async with testing.serve(tools) as client:
        call = await client.start("launch")
        await (await call.choice()).select("Yes")
        await client.advance(10)
        await (await call.choice()).select("No")
        await client.settled()
        assert events == ["begun"] * 3

        for _ in range(2):
            await client.crash()
            await client.settled()
        await client.advance(10)

        assert (await call.result()).text == "Yes, No"
        assert events == [*["begun"] * 5, "launched"]


async def test_a_handler_that_kills_its_server_again_and_again_is_given_up() -> None:
    tools = Toolset("tools")

    @tools.tool
    async def launch(ctx: Context) -> str:
        """Ask, after a while."""
        await ctx.sleep(10)
        return await ctx.choose("Launch?", ["Yes", "No"])

    async with testing.serve(tools) as client:
        call = await client.start("launch")
        await client.advance(10)
        await (await call.choice()).select("Yes")
        for _ in range(3):
            await client.settled()
            await client.crash()

        assert (await call.result()).text == "Error: launch was interrupted 3 times and given up. Tell the user."


async def test_a_handler_lost_while_it_waits_again_runs_again(events: list[str]) -> None:
    """What stands before a wait must bear to be repeated, also behind another question."""
    tools = Toolset("tools")

    @tools.tool
    async def launch(ctx: Context) -> str:
        """Ask, act, ask."""
        await ctx.choose("Fuel?", ["Yes", "No"])
        events.append("fuelled")
        return await ctx.choose("Launch?", ["Yes", "No"])

    async with testing.serve(tools) as client:
        call = await client.start("launch")
        await (await call.choice()).select("Yes")
        choice = await call.choice()
        await client.crash()
        await choice.select("No")

        assert (await call.result()).text == "No"
        assert events == ["fuelled"] * 2


@pytest.mark.parametrize("idempotent", [False, True])
async def test_wherever_the_server_is_lost_the_question_is_asked_once_and_the_call_answered_once(
    idempotent: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """INV-11, INV-13, CB-5: lost after each step it makes in its store, from the call to the result."""
    caplog.set_level(logging.CRITICAL)
    tools = Toolset("tools")
    launches: list[str] = []

    @tools.tool(idempotent=idempotent)
    async def launch(ctx: Context) -> str:
        """Ask, then act."""
        answer = await ctx.choose("Launch?", ["Yes", "No"], remember="thread")
        launches.append(answer)
        await ctx.view("sky", "rocket")
        return "launched"

    fates = set()
    for step in range(1, 100):
        launches.clear()
        async with testing.serve(tools) as client:
            client.crash_after(step)
            delivery_outcome, lost = await _launch(client)
            fates.add(delivery_outcome)
            if delivery_outcome == "launched":
                assert launches == ["Yes"] * len(launches)
                assert len(launches) == 1 or (idempotent and len(launches) == 2)
            else:
                assert not idempotent
                assert "not known whether it took effect" in delivery_outcome
                assert len(launches) <= 1
        if not lost:
            break
    assert 10 < step < 100
    assert len(fates) == 1 + (not idempotent)


async def _launch(client: Client) -> tuple[str, bool]:
    """How a call with one question ended, and whether the server was lost on the way."""
    call = await client.start("launch")
    await client.settled()
    lost = await _replaced_if_lost(client)
    await client.settled()
    if any(message.type == "user_choice" for message in call.messages):
        choice = await call.choice()
        if (await choice.answer(0)).status == 503:
            lost = await _replaced_if_lost(client)
            assert (await choice.answer(0)).status == 200
    await client.settled()
    lost = await _replaced_if_lost(client) or lost
    result = await call.result()
    await client.settled()
    return result.text, lost or client.lost


async def _replaced_if_lost(client: Client) -> bool:
    if client.lost:
        await client.crash()
        return True
    return False


@pytest.mark.parametrize("seed", range(40))
async def test_whatever_happens_in_whatever_order_every_call_ends_once(seed: int) -> None:
    """CB-5, INV-11: answers right, wrong and repeated, cancellations, time, lost callbacks and lost servers."""
    dice = random.Random(seed)
    random.seed(seed)  # for the dice that are thrown when a callback is tried again
    tools = Toolset("tools", limits=Limits(concurrency=2, notices=None))
    acts: Counter[str] = Counter()

    @tools.tool
    async def act(ctx: Context, again: bool = False) -> str:
        """Ask twice, then act."""
        await ctx.view("call", ctx.call_id)
        first = await ctx.choose("First?", ["Yes", "No"], remember="thread" if again else None, expires_in=300)
        await ctx.sleep(dice.choice((0, 5)))
        second = await ctx.choose("Second?", ["Yes", "No"], expires_in=300)
        acts[ctx.call_id] += 1
        await ctx.sleep(dice.choice((0, 5)))
        return f"{first} {second}"

    async with testing.serve(tools) as client:
        calls: list[Call] = []
        choices: list[Choice] = []
        asked: Counter[Call] = Counter()
        for _ in range(60):
            happens = dice.choices(
                ("start", "answer", "wrong", "cancel", "close", "wait", "crash", "lose", "down"),
                (8, 16, 2, 2, 1, 8, 2, 4, 1),
            )[0]
            if happens == "start":
                who = client.as_(thread_id=f"thread_{dice.randrange(3)}")
                calls.append(await who.start("act", again=dice.random() < 0.3))
            elif happens in ("answer", "wrong") and choices:
                reply = await dice.choice(choices[-6:]).answer(7 if happens == "wrong" else dice.randrange(2))
                assert reply.status in (200, 410)
            elif happens == "cancel" and calls:
                await dice.choice(calls).cancel()
            elif happens == "close":
                await client.as_(thread_id=f"thread_{dice.randrange(3)}").close_thread()
            elif happens == "wait":
                await client.advance(dice.choice((0.1, 3, 60)))
            elif happens == "crash":
                await client.crash()
            elif happens == "lose":
                client.callbacks.fail(heard=dice.random() < 0.5)
            elif happens == "down":
                client.callbacks.down()
                await client.advance(10)
                client.callbacks.up()
            if dice.random() < 0.5:
                await client.settled()
            for call in calls:
                while sum(message.type == "user_choice" for message in call.messages) > asked[call]:
                    asked[call] += 1
                    choices.append(await call.choice())
        client.callbacks.up()
        await client.advance(DAY)

        results = {call.id: (await call.result()).text for call in calls}
        assert all(count == 1 for count in acts.values())
        for id, text in results.items():
            if not text.startswith("Error: "):
                assert acts[id] == 1


# Ends


@pytest.mark.parametrize("close", [False, True])
async def test_a_call_that_waits_can_be_ended(tools: Toolset, events: list[str], close: bool) -> None:
    """CAN-3, CLO-5, CB-5: with one result, and then nothing."""
    async with testing.serve(tools) as client:
        other = await client.as_(thread_id="other").start("ask")
        call = await client.start("ask")
        choice = await call.choice()

        await (client.close_thread() if close else call.cancel())

        assert (await call.result()).text == CANCELLED
        assert (await choice.answer(0)).status == 410
        await client.advance(7 * DAY)
        assert [message.type for message in call.messages] == ["user_choice", "tool_result"]
        assert "done" not in events
        assert (await other.result()).is_error  # it expired, and was not ended with the first


async def test_a_call_whose_answer_has_just_come_can_be_ended(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        for _ in range(20):
            call = await client.start("ask")
            choice = await call.choice()
            await asyncio.gather(choice.answer(0), call.cancel())

            assert (await call.result()).text in ("Yes", CANCELLED)
        await client.settled()
        assert len(client.messages) == 40


async def test_what_is_changed_in_the_state_before_a_question_is_changed_once(events: list[str]) -> None:
    tools = Toolset("tools")

    @tools.tool
    async def count(ctx: Context, ask: bool = True) -> int:
        """Count, and ask."""
        ctx.state["count"] = ctx.state.get("count", 0) + 1
        if ask:
            await ctx.choose("Well?", ["Yes", "No"])
        return int(ctx.state["count"])

    async with testing.serve(tools) as client:
        assert await answered(await client.start("count"), "Yes") == "1"
        cancelled = await client.start("count")
        await cancelled.choice()
        await cancelled.cancel()
        await cancelled.result()
        expired = await client.start("count")
        await client.advance(3 * DAY)
        assert (await expired.result()).is_error
        assert (await client.call("count", ask=False)).text == "2"


async def test_what_is_shown_before_a_question_is_there_before_it() -> None:
    tools = Toolset("tools")

    @tools.tool
    async def ask(ctx: Context) -> str:
        """Show, ask, show."""
        await ctx.view("map", "before")
        answer = await ctx.choose("Well?", ["Yes", "No"])
        await ctx.view("map", "after")
        return answer

    async with testing.serve(tools) as client:
        call = await client.start("ask")
        choice = await call.choice()
        assert client.views == {"map": "before"}
        assert [message.type for message in call.messages] == ["view_update", "user_choice"]

        await choice.select("Yes")
        await call.result()
        assert client.views == {"map": "after"}
        assert call.messages[-1].type == "tool_result"


# Remembered answers


@pytest.fixture
def families() -> Toolset:
    tools = Toolset("tools", tokens={"alice": "alice-has-a-long-token", "bob": "bob-has-a-long-token"})

    async def ask(ctx: Context, remember: Literal["thread", "user"], prompt: str = "Well?", more: bool = False) -> str:
        """Ask."""
        choices = ["Yes", "No", "Maybe"] if more else ["Yes", "No"]
        return await ctx.choose(prompt, choices, remember=remember)

    tools.tool(ask)
    tools.tool(name="ask_too")(ask)
    return tools


async def _asks(client: Client, tool: str = "ask", **arguments: Any) -> bool:
    """Whether the user is asked, rather than the call answered at once."""
    call = await client.start(tool, **arguments)
    await client.settled()
    return call.messages[0].type == "user_choice"


async def test_an_answer_is_remembered_for_the_thread(families: Toolset) -> None:
    async with testing.serve(families) as client:
        assert await answered(await client.start("ask", remember="thread"), "No") == "No"

        assert (await client.call("ask", remember="thread")).text == "No"
        await client.crash()
        assert (await client.call("ask", remember="thread")).text == "No"
        assert await _asks(client.as_(thread_id="other"), remember="thread")
        assert await _asks(client.as_(caller="bob"), remember="thread")
        assert await _asks(client, remember="user")


async def test_an_answer_is_remembered_for_the_user(families: Toolset) -> None:
    """Semantics 26"""
    async with testing.serve(families) as client:
        assert await answered(await client.start("ask", remember="user"), "No") == "No"

        assert (await client.call("ask", remember="user")).text == "No"
        assert (await client.as_(thread_id="other").call("ask", remember="user")).text == "No"
        assert await _asks(client.as_(user_id="user_2"), remember="user")
        assert await _asks(client.as_(user_id=None), remember="user")
        assert await _asks(client.as_(caller="bob"), remember="user")
        assert await _asks(client, remember="thread")


async def test_an_answer_is_remembered_for_one_question_of_one_tool(families: Toolset) -> None:
    async with testing.serve(families) as client:
        await answered(await client.start("ask", remember="user"), "No")

        assert await _asks(client, "ask_too", remember="user")
        assert await _asks(client, remember="user", prompt="Really?")
        assert await _asks(client, remember="user", more=True)


async def test_without_a_user_the_root_thread_stands_in_for_one(families: Toolset) -> None:
    """Semantics 26"""
    async with testing.serve(families) as client:
        root = client.as_(user_id=None)
        child = root.as_(thread_id="child", thread_ancestors=["thread_1"])
        grandchild = root.as_(thread_id="grandchild", thread_ancestors=["thread_1", "child"])
        await answered(await grandchild.start("ask", remember="user"), "No")

        assert (await root.call("ask", remember="user")).text == "No"
        assert (await child.call("ask", remember="user")).text == "No"
        assert await _asks(root.as_(thread_id="stranger"), remember="user")
        assert await _asks(client.as_(user_id="thread_1"), remember="user")  # called like the thread


async def test_what_was_remembered_for_a_thread_is_forgotten_with_it(families: Toolset) -> None:
    """CLO-5"""
    async with testing.serve(families) as client:
        await answered(await client.start("ask", remember="thread"), "No")
        await answered(await client.start("ask", remember="user"), "No")

        await client.close_thread()
        await client.settled()

        assert await _asks(client, remember="thread")
        assert (await client.call("ask", remember="user")).text == "No"


async def test_what_is_no_answer_is_not_remembered(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        invalid = await client.start("ask", remember="user")
        await (await invalid.choice()).select(7)
        assert (await invalid.result()).is_error
        expired = await client.start("ask", remember="user", expires_in=10)
        await client.advance(10)
        assert (await expired.result()).is_error

        assert await _asks(client, remember="user")


@pytest.mark.parametrize("remember", ["thread", "user"])
async def test_two_calls_that_ask_the_same_get_each_its_own_answer(tools: Toolset, remember: str) -> None:
    async with testing.serve(tools) as client:
        first = await client.start("ask", remember=remember)
        second = await client.start("ask", remember=remember)

        assert await answered(first, "Yes") == "Yes"
        assert await answered(second, "No") == "No"
        assert (await client.call("ask", remember=remember)).text == "No"


async def test_a_handler_lost_after_an_answer_that_another_call_had_remembered_does_not_run_again(
    events: list[str],
) -> None:
    """Semantics 24: that it got past its last answer is written down, whoever else has given the same one."""
    tools = Toolset("tools")

    @tools.tool
    async def launch(ctx: Context, quickly: bool = False) -> str:
        """Ask, then act."""
        answer = await ctx.choose("Launch?", ["Yes", "No"], remember="user")
        if not quickly:
            events.append("launched")
            await ctx.sleep(10)
        return answer

    async with testing.serve(tools) as client:
        call = await client.start("launch")
        choice = await call.choice()
        assert await answered(await client.start("launch", quickly=True), "Yes") == "Yes"
        await choice.select("Yes")
        await client.settled()

        await client.crash()
        await client.advance(10)

        assert "it is not known whether it took effect" in (await call.result()).text
        assert events == ["launched"]


async def test_a_remembered_answer_is_not_taken_for_the_next_question_in_the_same_words() -> None:
    tools = Toolset("tools")

    @tools.tool
    async def ask(ctx: Context) -> list[str]:
        """Ask twice."""
        kept = await ctx.choose("Well?", ["Yes", "No"], remember="thread")
        return [kept, await ctx.choose("Well?", ["Yes", "No"])]

    async with testing.serve(tools) as client:
        assert await answered(await client.start("ask"), "Yes", "No") == '["Yes","No"]'
        assert await answered(await client.start("ask"), "No") == '["Yes","No"]'


# Moments


async def test_an_answer_in_the_moment_the_question_expires_is_heard_or_refused(tools: Toolset) -> None:
    """CHO-2, CB-5: never taken and then lost, whatever the server has just done when it comes."""
    outcomes = {await _answered_at_expiry(tools, moment) for moment in range(12)} - {None}

    assert outcomes == {
        (200, "Yes"),
        (410, "Error: 'Well?': nobody answered in time. Ask the user, and call again if they want it."),
    }


async def _answered_at_expiry(tools: Toolset, moment: int) -> tuple[int, str] | None:
    """What is said to an answer after so many operations of a server that has a question expire, and what becomes of the call."""
    async with testing.serve(tools) as client:
        call = await client.start("ask", expires_in=60)
        choice = await call.choice()
        expires_at = client.clock.now() + 60
        done = 0
        replies: list[int] = []

        async def answer_then(name: str, arguments: tuple[Any, ...]) -> None:
            nonlocal done
            of_a_call = name in ("commit", "records") or (name == "claim" and arguments[1].startswith("call/"))
            if of_a_call and client.clock.now() >= expires_at:
                done += 1
                if done == moment + 1:
                    replies.append((await choice.answer(0)).status)

        with pytest.MonkeyPatch.context() as patch:
            meddle(patch, after=answer_then)
            await client.advance(61)
        text = (await call.result()).text
        return (replies[0], text) if replies else None


@pytest.mark.parametrize("seconds", [float("nan"), 0.0, -1.0, float("inf")], ids=str)
async def test_a_question_that_expires_at_no_time_is_the_authors_mistake(seconds: float) -> None:
    tools = Toolset("tools")

    @tools.tool
    async def ask(ctx: Context) -> str:
        """Ask."""
        return await ctx.choose("Well?", ["Yes", "No"], expires_in=seconds)

    async with testing.serve(tools) as client:
        call = await client.start("ask")

        assert (await call.result()).text.startswith("Error: the tool failed unexpectedly (reference ")
        assert len(call.messages) == 1


@pytest.mark.parametrize("remember", [None, "thread", "user"])
async def test_a_store_that_fails_for_a_moment_while_a_handler_asks_does_not_end_its_call(
    tools: Toolset, events: list[str], monkeypatch: pytest.MonkeyPatch, remember: str | None
) -> None:
    """INV-11, semantics 24: whichever moment it is. The user has answered, and that is not for nothing."""
    monkeypatch.setattr("rapkit.work.store_retry._PAUSE_BEFORE_TRYING_AGAIN", 0)
    monkeypatch.setattr("rapkit.server.calls.call_runner._PAUSE_AFTER_FAILURE", 0)
    for moment in range(100):
        events.clear()
        done = 0

        async def fail_once(name: str, _arguments: tuple[Any, ...], moment: int = moment) -> None:
            nonlocal done
            if name in ("records", "commit", "note"):
                done += 1
                if done == moment + 1:
                    raise StoreBusy("Another process keeps it locked.")

        async with testing.serve(tools) as client:
            with pytest.MonkeyPatch.context() as patch:
                meddle(patch, before=fail_once)
                call = await client.start("ask", remember=remember)
                await (await call.choice()).select("Yes")

                assert (await call.result()).text == "Yes"
            assert events.count("done") == 1
            assert [message.type for message in call.messages] == ["user_choice", "tool_result"]
        if done <= moment:
            break
    assert 5 < moment < 99


@pytest.mark.parametrize("when", ["after the result", "with the result"])
async def test_who_asks_after_the_handler_has_ended_is_told_that_it_is_too_late(
    monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """A task that the handler left behind; it would wait for ever."""
    tools = Toolset("tools")
    asking, answered, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()
    left_behind: list[asyncio.Task[str]] = []

    @tools.tool
    async def leave(ctx: Context) -> str:
        """Leave somebody behind."""

        async def ask_late() -> str:
            await go_on.wait()
            return await ctx.choose("Well?", ["Yes", "No"])

        left_behind.append(asyncio.create_task(ask_late()))
        if when == "with the result":
            await asking.wait()
        return "done"

    async def hold_up(name: str, arguments: tuple[Any, ...]) -> None:
        if name == "commit" and arguments[1].timers:
            asking.set()  # the question is about to be written down, and the result is faster
            await answered.wait()

    async with testing.serve(tools) as client:
        meddle(monkeypatch, before=hold_up)
        if when == "with the result":
            go_on.set()
        call = await client.start("leave")
        assert (await call.result()).text == "done"
        await client.settled()
        answered.set()
        go_on.set()

        with pytest.raises(RuntimeError, match="The handler has ended: it is too late to ask"):
            await asyncio.wait_for(left_behind[0], 60)
        assert [message.type for message in client.messages] == ["tool_result"]
