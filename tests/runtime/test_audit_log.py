"""The audit log: who called what, when, and what became of it."""

import json

import pytest

from rapkit.logs import JsonLines
from tests.runtime.agents import RunningAgent, ScriptedReplies, call, quick, working
from tests.runtime.foreign_toolset import INVOKE, ForeignToolset
from tests.server.served_toolset import failing, until
from tests.server.sink import answer


@pytest.fixture(autouse=True)
def listening(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "rapkit.audit")


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, str]]:
    """The audit log, as a machine reads it."""
    return [json.loads(JsonLines().format(each)) for each in caplog.records if each.name == "rapkit.audit"]


async def test_a_call_leaves_three_lines(
    agent: RunningAgent, stranger: ForeignToolset, caplog: pytest.LogCaptureFixture
) -> None:
    """RUN-10: it was made, its server has it, it is answered."""
    talk = await agent.doing(call("work", password="hunter2"))
    await agent.quiet()
    invocation = await stranger.invoked()
    await invocation.result("the secret is 42")
    await talk.hears("42")

    invoked, acknowledged, answered = lines(caplog)
    for line in (invoked, acknowledged, answered):
        assert (line["thread_id"], line["call_id"], line["operation"]) == (talk.id, invocation.id, "work")
        assert line["time"]
    assert (invoked["message"], invoked["server"]) == ("invoked", stranger.url)
    assert (acknowledged["message"], acknowledged["server"]) == ("acknowledged", stranger.url)
    assert (answered["message"], answered["outcome"], answered["by"]) == ("answered", "ok", "tool")
    assert "hunter2" not in caplog.text
    assert "secret" not in str(lines(caplog))


async def test_a_call_that_comes_to_nothing_says_why(
    model: ScriptedReplies, stranger: ForeignToolset, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    """RUN-10: refused by its server, refused by us, answered with an error."""
    async with working(model, [stranger.url], store, policies=quick(0.1)) as agent:
        stranger.script[INVOKE] = [answer(400)]
        talk = await agent.doing(call("work"), call("nonsense"))
        await talk.hears("could not be delivered")
        await talk.do(call("other_work"))
        await (await stranger.invoked(2)).result("Error: it broke")
        await talk.hears("it broke")

    told = [(line["message"], line["operation"], line.get("outcome") or line.get("problem")) for line in lines(caplog)]
    assert sorted(told, key=str) == sorted(
        [
            ("invoked", "work", None),
            ("answered", "nonsense", "error"),
            ("undelivered", "work", f"{stranger.url} answered 400"),
            ("answered", "work", "error"),
            ("invoked", "other_work", None),
            ("acknowledged", "other_work", None),
            ("answered", "other_work", "error"),
        ],
        key=str,
    )


async def test_what_is_not_stored_leaves_no_line(
    agent: RunningAgent, stranger: ForeignToolset, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    """RUN-10: it has not happened."""
    with failing(store, "INSERT", "outbox"):
        talk = await agent.doing(call("work"))
        await until(lambda: "the store fails, and is asked again" in caplog.text)
        assert lines(caplog) == []

    await (await stranger.invoked()).result()
    await talk.hears("heard: done")
    assert [line["message"] for line in lines(caplog)].count("invoked") == 1
