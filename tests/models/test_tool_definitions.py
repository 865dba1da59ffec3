"""Tools strangers offer, as real SDKs send them to servers that refuse what the real ones refuse."""

import logging
from typing import Any

import pytest

from rapkit.kernel.builtins import BUILTINS
from rapkit.kernel.completion import ModelTool
from rapkit.models import open_model
from rapkit.models.tool_names import provider_argument
from tests.models.conversations import FORECAST, answer, ask, call, heard, question, said
from tests.models.replies import Call, ProviderServer, Say

ODD = ModelTool(
    "search",
    "Search.",
    {
        "type": "object",
        "properties": {
            "$top": {"type": "integer"},
            "where": {"type": "object", "properties": {"user name": {"type": "string"}}},
        },
        "required": ["$top"],
    },
)


def offered(server: ProviderServer) -> list[dict[str, Any]]:
    """What was sent last, without OpenAI's wrapping."""
    return [tool.get("function", tool) for tool in server.requests[-1]["tools"]]


async def test_names_of_arguments_that_a_provider_refuses_are_mapped_there_and_back(
    name: str, server: ProviderServer
) -> None:
    top, user = provider_argument("$top"), provider_argument("user name")
    server.replies += [Say(calls=(Call("search", {top: 3, "where": {user: "Ada"}}),)), "Found."]
    model = open_model(name)
    (wanted,) = (await ask(model, question("Search", tools=(ODD,)))).reply.calls
    assert wanted.arguments == {"$top": 3, "where": {"user name": "Ada"}}
    made = call("c1", "search", **wanted.arguments)
    await ask(model, question("Search", said(made), heard(answer("c1", "Ada", "search")), tools=(ODD,)))
    assert "user name" not in str(server.requests[1])
    assert user in str({**server.requests[1], "tools": []})


@pytest.mark.parametrize(
    "argument",
    [
        {"type": "integer", "minimum": 0, "exclusiveMinimum": True},
        {"type": "array", "items": [{"type": "string"}]},
        {"type": "array"},
        {"id": "#anchor", "type": "string"},
    ],
)
async def test_a_schema_of_an_older_draft_is_taken(name: str, server: ProviderServer, argument: dict[str, Any]) -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "object",
        "properties": {"days": argument},
    }
    server.replies.append("Yes")
    await ask(open_model(name), question("Hi", tools=(ModelTool("old", "Old.", schema), FORECAST)))
    assert [tool["name"] for tool in offered(server)] == ["old", "forecast"]


async def test_a_schema_that_cannot_be_sent_is_told_and_its_arguments_are_taken(
    name: str, server: ProviderServer
) -> None:
    odd = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"a b": {"items": [{"type": "string"}]}, "c": {"$ref": "#/properties/a%20b/items/0"}},
    }
    server.replies.append(Say(calls=(Call("odd", {"a b": ["x"], "c": "y"}),)))
    (wanted,) = (await ask(open_model(name), question("Hi", tools=(ModelTool("odd", "Odd.", odd),)))).reply.calls
    assert wanted.arguments == {"a b": ["x"], "c": "y"}
    assert '"a b"' in offered(server)[0]["description"]


async def test_a_long_description_goes_on_in_the_schema(name: str, server: ProviderServer) -> None:
    server.replies.append("Yes")
    long = ModelTool("long", "begin " + "x" * 3000 + " end", {"type": "object", "description": "Their own."})
    await ask(open_model(name), question("Hi", tools=(long,)))
    (tool,) = offered(server)
    assert tool["description"].startswith("begin x")
    schema = tool.get("parameters") or tool["input_schema"]
    assert schema["description"].endswith("x end\nTheir own.")
    assert (tool["description"] + schema["description"]).count("x") == 3000


async def test_of_too_many_tools_the_last_are_left_out_and_a_person_is_told_once(
    name: str, server: ProviderServer, caplog: pytest.LogCaptureFixture
) -> None:
    many = tuple(ModelTool(f"tool_{number}", "One of many.", {"type": "object"}) for number in range(130))
    ours = tuple(builtin.tool for builtin in BUILTINS.values())
    server.answering = lambda body: "Yes"
    model = open_model(name)
    with caplog.at_level(logging.WARNING, "rapkit"):
        for _ in range(2):
            await ask(model, question("Hi", tools=(*many, *ours)))
    names = [tool["name"] for tool in offered(server)]
    assert names == [tool.name for tool in (*ours, *many)][:128]
    (warning,) = caplog.messages
    assert f"Left out are {2 + len(ours)}: tool_{128 - len(ours)}, " in warning


async def test_a_call_of_a_tool_that_was_not_offered_is_passed_on(name: str, server: ProviderServer) -> None:
    server.replies.append(Say(calls=(Call("nobody", {"a": 1}),)))
    (wanted,) = (await ask(open_model(name), question("Hi"))).reply.calls
    assert (wanted.name, wanted.arguments) == ("nobody", {"a": 1})
