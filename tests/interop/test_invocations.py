"""How our tool server takes invocations from runtimes that were written by others."""

import http.client
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.interop.conftest import Join, Serve
from tests.interop.foreign_runtime import ForeignRuntime
from tests.interop.http_peer import PATIENCE, Json, eventually

TOOLS = """
    from rapkit import Context, Toolset

    tools = Toolset("desk")

    @tools.tool(read_only=True)
    async def greet(name: str = "you", ctx: Context = None) -> str:
        return f"Hello, {name}, from {ctx.user_id}."

    @tools.tool
    async def wait(what: str, ctx: Context) -> str:
        await ctx.choose(f"Go on with {what}?", ["yes"], default="yes")
        return what

    @tools.subscription(associative=True)
    async def watch(what: str, ctx: Context):
        yield f"{what} 1"
        await ctx.sleep(3600)
"""


def by_text(message: Json) -> str:
    return str(message["text"])


def test_the_same_id_with_other_contents_is_answered(serve: Serve, join: Join) -> None:
    """Item 2: a runtime whose model says `call_0` every turn gets a result for each call, and one for a repeated one."""
    runtime = join(ForeignRuntime(serve(TOOLS).url))

    for name in ("Ada", "Bob", "Ada"):
        runtime.call("greet", {"name": name}, id="call_0")
    runtime.call("nothing", id="call_0")
    results = runtime.callbacks("tool_result", 3)
    last = runtime.result_of(runtime.call("greet", {"name": "last"}))

    assert {message["id"] for message in results} == {"call_0"}
    assert sorted(by_text(each)[:10] for each in results) == ["Error: the", "Hello, Ada", "Hello, Bob"]
    assert by_text(last).startswith("Hello, last")
    assert len(runtime.callbacks("tool_result")) == 4


def test_a_cancel_concerns_every_call_with_its_ids(serve: Serve, join: Join) -> None:
    """Item 2: two subscriptions and two suspended calls under one id all end with one notice."""
    runtime = join(ForeignRuntime(serve(TOOLS).url))
    for what in ("a", "b"):
        runtime.call("wait", {"what": what}, id="call_0")
        runtime.call("watch", {"what": what}, id="call_0")
    questions = runtime.callbacks("user_choice", 2)
    runtime.callbacks("subscription_event", 2)

    assert runtime.cancel({"group_id": "thread-1", "id": "call_0"}) == 200

    cancelled = runtime.callbacks("tool_result", 2, lambda message: "Cancelled" in by_text(message))
    assert [by_text(each) for each in cancelled] == ["Error: Cancelled."] * 2
    for question in questions:
        path = question["response_url"].removeprefix(runtime.server)
        assert runtime.send(path, {"id": "call_0", "selected": 0})[0] in (404, 410)


def test_a_cancel_that_comes_first_concerns_every_call_with_its_ids(serve: Serve, join: Join) -> None:
    """Item 2: the tombstone is about the ids, whatever the calls contain."""
    runtime = join(ForeignRuntime(serve(TOOLS).url))

    assert runtime.cancel({"group_id": "thread-1", "id": "call_0"}) == 200
    for name in ("Ada", "Bob"):
        runtime.call("greet", {"name": name}, id="call_0")

    assert [by_text(each) for each in runtime.callbacks("tool_result", 2)] == ["Error: Cancelled."] * 2


def test_each_of_two_questions_under_one_id_has_its_own_answer(serve: Serve, join: Join) -> None:
    """Item 2: the answer to one call's question does not wake another call with the same ids."""
    runtime = join(ForeignRuntime(serve(TOOLS).url))
    for what in ("a", "b"):
        runtime.call("wait", {"what": what}, id="call_0")
    questions = {each["prompt"]: each for each in runtime.callbacks("user_choice", 2)}
    assert sorted(questions) == ["Go on with a?", "Go on with b?"]

    path = questions["Go on with b?"]["response_url"].removeprefix(runtime.server)
    assert runtime.send(path, {"id": "call_0", "selected": 0})[0] == 200

    assert [by_text(each) for each in runtime.callbacks("tool_result", 1)] == ["b"]


def test_a_repeated_call_is_recognised_after_a_kill(serve: Serve, join: Join) -> None:
    """Item 2: the identity of a call is on disk, and does not depend on the order of keys or the form of numbers."""
    server = serve(TOOLS)
    runtime = join(ForeignRuntime(server.url))
    call = runtime.call("greet", {"name": "Ada", "extra": 1})
    runtime.result_of(call)
    server.kill()
    server.start()

    again = json.dumps({**call, "arguments": {"extra": 1.0, "name": "Ada"}, "call_id": "other"})
    assert runtime.send("/invoke", again.encode())[0] == 200
    runtime.result_of(runtime.call("greet"))

    assert len(runtime.callbacks("tool_result", where=lambda message: message["id"] == call["id"])) == 1


def test_missing_arguments_and_integer_fields_are_taken(serve: Serve, join: Join) -> None:
    """Item 12: null and absent arguments are `{}`; an integer `user_id` is that user; other unusable optional fields are ignored."""
    runtime = join(ForeignRuntime(serve(TOOLS).url))
    null = runtime.call("greet", id="null", user_id=7)
    runtime.send(
        "/invoke", {**runtime.invocation("greet"), "id": "odd", "arguments": None, "user_id": [], "call_id": {}}
    )
    absent = {
        **runtime.invocation("greet"),
        "id": "absent",
        "user_id": "7",
        "thread_ancestors": 3,
        "toolset_version": {},
    }
    del absent["arguments"]
    assert runtime.send("/invoke", absent)[0] == 200

    assert by_text(runtime.result_of(null)) == "Hello, you, from 7."
    assert by_text(runtime.result_of(absent)) == "Hello, you, from 7."
    assert by_text(runtime.result_of({"id": "odd"})).startswith("Hello, you, from ")


def test_past_its_rate_a_caller_is_asked_to_come_back(serve: Serve, join: Join) -> None:
    """Item 14: 503 with Retry-After, never 429, and nothing is taken."""
    server = serve(TOOLS, ["--rate", "0.001"])
    runtime = join(ForeignRuntime(server.url))
    runtime.result_of(runtime.call("greet"))

    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", "/invoke", json.dumps(runtime.invocation("greet")))
    answer = connection.getresponse()
    connection.close()

    assert answer.status == 503
    assert int(answer.headers["Retry-After"]) > 0


@pytest.mark.parametrize("allowed", [False, True])
@pytest.mark.parametrize("side", ["serve", "up"])
def test_secret_urls_are_not_handed_out_in_clear(tmp_path: Path, side: str, allowed: bool) -> None:
    """Item 14 · TRA-2: a plain HTTP address that is not loopback is refused by name of the setting, and with it a warning."""
    (tmp_path / "tools.py").write_text(textwrap.dedent(TOOLS))
    (tmp_path / "plan.yaml").write_text("- say: Fine.\n")
    words = ["serve", "tools.py"] if side == "serve" else ["up", "--model", "scripted:plan.yaml"]
    words += ["--port", "0", "--token", "a-token-of-some-length", "--public-url", "http://192.0.2.1:8000"]
    with (tmp_path / "log").open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "rapkit", *words, *(["--allow-plain-http"] if allowed else [])],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        if allowed:
            eventually(lambda: "kept in" in (tmp_path / "log").read_text())
            child.terminate()
        status = child.wait(PATIENCE)
    finally:
        child.kill()
        child.wait(PATIENCE)

    said = (tmp_path / "log").read_text()
    assert "http://192.0.2.1:8000 is plain HTTP" in said
    assert "allow_plain_http" in said
    assert (status == 0) == allowed, said
