"""What a model is shown of a long thread: its last lines, and of those only what is for models."""

import asyncio

from rapkit.kernel.entries import ViewChanged
from rapkit.kernel.limits import ThreadLimits
from tests.runtime.agents import ScriptedReplies, call, texts_of, working
from tests.runtime.foreign_toolset import ForeignToolset


async def test_what_is_shown_to_people_pushes_nothing_out_of_the_conversation(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """VIE-1: a tool that shows how far it is writes a line each time."""
    async with working(model, [stranger.url], store, limits=ThreadLimits(window=20)) as agent:
        talk = await agent.talk("my name is Ann")
        await talk.hears("Ann")
        await talk.do(call("work"))
        invocation = await stranger.invoked()
        for begin in range(0, 600, 50):
            await asyncio.gather(*(invocation.view("progress", begin + number) for number in range(50)))
        await talk.until(ViewChanged, 600)

        await invocation.result("finished")

        await talk.hears("heard: finished")
        shown = [texts_of(each) for each in model.last.conversation if hasattr(each, "texts")]  # type: ignore[arg-type]
        assert shown[0] == ["my name is Ann"]
        assert model.shown() == [("work", {}, "finished")]


async def test_what_came_long_ago_is_shown_no_more(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """Without summaries: a window is what it says, give or take the half of it that spares providers a new beginning each time."""
    limits = ThreadLimits(window=20, compaction=False)
    async with working(model, [stranger.url], store, limits=limits) as agent:
        talk = await agent.talk("message 0")
        await talk.hears("message 0")
        for number in range(1, 40):
            await talk.say(f"message {number}")
            await talk.hears(f"heard: message {number}")

        assert 20 <= len(model.last.conversation) <= 31
        assert texts_of(model.last.conversation[-1]) == ["message 39"]  # type: ignore[arg-type]
