"""Talking to threads: messages, closing, cancelling, answering questions; and what is said when that is not possible."""

from dataclasses import replace

import pytest

from rapkit.kernel.entries import ChoiceAsked
from rapkit.kernel.thread import OpenChoice, Pending, Thread, dump_thread
from rapkit.mailbox import NewBox
from rapkit.runtime.toolsets import THREAD
from tests.runtime.agents import RunningAgent, call
from tests.runtime.api.client import LARGEST, Api, Client
from tests.runtime.foreign_toolset import ANSWER, CANCEL, CLOSE, ForeignToolset, Invocation
from tests.server.served_toolset import failing


async def test_a_message_becomes_an_entry_with_the_id_it_was_taken_under(agent: RunningAgent) -> None:
    client = Client(agent.port)
    thread = await client.begin()

    reply = await client.post(f"{thread}/messages", {"text": "hello", "unknown": "fields are ignored"})

    assert reply.status == 202
    async with client.events(thread) as stream:
        *_, entry = await stream.until("entry")
    assert (entry.data["kind"], entry.data["id"]) == ("user", reply.json["message_id"])


async def test_who_writes_to_a_closed_thread_is_told_so(agent: RunningAgent, stranger: ForeignToolset) -> None:
    """Semantics 11."""
    client = Client(agent.port)
    thread = await client.begin()
    assert (await client.post(f"{thread}/close")).status == 202
    await stranger.received(CLOSE)

    reply = await client.post(f"{thread}/messages", {"text": "are you there?"})

    assert reply.status == 409
    assert "is closed" in reply.detail
    assert "new one" in reply.detail
    assert (await client.look(thread))["status"] == "closed"
    assert (await client.post(f"{thread}/calls/c/cancel")).status == 409
    assert (await client.post(f"{thread}/calls/c/choice", {"selected": 0})).status == 409
    assert (await client.post(f"{thread}/calls/c/answer", {"text": "yes"})).status == 409
    assert (await client.post(f"{thread}/budget", {"slices": 1})).status == 409


async def test_closing_twice_is_closing_once(agent: RunningAgent) -> None:
    client = Client(agent.port)
    thread = await client.begin()

    assert [(await client.post(f"{thread}/close")).status for _ in range(2)] == [202, 202]

    async with client.events(thread) as stream:
        events = await stream.rest()
    assert [event.data["kind"] for event in events if event.name == "entry"] == ["closed"]
    assert (await client.post(f"{thread}/close")).status == 202


async def test_a_pending_call_is_cancelled(agent: RunningAgent, stranger: ForeignToolset) -> None:
    client = Client(agent.port)
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()

    reply = await client.post(f"/v1/threads/{talk.id}/calls/{invocation.id}/cancel")

    assert reply.status == 202
    await stranger.received(CANCEL)
    assert "ancel" in ((await talk.answered(invocation.id)).text or "")


async def test_a_call_that_is_not_there_is_not_found(agent: RunningAgent, stranger: ForeignToolset) -> None:
    client = Client(agent.port)
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()

    cancel = await client.post(f"/v1/threads/{talk.id}/calls/call_unknown/cancel")
    choice = await client.post(f"/v1/threads/{talk.id}/calls/call_unknown/choice", {"selected": 0})

    assert (cancel.status, choice.status) == (404, 404)
    assert invocation.id in cancel.detail  # it says which there are


async def _asked(agent: RunningAgent, stranger: ForeignToolset, *prompts: str) -> tuple[Client, str, Invocation]:
    """A call that has asked these questions."""
    client = Client(agent.port)
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()
    for prompt in prompts:
        assert (await invocation.choice(prompt, ["yes", "no"], 1, f"{stranger.url}{ANSWER}/{prompt}")).status == 200
    thread = f"/v1/threads/{talk.id}"
    async with client.events(thread) as stream:
        for _ in prompts:
            await stream.until("entry", lambda entry: entry["kind"] == "choice")
    return client, thread, invocation


@pytest.mark.parametrize(("selected", "sent"), [(0, 0), (None, 1)])
async def test_a_question_is_shown_and_answered_or_dismissed(
    agent: RunningAgent, stranger: ForeignToolset, selected: int | None, sent: int
) -> None:
    """CHO-1."""
    client, thread, invocation = await _asked(agent, stranger, "really")
    (question,) = (await client.look(thread))["choices"]
    assert question.pop("asked_at") > 0
    assert question == {
        "call_id": invocation.id,
        "prompt": "really",
        "choices": ["yes", "no"],
        "default": 1,
        "in_words": False,
    }

    reply = await client.post(f"{thread}/calls/{invocation.id}/choice", {"selected": selected})

    assert reply.status == 202
    (answered,) = await stranger.received(f"{ANSWER}/really")
    assert answered.message["selected"] == sent
    assert (await client.look(thread))["choices"] == []


async def test_of_two_answers_to_one_question_only_one_is_taken(api: Api, client: Client) -> None:
    """While the first still waits in the mail: the second must not be taken for an answer to the question that is asked next."""
    question = OpenChoice("really", ("yes", "no"), 1, "http://127.0.0.1:1/answer", "http://127.0.0.1:1", 1.0)
    pending = Pending("work", {}, "http://127.0.0.1:1", "work", 1.0)
    thread = Thread("thr_1", pending={"c": pending}, choices={"c": (question, replace(question, asked_at=2.0))})
    await api.store.create(NewBox(thread.id, THREAD, dump_thread(thread), root=thread.id, idle=True))

    first, second = [
        await client.post("/v1/threads/thr_1/calls/c/choice", {"selected": selected}) for selected in (0, 1)
    ]

    assert (first.status, second.status) == (202, 409)
    assert "answered already" in second.detail


@pytest.mark.parametrize("selected", [2, -1, 10**30])
async def test_a_choice_that_there_is_not_is_refused(
    agent: RunningAgent, stranger: ForeignToolset, selected: int
) -> None:
    client, thread, invocation = await _asked(agent, stranger, "really")

    reply = await client.post(f"{thread}/calls/{invocation.id}/choice", {"selected": selected})

    assert reply.status == 400
    assert "0 to 1" in reply.detail
    assert len((await client.look(thread))["choices"]) == 1


async def test_a_tools_question_is_not_answered_in_words(agent: RunningAgent, stranger: ForeignToolset) -> None:
    """CHO-1: it gets the number of one of its choices, or its default."""
    client, thread, invocation = await _asked(agent, stranger, "really")

    reply = await client.post(f"{thread}/calls/{invocation.id}/answer", {"text": "yes, but"})

    assert reply.status == 409
    assert "is answered with one of its choices, not in words" in reply.detail
    assert len((await client.look(thread))["choices"]) == 1


async def test_a_question_without_choices_is_not_answered_with_the_number_of_one(agent: RunningAgent) -> None:
    client = Client(agent.port)
    talk = await agent.doing(call("ask_user", question="What is your name?"))
    asked = await talk.until(ChoiceAsked)
    path = f"/v1/threads/{talk.id}/calls/{asked.call_id}"

    reply = await client.post(f"{path}/choice", {"selected": 0})

    assert reply.status == 400
    assert reply.detail == "body.selected: This question has no choices. Answer it in words, or dismiss it."
    assert (await client.post(f"{path}/choice", {"selected": None})).status == 202
    await talk.hears("heard: The user dismissed the question and gave no answer.")


async def test_a_call_that_there_is_not_is_not_answered_in_words(client: Client) -> None:
    reply = await client.post(f"{await client.begin()}/calls/call_9/answer", {"text": "Ann"})

    assert reply.status == 404
    assert "'call_9' is no pending call or active subscription of this thread" in reply.detail


async def test_a_call_without_a_question_cannot_be_answered(agent: RunningAgent, stranger: ForeignToolset) -> None:
    client = Client(agent.port)
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()

    reply = await client.post(f"/v1/threads/{talk.id}/calls/{invocation.id}/choice", {"selected": 0})

    assert reply.status == 409
    assert "No question" in reply.detail


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("messages", b"{", "body: not JSON"),
        ("messages", b"\xff", "body"),
        ("messages", b'"text"', "body: a string, must be an object"),
        ("messages", b"{}", "body.text: missing; it is what to say"),
        ("messages", b'{"text": 1}', "body.text: a number, must be a string"),
        ("messages", b'{"text": ""}', "body.text: empty"),
        ("messages", b'{"text": " \\n"}', "body.text: blank"),
        ("messages", b'{"text": "\\ud800"}', "body"),
        ("calls/c/choice", b"{}", "body.selected: missing"),
        ("calls/c/choice", b'{"selected": true}', "body.selected: a boolean, must be an integer"),
        ("calls/c/choice", b'{"selected": 1.5}', "body.selected: a number, must be an integer"),
        ("calls/c/answer", b"{}", "body.text: missing; it is the answer"),
        ("calls/c/answer", b'{"text": " "}', "body.text: blank"),
        ("calls/c/answer", b'{"selected": 1}', "body.text: missing"),
        ("budget", b"{}", "body: grants nothing, but it must grant slices, tokens or cost"),
        ("budget", b'{"slices": 0}', "body: grants nothing, but it must grant slices, tokens or cost"),
        ("budget", b'{"slices": -1}', "body.slices"),
        ("budget", b'{"slices": 1.5}', "body.slices"),
        ("budget", b'{"tokens": "many"}', "body.tokens"),
        ("budget", b'{"cost": -0.5}', "body.cost"),
        ("budget", b'{"cost": NaN}', "body"),
        ("budget", b'{"cost": 1e400}', "body"),
        ("budget", b'{"tokens": 1e400}', "body"),
    ],
)
async def test_what_is_wrong_with_a_body_is_said(client: Client, path: str, body: bytes, says: str) -> None:
    reply = await client.request("POST", f"{await client.begin()}/{path}", body)

    assert reply.status == 400
    assert says in reply.detail


@pytest.mark.parametrize("user_id", ["", "x" * 513, "a\nb", 7])
async def test_a_user_id_that_tools_could_not_be_told_is_refused(client: Client, user_id: object) -> None:
    reply = await client.post("/v1/threads", {"user_id": user_id})

    assert reply.status == 400
    assert "body.user_id" in reply.detail


async def test_a_user_id_that_is_no_text_is_refused(client: Client) -> None:
    reply = await client.request("POST", "/v1/threads", b'{"user_id": "\\ud800"}')

    assert reply.status == 400


async def test_a_body_that_is_too_large_is_refused(client: Client) -> None:
    reply = await client.post("/v1/threads", {"text": "x" * LARGEST})

    assert reply.status == 413


async def test_a_body_that_does_not_say_it_is_json_is_refused(client: Client) -> None:
    """So that no web page can make a browser send one without asking first."""
    reply = await client.request("POST", "/v1/threads", b"{}", {"Content-Type": "text/plain"})

    assert reply.status == 415


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("PUT", "/v1/threads", "POST, GET"), ("GET", "/v1/threads/t/close", "POST"), ("POST", "/openapi.json", "GET")],
)
async def test_a_method_that_is_not_possible_is_refused(client: Client, method: str, path: str, allowed: str) -> None:
    reply = await client.request(method, path)

    assert reply.status == 405
    assert reply.headers["allow"] == allowed
    assert reply.json["title"] == "Method Not Allowed"


async def test_what_cannot_be_stored_is_not_acknowledged(store: str, client: Client) -> None:
    thread = await client.begin()
    with failing(store, "INSERT", "mail"):
        reply = await client.post(f"{thread}/messages", {"text": "hello"}, key="k")

    assert reply.status == 503
    assert int(reply.headers["retry-after"]) > 0
    assert "disk failure" not in reply.detail
    assert (await client.post(f"{thread}/messages", {"text": "hello"}, key="k")).status == 202


async def test_an_unknown_thread_takes_nothing(client: Client) -> None:
    for path, body in (
        ("messages", {"text": "x"}),
        ("close", None),
        ("calls/c/cancel", None),
        ("calls/c/answer", {"text": "x"}),
        ("budget", {"slices": 1}),
    ):
        for key in (None, "k"):
            reply = await client.post(f"/v1/threads/thr_unknown/{path}", body, key=key)
            assert reply.status == 404, path
