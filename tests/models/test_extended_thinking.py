"""Extended thinking, in conversations with calls that nobody made: the real SDK, and a server as strict as the real one."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic_ai.models import infer_model

from rapkit.kernel.conversation import Heard, Said, ToolAnswer
from rapkit.kernel.entries import (
    Answered,
    Happened,
    JournalEntry,
    MadeCall,
    ModelSaid,
    ParentSaid,
    Reported,
    Tasked,
    UserSaid,
)
from rapkit.kernel.projection import Numbered, Stretch, project
from rapkit.models import Model, open_model
from tests.models.anthropic_server import AnthropicServer
from tests.models.conversations import PIXEL, answer, ask, call, heard, question, said
from tests.models.openai_server import OpenAIServer
from tests.models.replies import Call, ProviderServer, Say

BY_BUDGET: list[dict[str, Any]] = [
    {"anthropic_thinking": {"type": "enabled", "budget_tokens": 1024}},
    {"thinking": "high"},
    {"extra_body": {"thinking": {"type": "enabled", "budget_tokens": 1024}}},
]
EVENT = call("s1-e9", "watch", city="Oslo", kind="interrupt:s1 (subscription remains active)")
STORM = heard(answer("s1-e9", "A storm.", "watch"))
LATE = call("c1-r9", "forecast", kind="result:c1 (the call is finished)")


@pytest.fixture
async def claude(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AnthropicServer]:
    async with AnthropicServer() as server:
        for variable, value in server.env.items():
            monkeypatch.setenv(variable, value)
        yield server
        assert server.refusals == []


def thinking(settings: dict[str, Any], name: str = "claude-haiku-4-5") -> Model:
    model: Any = infer_model(f"anthropic:{name}")
    return open_model(type(model)(name, provider=model.provider, settings=settings))


def shown(*entries: JournalEntry) -> tuple[Heard | Said, ...]:
    return project([Stretch([Numbered(seq, entry) for seq, entry in enumerate(entries, 1)])])


def kinds(server: ProviderServer) -> list[list[str]]:
    """The kinds of blocks in each message of the last request."""
    return [[block["type"] for block in message["content"]] for message in server.requests[-1]["messages"]]


@pytest.mark.parametrize("settings", BY_BUDGET)
async def test_events_and_late_results_are_told_so_that_the_model_can_think(
    claude: AnthropicServer, settings: dict[str, Any]
) -> None:
    claude.replies.append(Say("Mind the storm.", thought="A storm is dangerous."))
    late = heard(answer("c1-r9", "dry", image=PIXEL))
    asked = question("Watch Oslo", said(text="I watch."), "Good", said(LATE), late, said(EVENT), STORM)
    await ask(thinking(settings), asked)
    assert claude.requests[0]["thinking"]["type"] == "enabled"
    assert kinds(claude) == [["text"], ["text"], ["text", "text", "image", "text"]]
    texts = [block.get("text") for block in claude.requests[0]["messages"][2]["content"]]
    assert texts[0] == "Good"
    assert texts[1] == "[result of forecast(c1): the call is finished]\ndry"
    assert texts[3] == '[event of watch(s1) with {"city": "Oslo"}: subscription remains active]\nA storm.'


@pytest.mark.parametrize("settings", BY_BUDGET)
async def test_what_other_threads_say_is_told_too(claude: AnthropicServer, settings: dict[str, Any]) -> None:
    claude.replies.append(Say("Mind the storm.", thought="A storm is dangerous."))
    journal = (
        Tasked("note_1", "thr_1", "look at Oslo"),
        ModelSaid("I look."),
        Reported("note_2", "thr_2", "It rains.", "look closer"),
        ParentSaid("note_3", "thr_1", "How far are you?"),
    )
    await ask(thinking(settings), question(*shown(UserSaid("Plan it"), *journal)))
    assert claude.requests[0]["thinking"]["type"] == "enabled"
    assert kinds(claude) == [["text", "text"], ["text"], ["text", "text"]]
    first, _, last = claude.requests[0]["messages"]
    assert first["content"][1]["text"].startswith("[task of thread thr_1: from the parent thread]\n")
    assert first["content"][1]["text"].endswith("look at Oslo")
    assert [block["text"] for block in last["content"]] == [
        '[report of thread thr_2 with {"task": "look closer"}: open]\nIt rains.',
        "[message of thread thr_1: from the parent thread]\nHow far are you?",
    ]


@pytest.mark.parametrize("settings", BY_BUDGET)
async def test_thoughts_stay_with_a_reply_that_an_event_follows(
    claude: AnthropicServer, settings: dict[str, Any]
) -> None:
    first = Say("I look.", (Call("forecast", {"city": "Oslo"}),), thought="Look first.")
    claude.replies += [first, Say("Dry.", thought="Done."), "A storm!"]
    model = thinking(settings)
    journal: list[JournalEntry] = [UserSaid("Oslo?")]
    for entries in (
        (Answered("c1", "forecast", "dry"),),
        (Happened("s1", "watch", "A storm."),),
    ):
        reply = (await ask(model, question(*shown(*journal)))).reply
        calls = tuple(MadeCall("c1", wanted.name, wanted.arguments or {}) for wanted in reply.calls)
        journal += [ModelSaid(reply.text, calls, thoughts=reply.thoughts), *entries]
    await ask(model, question(*shown(*journal)))
    assert kinds(claude) == [
        ["text"],
        ["thinking", "text", "tool_use"],
        ["tool_result"],
        ["thinking", "text"],
        ["text"],
    ]
    assert all(request["thinking"]["type"] == "enabled" for request in claude.requests)


@pytest.mark.parametrize("name", ["anthropic:claude-haiku-5-5", "openai:gpt-5-mini"], indirect=True)
async def test_without_a_budget_an_event_is_a_call_behind_the_reply_and_its_thoughts(
    name: str, server: ProviderServer
) -> None:
    server.replies += [Say("Dry.", thought="Done."), "A storm!"]
    model = open_model(name)
    reply = (await ask(model, question("Oslo?"))).reply
    dry = ModelSaid(reply.text, thoughts=reply.thoughts)
    await ask(model, question(*shown(UserSaid("Oslo?"), dry, Happened("s1", "watch", "A storm."))))
    if isinstance(server, OpenAIServer):
        items = [item.get("type", item.get("role")) for item in server.requests[1]["input"]]
        assert items[-4:] == ["reasoning", "assistant", "function_call", "function_call_output"]
    else:
        assert kinds(server) == [["text"], ["thinking", "text", "tool_use"], ["tool_result"]]


@pytest.mark.parametrize("order", ["both", "first", "second"])
async def test_replies_that_are_joined_keep_their_thoughts_each_before_its_text(
    claude: AnthropicServer, order: str
) -> None:
    claude.replies += [
        Say("One.", thought="Think of one."),
        Say("Two.", (Call("forecast", {}),), thought="Think of two."),
        "Three.",
    ]
    model = open_model("anthropic:claude-haiku-5-5")
    one = (await ask(model, question("Count"))).reply
    two = (await ask(model, question("Count"))).reply
    joined = shown(
        UserSaid("Count"),
        ModelSaid(one.text, thoughts=one.thoughts if order != "second" else ()),
        ModelSaid(two.text, (MadeCall("c1", "forecast", {}),), thoughts=two.thoughts if order != "first" else ()),
        Answered("c1", "forecast", "ok"),
    )
    await ask(model, question(*joined))
    blocks = claude.requests[2]["messages"][1]["content"]
    spoken = [block.get("thinking") or block.get("text") or block["name"] for block in blocks]
    assert (
        spoken
        == {
            "both": ["Think of one.", "One.", "Think of two.", "Two.", "forecast"],
            "first": ["Think of one.", "One.", "Two.", "forecast"],
            "second": ["One.", "Think of two.", "Two.", "forecast"],
        }[order]
    )


@pytest.mark.parametrize("settings", BY_BUDGET)
async def test_a_round_of_calls_that_began_without_thoughts_is_finished_without(
    claude: AnthropicServer, settings: dict[str, Any]
) -> None:
    """Such as one of another model, or from before thinking was turned on."""
    claude.replies += ["Dry.", "Hello."]
    model = thinking(settings)
    calls = (said(call("c1", city="Oslo")), heard(answer("c1", "dry")))
    await ask(model, question("Oslo?", *calls))
    assert claude.requests[0].get("thinking", {"type": "disabled"}) == {"type": "disabled"}
    await ask(model, question("Oslo?", *calls, said(text="Dry."), "Thanks"))
    assert claude.requests[1]["thinking"]["type"] == "enabled"


async def test_a_call_that_the_model_made_in_the_manner_of_an_event_stays_a_call(claude: AnthropicServer) -> None:
    model = thinking(BY_BUDGET[0])
    imitated = Say(calls=(Call("watch", {"kind": "interrupt:s1 (subscription ended)"}),), thought="Like before.")
    claude.replies += [imitated, "Well."]
    reply = (await ask(model, question("Hi"))).reply
    made = call("c1", "watch", kind="interrupt:s1 (subscription ended)")
    answers = Heard((ToolAnswer("c1", "watch", answer("c1", "no").content),))
    await ask(model, question("Hi", said(made, thoughts=reply.thoughts), answers))
    assert kinds(claude) == [["text"], ["thinking", "tool_use"], ["tool_result"]]
