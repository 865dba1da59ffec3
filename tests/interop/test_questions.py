"""Questions of our server to a runtime that does not take them."""

import pytest

from tests.interop.conftest import Join, Serve
from tests.interop.foreign_runtime import ForeignRuntime
from tests.interop.http_peer import Answer, Received, post

TOOLS = """
    from rapkit import Context, OAuthProvider, ToolError, Toolset

    acme = OAuthProvider(
        "acme",
        authorize_url="https://acme.example/authorize",
        token_url="https://acme.example/token",
        client_id="us",
        client_secret="not-a-secret",
    )
    tools = Toolset("tools", oauth=[acme])

    @tools.tool
    async def ask(ctx: Context) -> str:
        return await ctx.choose("Well?", ["Yes", "No"])

    @tools.tool
    async def authorise(ctx: Context) -> str:
        return await ctx.oauth("acme")

    @tools.tool
    async def persist(ctx: Context) -> str:
        try:
            return await ctx.choose("Refused?", ["Yes", "No"])
        except ToolError:
            return await ctx.choose("Well?", ["Yes", "No"])
"""


def refusing(request: Received) -> Answer:
    """A runtime that knows neither choices nor consent."""
    asked = request.json["type"] == "oauth" or "prompt" in request.json
    return Answer(400, b"unknown type") if asked else Answer()


@pytest.mark.parametrize("operation", ["ask", "authorise"])
def test_a_call_does_not_hang_on_a_question_that_was_refused(operation: str, serve: Serve, join: Join) -> None:
    """Item 6: the handler gets an error, and the call a result."""
    runtime = join(ForeignRuntime(serve(TOOLS).url, answers=refusing))

    call = runtime.call(operation)

    text = runtime.result_of(call)["text"]
    assert text.startswith("Error: ")
    assert "did not reach the user" in text


def test_a_late_answer_to_a_refused_question_is_told_so(serve: Serve, join: Join) -> None:
    """Item 6: 410 to the answer, which the runtime must not send again; the next question is asked and answered, through a crash too."""

    def answers(request: Received) -> Answer:
        return Answer(422) if request.json.get("prompt") == "Refused?" else Answer()

    server = serve(TOOLS)
    runtime = join(ForeignRuntime(server.url, answers=answers))
    call = runtime.call("persist")
    refused, asked = runtime.callbacks("user_choice", 2)

    assert post(refused["response_url"], {"id": call["id"], "selected": 0})[0] == 410
    server.kill()
    server.start()
    assert post(refused["response_url"], {"id": call["id"], "selected": 0})[0] == 410
    assert post(asked["response_url"], {"id": call["id"], "selected": 1})[0] == 200

    assert runtime.result_of(call)["text"] == "No"
    # Perhaps delivered twice: the server may have been killed before it had stored the runtime's 200.
    prompts = [message["prompt"] for message in runtime.callbacks("user_choice")]
    assert list(dict.fromkeys(prompts)) == ["Refused?", "Well?"]
