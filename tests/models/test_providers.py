"""Completions by the real SDKs over a real socket, from servers that refuse what the real ones refuse."""

import asyncio
import contextlib
from typing import Any

import pytest

from rapkit.kernel.compaction import summary_question
from rapkit.kernel.completion import ModelTool, Usage, WantedCall
from rapkit.kernel.conversation import Said
from rapkit.kernel.entries import (
    Answered,
    LiveCall,
    MadeCall,
    ModelSaid,
    ParentSaid,
    Reported,
    Summary,
    Tasked,
    UserSaid,
    WokenUp,
)
from rapkit.kernel.projection import Numbered, Stretch, project
from rapkit.models import ModelError, kept_open, open_model
from rapkit.models.images import MAX_BYTES
from tests.models.anthropic_server import AnthropicServer, signature
from tests.models.conversations import FORECAST, PIXEL, answer, ask, call, heard, question, said
from tests.models.openai_server import OpenAIServer
from tests.models.replies import Answer, BreakOff, Call, Fail, ProviderServer, Say
from tests.server.sink import PATIENCE


async def failure(name: str, server: ProviderServer, reply: Answer) -> ModelError:
    server.replies.append(reply)
    with pytest.raises(ModelError) as caught:
        await ask(open_model(name), question("Hello"))
    assert len(server.requests) <= 1, "an SDK retried by itself"
    return caught.value


async def test_text_comes_in_pieces(name: str, server: ProviderServer) -> None:
    server.replies.append("It will rain in Oslo.")
    asked = await ask(open_model(name), question("Will it rain?"))
    assert asked.reply.text == "It will rain in Oslo."
    assert len(asked.pieces) > 2
    assert asked.reply.calls == ()
    assert asked.reply.thoughts == ()
    assert asked.reply.model == name.partition(":")[2]


async def test_the_instructions_and_the_tools_are_sent(name: str, server: ProviderServer) -> None:
    server.replies.append("Hello")
    await ask(open_model(name), question("Hi", instructions="Speak Norwegian."))
    sent = server.requests[0]
    assert "Speak Norwegian." in str(sent)
    assert sent["tools"][0].get("function", sent["tools"][0])["name"] == "forecast"


async def test_without_tools_and_instructions_none_are_sent(name: str, server: ProviderServer) -> None:
    server.replies.append("Hello")
    await ask(open_model(name), question("Hi", tools=(), instructions=""))
    assert not server.requests[0].get("tools")


async def test_several_calls_in_one_completion(name: str, server: ProviderServer) -> None:
    server.replies.append(Say("Both.", (Call("forecast", {"city": "Oslo"}), Call("forecast", {"city": "Rome"}))))
    reply = (await ask(open_model(name), question("Oslo and Rome?"))).reply
    assert reply.text == "Both."
    assert [(wanted.name, wanted.arguments) for wanted in reply.calls] == [
        ("forecast", {"city": "Oslo"}),
        ("forecast", {"city": "Rome"}),
    ]
    assert len({wanted.provider_id for wanted in reply.calls}) == 2


async def test_usage_and_its_price(name: str, server: ProviderServer) -> None:
    server.replies.append(Say("Yes", input_tokens=1000, output_tokens=100))
    usage = (await ask(open_model(name), question("Hi"))).reply.usage
    assert (usage.requests, usage.input_tokens, usage.output_tokens) == (1, 1000, 100)


@pytest.mark.parametrize("name", ["openai-chat:gpt-4o"], indirect=True)
async def test_a_known_price_is_charged_and_an_unknown_one_is_not(name: str, server: ProviderServer) -> None:
    server.replies += [Say("Yes", input_tokens=1_000_000, output_tokens=0)] * 2
    model = open_model("openai-chat:no-such-model-at-all")
    assert (await ask(model, question("Hi"))).reply.usage == Usage(1, 1_000_000, 0, 0.0)
    assert (await ask(open_model(name), question("Hi"))).reply.usage.cost > 0


async def test_a_history_of_answered_calls_under_our_own_ids(name: str, server: ProviderServer) -> None:
    server.replies.append("Dry in Oslo, wet in Rome.")
    history = question(
        "Oslo and Rome?",
        said(call("t1-a", city="Oslo"), call("t1-b", city="Rome"), text="Let me look."),
        heard(answer("t1-a", "dry"), answer("t1-b", "wet"), texts=("Well?", "Hurry!")),
    )
    assert (await ask(open_model(name), history)).reply.text == "Dry in Oslo, wet in Rome."
    sent = str(server.requests[0])
    for words in ("t1-a", "t1-b", "dry", "wet", "Well?", "Hurry!", "Let me look."):
        assert words in sent


async def test_a_long_conversation_with_stand_ins_events_and_silence(name: str, server: ProviderServer) -> None:
    server.replies.append("Fine.")
    history = question(
        "Watch Oslo",
        said(call("s1", "watch", city="Oslo")),
        heard(answer("s1", "Subscribed.", "watch")),
        said(text="I watch."),
        heard(texts=("Good",)),
        Said(),  # a model that has nothing to add says nothing
        heard(texts=("Still there?",)),
        said(call("e1", "watch", city="Oslo", kind="interrupt:s1 (subscription remains active)")),
        heard(answer("e1", "It rains.", "watch")),
        Said(text="  \n"),
        heard(texts=("  ",)),
        said(call("c9", "forecast")),
        heard(answer("c9", "")),
    )
    assert (await ask(open_model(name), history)).reply.text == "Fine."


async def test_words_of_other_threads_and_summaries_are_taken_like_anything_else(
    name: str, server: ProviderServer
) -> None:
    """As a child thread's model is shown them that has a summary, a subscription behind it, a task, and a child of its own."""
    summary = Summary(
        "They want to know of Oslo.", 7, (LiveCall("call_1", "watch", {"city": "Oslo"}, subscription=True),)
    )
    inherited = Stretch([Numbered(1, UserSaid("Plan it"))], inherited=True)
    own = Stretch(
        [
            Numbered(8, Tasked("note_1", "thr_1", "look at Oslo")),
            Numbered(9, ModelSaid("", (MadeCall("call_2", "spawn_thread", {"task": "look closer"}),))),
            Numbered(10, Answered("call_2", "spawn_thread", "The child thread thr_2 works on it.")),
            Numbered(11, Reported("note_3", "thr_2", "It rains.", "look closer")),
            Numbered(12, Reported("note_4", "thr_2", "", "look closer", closed=True)),
            Numbered(13, ParentSaid("note_5", "thr_1", "How far are you?")),
            Numbered(14, ModelSaid("Nearly done.")),
            Numbered(15, WokenUp("daily", "2030-01-01 09:00 UTC", "How is it?")),
        ],
        summary=summary,
    )
    for stretches in ([own], [inherited, Stretch(own.lines)]):
        server.replies.append("Fine.")
        conversation = project(stretches)
        assert (await ask(open_model(name), question(*conversation))).reply.text == "Fine."
    sent = str(server.requests[0])
    for words in ("They want to know of Oslo.", "look at Oslo", "It rains.", "How far are you?", "daily"):
        assert words in sent


async def test_a_summary_is_asked_for_without_tools(name: str, server: ProviderServer) -> None:
    """Though calls are among what is summed up."""
    server.replies.append("Oslo is dry.")
    told = question("Oslo?", said(call("c1", city="Oslo")), heard(answer("c1", "dry")))

    summed = (await ask(open_model(name), summary_question(told.conversation))).reply

    assert summed.text == "Oslo is dry."
    (sent,) = server.requests
    assert not sent.get("tools")
    assert "dry" in str(sent)
    assert "(Write the summary of everything above now.)" in str(sent)
    assert "Write down everything the assistant needs" in str(sent)


@pytest.mark.parametrize(
    ("model_name", "tokens"),
    [
        ("openai-chat:gpt-4o", 128_000),
        ("anthropic:claude-3-5-haiku-latest", 200_000),
        ("openai-chat:no-such-model-at-all", None),
    ],
)
def test_how_much_a_model_takes_is_known_of_those_that_are_known(
    model_name: str, tokens: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(variable, "sk-none")
    assert open_model(model_name).context_window == tokens


async def test_an_image_is_shown_to_a_model_that_takes_images(name: str, server: ProviderServer) -> None:
    server.replies += ["A pixel.", "A pixel."]
    model = open_model(name)
    assert model.takes_images
    for text in ("the map", ""):
        seen = question("Show", said(call("c1")), heard(answer("c1", text, image=PIXEL)))
        assert (await ask(model, seen)).reply.text == "A pixel."
    for sent in map(str, server.requests):
        assert "iVBORw0KGgo" in sent
    assert "the map" in str(server.requests[0])


async def test_a_model_that_takes_no_images_is_told_that_there_was_one(name: str, server: ProviderServer) -> None:
    from pydantic_ai.models import infer_model

    server.replies.append("I see nothing.")
    blind: Any = infer_model(name)
    blind = type(blind)(blind.model_name, provider=blind.provider, profile={"supports_image_input": False})
    model = open_model(blind)
    assert not model.takes_images
    await ask(model, question("Show", said(call("c1")), heard(answer("c1", "the map", image=b"\x00" * 12_345))))
    sent = str(server.requests[0])
    assert "the map" in sent
    assert "[image image/png, 12 kB]" in sent


async def test_an_image_that_providers_refuse_is_only_mentioned(name: str, server: ProviderServer) -> None:
    server.replies.append("I see nothing.")
    answers = [answer("c1", image=b"<svg/>"), answer("c2", image=PIXEL + b"\x00" * MAX_BYTES)]
    await ask(open_model(name), question("Show", said(call("c1"), call("c2")), heard(*answers)))
    sent = str(server.requests[0])
    assert "[image image/png, 6 bytes]" in sent
    assert "[image image/png, 5000 kB]" in sent


async def test_of_many_images_the_latest_are_shown(name: str, server: ProviderServer) -> None:
    server.replies.append("Many pixels.")
    calls = [call(f"c{number}") for number in range(25)]
    answers = [answer(each.id, image=PIXEL) for each in calls]
    await ask(open_model(name), question("Show", said(*calls), heard(*answers)))
    sent = str(server.requests[0])
    assert sent.count("iVBORw0KGgo") == 20
    assert sent.count("[image image/png, 70 bytes]") == 5


@pytest.mark.parametrize("name", ["openai:gpt-5-mini", "anthropic:claude-haiku-5-5"], indirect=True)
async def test_thoughts_go_back_to_the_provider_that_had_them(name: str, server: ProviderServer) -> None:
    first = Say("Let me look.", (Call("forecast", {"city": "Oslo"}),), thought="They mean Oslo in Norway.")
    server.replies += [first, "Dry."]
    model = open_model(name)
    reply = (await ask(model, question("Oslo?"))).reply
    assert reply.text == "Let me look."
    assert reply.thoughts
    again = question(
        "Oslo?", said(call("c1", city="Oslo"), text=reply.text, thoughts=reply.thoughts), heard(answer("c1", "dry"))
    )
    await ask(model, again)
    if name.startswith("anthropic"):
        block = server.requests[1]["messages"][1]["content"][0]
        assert block == {"type": "thinking", "thinking": first.thought, "signature": signature(first)}
    else:
        item = next(item for item in server.requests[1]["input"] if item.get("type") == "reasoning")
        assert item["encrypted_content"] == "enc:" + first.thought[::-1]


@pytest.mark.parametrize("name", ["anthropic:claude-haiku-5-5"], indirect=True)
@pytest.mark.parametrize("spoilt", ["text", "calls", "more calls", "unreadable"])
async def test_thoughts_that_do_not_belong_to_what_is_shown_are_left_out(
    name: str, server: ProviderServer, spoilt: str
) -> None:
    server.replies += [Say("Yes.", (Call("forecast", {"city": "Oslo"}),), thought="Hm."), "Dry."]
    model = open_model(name)
    reply = (await ask(model, question("Oslo?"))).reply
    calls = {"calls": [], "more calls": [call("c1", city="Oslo"), call("c2")]}.get(spoilt, [call("c1", city="Oslo")])
    shown = said(
        *calls,
        text="No." if spoilt == "text" else reply.text,
        thoughts=({"from": "another version"},) if spoilt == "unreadable" else reply.thoughts,
    )
    after = heard(*(answer(each.id, "dry") for each in calls), texts=("And?",))
    await ask(model, question("Oslo?", shown, after))
    assert "thinking" not in str(server.requests[1]["messages"])
    assert shown.text in str(server.requests[1]["messages"])


async def test_thoughts_of_another_provider_are_kept_from_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async with AnthropicServer(Say("Hi.", thought="A secret plan.")) as one, OpenAIServer("Hello.") as other:
        for variable, value in (one.env | other.env).items():
            monkeypatch.setenv(variable, value)
        reply = (await ask(open_model("anthropic:claude-haiku-5-5"), question("Hi"))).reply
        await ask(open_model("openai:gpt-5-mini"), question("Hi", said(text="Hi.", thoughts=reply.thoughts), "And?"))
        assert "A secret plan." not in str(other.requests)
        assert other.refusals == []


async def test_tools_whose_name_or_schema_a_provider_refuses_are_shown_in_another_way(
    name: str, server: ProviderServer
) -> None:
    dotted = ModelTool(
        "repo.issues.list", "List.", {"anyOf": [{"required": ["a"]}], "properties": {"a": {"type": "string"}}}
    )
    long = ModelTool("x" * 128, "Long.", {})
    server.answering = lambda body: Say(
        calls=tuple(Call(tool.get("function", tool)["name"], {}) for tool in body["tools"])
    )
    reply = (await ask(open_model(name), question("List", tools=(dotted, long, FORECAST)))).reply
    assert [wanted.name for wanted in reply.calls] == ["repo.issues.list", "x" * 128, "forecast"]
    assert "anyOf" in str(server.requests[0]["tools"][0])
    await ask(
        open_model(name),
        question(
            "List",
            said(call("c1", "repo.issues.list")),
            heard(answer("c1", "none", "repo.issues.list")),
            tools=(dotted,),
        ),
    )


async def test_a_tool_that_refers_to_its_own_definitions(name: str, server: ProviderServer) -> None:
    tree = {"$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}}}
    schema = {"type": "object", "properties": {"root": {"$ref": "#/$defs/Node"}}, **tree}
    server.replies.append("Yes")
    await ask(open_model(name), question("Hi", tools=(ModelTool("grow", "Grow.", schema),)))
    assert "#/$defs/Node" in str(server.requests[0]["tools"])


@pytest.mark.parametrize("name", ["openai:gpt-5-mini", "openai-chat:gpt-4o"], indirect=True)
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ('{"city": "Os', "not valid JSON"),
        ('["Oslo"]', "not a JSON object"),
        ('{"city": NaN}', "not finite"),
        ('{"city": "\\ud800"}', "lone surrogate"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
async def test_arguments_that_are_no_json_object_are_a_problem_of_the_call(
    name: str, server: ProviderServer, arguments: str, problem: str
) -> None:
    server.replies.append(Say(calls=(Call("forecast", arguments, "c7"),)))
    (wanted,) = (await ask(open_model(name), question("Oslo?"))).reply.calls
    assert (wanted.provider_id, wanted.name, wanted.arguments) == ("c7", "forecast", None)
    assert problem in wanted.problem


@pytest.mark.parametrize("name", ["openai:gpt-5-mini", "openai-chat:gpt-4o"], indirect=True)
async def test_no_arguments_are_an_empty_object(name: str, server: ProviderServer) -> None:
    server.replies.append(Say(calls=(Call("forecast", "", "c7"),)))
    assert (await ask(open_model(name), question("Hi"))).reply.calls == (WantedCall("c7", "forecast", {}),)


async def test_an_empty_answer_is_an_answer(name: str, server: ProviderServer) -> None:
    server.replies.append(Say(""))
    assert (await ask(open_model(name), question("Thanks!"))).reply.text == ""


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503, 529])
async def test_what_may_pass_is_worth_retrying(name: str, server: ProviderServer, status: int) -> None:
    error = await failure(name, server, Fail(status, "Slow down."))
    provider = name.partition("-")[0].partition(":")[0]
    assert str(error) == f"{provider} answered {status}: Slow down."
    assert error.retryable
    assert error.retry_after is None


async def test_a_provider_says_how_long_to_wait(name: str, server: ProviderServer) -> None:
    error = await failure(name, server, Fail(429, "Slow down.", headers={"retry-after": "7"}))
    assert error.retry_after == 7


@pytest.mark.parametrize("status", [400, 403, 404, 413, 422])
async def test_what_stays_wrong_is_not_retried(name: str, server: ProviderServer, status: int) -> None:
    error = await failure(name, server, Fail(status, "No " + "never " * 200))
    assert not error.retryable
    assert f"answered {status}: No never" in str(error)
    assert len(str(error)) < 320


@pytest.mark.parametrize("name", ["openai:gpt-5-mini", "openai-chat:gpt-4o"], indirect=True)
async def test_a_quota_that_is_used_up_does_not_come_back_by_waiting(name: str, server: ProviderServer) -> None:
    error = await failure(name, server, Fail(429, "You exceeded your quota.", code="insufficient_quota"))
    assert not error.retryable


async def test_a_wrong_key_is_not_quoted(name: str, server: ProviderServer, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = "sk-wrong-" + server.key.removeprefix("sk-")
    monkeypatch.setenv("ANTHROPIC_API_KEY" if name.startswith("anthropic") else "OPENAI_API_KEY", wrong)
    error = await failure(name, server, "never said")
    assert "answered 401" in str(error)
    assert not error.retryable
    assert wrong not in str(error)
    assert wrong[-8:] not in str(error)
    assert error.__cause__ is None


async def test_a_key_with_a_line_break_is_not_quoted(
    name: str, server: ProviderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY" if name.startswith("anthropic") else "OPENAI_API_KEY", "plain-words-key\n")
    error = await failure(name, server, "never said")
    assert "plain-words-key" not in str(error)
    server.replies.clear()


@pytest.mark.parametrize("politely", [False, True])
async def test_an_answer_that_breaks_off_is_no_answer(name: str, server: ProviderServer, politely: bool) -> None:
    error = await failure(name, server, BreakOff(Say("It will rain in"), politely=politely))
    assert error.retryable
    assert "{" not in str(error)


async def test_an_error_in_the_middle_of_an_answer_is_told(name: str, server: ProviderServer) -> None:
    error = await failure(name, server, BreakOff(Say("It will rain in"), error="Too many questions."))
    assert error.retryable
    assert "Too many questions." in str(error)


async def test_a_server_that_is_not_there_is_worth_retrying(
    name: str, server: ProviderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.__aexit__()
    error = await failure(name, server, "never said")
    assert error.retryable
    assert str(error).startswith("The connection to ")


@pytest.mark.parametrize("name", ["openai-chat:gpt-4o", "anthropic:claude-haiku-5-5"], indirect=True)
async def test_an_answer_withheld_by_a_filter_is_not_retried(name: str, server: ProviderServer) -> None:
    reason = "refusal" if name.startswith("anthropic") else "content_filter"
    error = await failure(name, server, Say("", why=reason))
    assert not error.retryable
    assert "withheld" in str(error)


@pytest.mark.parametrize("name", ["anthropic:claude-haiku-5-5"], indirect=True)
async def test_an_answer_that_is_only_paused_is_no_answer(name: str, server: ProviderServer) -> None:
    error = await failure(name, server, Say("One moment", why="pause_turn"))
    assert str(error) == "anthropic broke off in the middle of its answer."
    assert error.retryable


async def test_a_failed_model_answers_again(name: str, server: ProviderServer) -> None:
    model = open_model(name)
    server.replies += [Fail(500), BreakOff(Say("It will")), "Here I am."]
    for _ in range(2):
        with pytest.raises(ModelError):
            await ask(model, question("Hi"))
    assert (await ask(model, question("Hi"))).reply.text == "Here I am."


@pytest.mark.parametrize("kept", [True, False])
async def test_many_completions_at_a_time(name: str, server: ProviderServer, kept: bool) -> None:
    server.answering = lambda body: "Yes"
    model = open_model(name)
    async with kept_open(model) if kept else contextlib.nullcontext():
        replies = await asyncio.gather(*(ask(model, question(f"Number {number}")) for number in range(20)))
    assert {asked.reply.text for asked in replies} == {"Yes"}
    assert len(server.requests) == 20


async def test_a_completion_can_be_called_off(name: str, server: ProviderServer) -> None:
    began = asyncio.Event()

    def say(body: dict[str, Any]) -> Say:
        began.set()
        return Say("word " * 50_000)

    server.answering = say
    task = asyncio.create_task(ask(open_model(name), question("Hi")))
    async with asyncio.timeout(PATIENCE):
        await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
