"""Questions that never reach the user (semantics 24): their calls do not hang on them."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from rapkit import Context, Durations, OAuthProvider, ToolError, Toolset, testing
from rapkit.testing import Client
from tests.server.served_toolset import invocation, serving
from tests.server.sink import Sink, answer

HOUR = 3600.0


def asking(events: list[str] | None = None, **durations: float) -> Toolset:
    """A toolset whose tools ask, and go on without an answer."""
    tools = Toolset(
        "tools",
        durations=Durations(**durations),
        oauth=[
            OAuthProvider(
                "acme",
                authorize_url="https://acme.test/authorize",
                token_url="https://acme.test/token",
                client_id="us",
                client_secret="secret",
            )
        ],
    )
    log = [] if events is None else events

    @tools.tool(idempotent=True)
    async def ask(ctx: Context) -> str:
        """Ask."""
        return await ctx.choose("Well?", ["Yes", "No"])

    @tools.tool
    async def authorise(ctx: Context) -> str:
        """Ask for consent."""
        return await ctx.oauth("acme")

    @tools.tool
    async def persist(ctx: Context) -> str:
        """Ask again in other words if the first question fails."""
        try:
            return await ctx.choose("Well?", ["Yes", "No"])
        except ToolError:
            log.append("failed")
        return await ctx.choose("Please?", ["Fine", "No"])

    return tools


@pytest.mark.parametrize("status", [400, 404, 410, 413, 422])
@pytest.mark.parametrize("operation", ["ask", "authorise"])
async def test_a_question_the_runtime_refuses_ends_the_wait(operation: str, status: int) -> None:
    """Item 6 · CHO-2"""
    async with testing.serve(asking()) as client:
        client.callbacks.fail(status=status)
        call = await client.start(operation)
        result = (await call.result()).text

        assert result.startswith("Error: ")
        assert "did not reach the user" in result
        assert f"answered {status}" in result


@pytest.mark.parametrize("operation", ["ask", "authorise"])
async def test_a_question_that_cannot_be_delivered_within_its_horizon_fails(operation: str) -> None:
    """Item 6: after an hour, unless the toolset says otherwise. The result is delivered though the question was not."""
    async with testing.serve(asking(authorise=24 * HOUR)) as client:
        client.callbacks.down()
        call = await client.start(operation)
        await client.advance(HOUR - 120)
        client.callbacks.up()
        await client.advance(60)
        assert [message.type for message in call.messages] in (["user_choice"], ["oauth"])

    async with testing.serve(asking(authorise=24 * HOUR)) as client:
        client.callbacks.down()
        call = await client.start(operation)
        await client.advance(HOUR + 60)
        client.callbacks.up()
        await client.advance(HOUR)
        assert [message.type for message in call.messages] == ["tool_result"]
        assert "did not reach the user" in (await call.result()).text


async def test_how_long_a_question_is_retried_can_be_set() -> None:
    async with testing.serve(asking(ask=10)) as client:
        client.callbacks.down()
        call = await client.start("ask")
        await client.advance(30)
        client.callbacks.up()
        await client.advance(HOUR)

        assert "did not reach the user" in (await call.result()).text


async def test_a_refusal_is_the_answer_in_every_run_of_the_handler() -> None:
    """Item 6: it was not asked, so it fails at the same place when a later question lets the handler run again."""
    events: list[str] = []
    async with testing.serve(asking(events)) as client:
        client.callbacks.fail(status=400)
        call = await client.start("persist")
        choice = await call.choice()
        assert choice.prompt == "Please?"
        await client.crash()
        await choice.select("Fine")

        assert (await call.result()).text == "Fine"
        assert [message.type for message in call.messages] == ["user_choice", "tool_result"]
        assert len(events) == 2  # once for each run


async def test_an_answer_to_a_refused_question_is_too_late(toolset: Callable[..., Toolset], sink: Sink) -> None:
    """Item 6: the runtime has shown the question although it refused it. Its user's answer gets 410, whoever is faster."""
    tools = toolset()
    holding = asyncio.Event()

    @tools.tool
    async def ask(ctx: Context) -> str:
        """Ask, and take time to go on without an answer."""
        try:
            return await ctx.choose("Well?", ["Yes", "No"])
        except ToolError as error:
            await holding.wait()
            return f"not asked: {error}"

    sink.script = [answer(400)]
    async with serving(tools) as server:
        await server.invoke(invocation(sink.url, "ask", id="c1"))
        (question,) = await sink.received(1)
        path = question.message["response_url"].removeprefix(server.url)
        async with asyncio.timeout(60):
            while (await server.dead_letters()) == []:
                await asyncio.sleep(0.01)

        for _ in range(2):
            assert (await server.post(path, {"id": "c1", "selected": 0})).status == 410
        holding.set()
        _, result = await sink.received(2)

        assert result.text.startswith("not asked: 'Well?': the question did not reach the user")
        assert (await server.post(path, {"id": "c1", "selected": 0})).status == 410


async def test_an_answer_that_came_before_the_refusal_counts() -> None:
    """The runtime took the question, we did not hear so, and by the time it is asked again it is answered."""
    async with testing.serve(asking()) as client:
        client.callbacks.fail(status=503, heard=True)
        client.callbacks.fail(status=410)
        call = await client.start("ask")
        await (await call.choice()).select("Yes")
        await client.advance(10)

        assert (await call.result()).text == "Yes"


async def test_wherever_the_server_is_lost_a_refused_question_ends_the_wait(caplog: pytest.LogCaptureFixture) -> None:
    """Item 6: the end of the POST and the answer are written in one transaction, so no crash can come between them."""
    caplog.set_level(logging.CRITICAL)
    fates = set()
    for step in range(1, 100):
        async with testing.serve(asking()) as client:
            client.callbacks.fail(status=400)
            client.crash_after(step)
            call = await client.start("ask")
            await client.settled()
            lost = await _replaced_if_lost(client)
            if any(message.type == "user_choice" for message in call.messages):
                # It was lost before it had stored the refusal, and asks again: a runtime that takes it now gets its answer taken.
                await (await call.choice()).select("Yes")
            text = (await call.result()).text
            fates.add("Yes" if text == "Yes" else "not asked" if "did not reach the user" in text else text)
            assert [message.type for message in call.messages].count("tool_result") == 1
            lost = lost or client.lost
        if not lost:
            break
    assert 5 < step < 100
    assert fates == {"Yes", "not asked"}


async def _replaced_if_lost(client: Client) -> bool:
    if not client.lost:
        return False
    await client.crash()
    await client.settled()
    return True
