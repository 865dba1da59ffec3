"""/openapi.json says what is so: every route is in it, and every answer is as it says."""

import re
from typing import Any

import jsonschema_rs
import pytest
from openapi_pydantic.v3.v3_1 import OpenAPI

from rapkit.http.authentication import Callers
from rapkit.runtime.api import api_routes, openapi
from tests.runtime.agents import RunningAgent, call, please
from tests.runtime.api.client import Api, Client, Sse, nobody, serving_api
from tests.runtime.foreign_toolset import ANSWER, ForeignToolset
from tests.server.served_toolset import Reply


class Description:
    """The document, as somebody uses it who has nothing else."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document

    def _check(self, schema: dict[str, Any], value: object) -> None:
        whole = {**schema, "components": self.document["components"]}
        jsonschema_rs.validator_for(whole).validate(value)

    def check(self, method: str, path: str, reply: Reply) -> None:
        """Whether an answer is one of those described."""
        responses = self.document["paths"][path][method.lower()]["responses"]
        assert str(reply.status) in responses, (method, path, reply.status)
        content = responses[str(reply.status)]["content"][reply.headers["content-type"]]
        self._check(content["schema"], reply.json)

    def check_event(self, event: Sse) -> None:
        """Whether an event is one of those described."""
        answer = self.document["paths"]["/v1/threads/{thread_id}/events"]["get"]["responses"]["200"]
        self._check(answer["content"]["text/event-stream"]["x-events"][event.name], event.data)


async def _described(client: Client) -> Description:
    reply = await client.get("/openapi.json")
    assert reply.status == 200
    return Description(reply.json)


async def test_it_is_an_openapi_document(client: Client) -> None:
    document = (await _described(client)).document

    OpenAPI.model_validate(document)
    assert document["openapi"] == "3.1.0"
    for schema in document["components"]["schemas"].values():
        jsonschema_rs.meta.validate(schema)


async def test_every_route_is_in_it(api: Api, client: Client) -> None:
    document = (await _described(client)).document
    routes = api_routes(lambda: api.threads, nobody, Callers({}), 1000)

    assert {route.path for route in routes} == set(document["paths"])
    for path, methods in document["paths"].items():
        concrete = re.sub(r"{\w+}", "x", path)
        reply = await client.request("PATCH", concrete)
        assert reply.status == 405
        assert {method.upper() for method in methods} == set(reply.headers["allow"].split(", "))


async def test_every_reference_leads_somewhere(client: Client) -> None:
    document = (await _described(client)).document
    references = set(re.findall(r"#/components/schemas/(\w+)", str(document)))

    assert references <= set(document["components"]["schemas"])
    assert {"ThreadDetail", "ModelSaid", "Problem", "NewThread"} <= references


async def test_real_answers_are_as_it_says(agent: RunningAgent, stranger: ForeignToolset) -> None:
    client = Client(agent.port)
    description = await _described(client)
    one = "/v1/threads/{thread_id}"
    made = await client.post("/v1/threads", {"text": '[["work", {"n": 1}]]', "user_id": "u"})
    description.check("POST", "/v1/threads", made)
    thread = made.headers["location"]
    invocation = await stranger.invoked()
    await invocation.view("progress", {"done": [1, None]})
    await invocation.oauth("https://provider.example/authorize")
    await invocation.choice("Really?", ["yes", "no"], 1, f"{stranger.url}{ANSWER}/1")
    async with client.events(thread) as stream:
        events = await stream.until("choice")
        description.check("GET", one, await client.get(thread))
        path = f"{one}/calls/{{call_id}}/choice"
        reply = await client.post(f"{thread}/calls/{invocation.id}/choice", {"selected": 0})
        description.check("POST", path, reply)
        await invocation.result("done", content=[{"type": "text", "text": "done"}], display_as=[{"type": "new"}])
        events += await stream.until("status", lambda data: data["status"] == "idle")
        description.check("POST", f"{one}/messages", await client.post(f"{thread}/messages", {"text": "hi"}))
        await agent.quiet()
        description.check("POST", f"{one}/close", await client.post(f"{thread}/close"))
        events += await stream.rest()
    for event in (*events, Sse("delta", None, {"text": "piece"}), Sse("reset", None, {})):
        description.check_event(event)
    assert {event.name for event in events} >= {"entry", "status", "choice", "oauth", "view"}
    description.check("GET", f"{one}/history", await client.get(f"{thread}/history"))
    description.check("GET", "/v1/threads", await client.get("/v1/threads"))
    description.check("GET", f"{one}/family", await client.get(f"{thread}/family"))


async def test_real_answers_about_families_questions_and_budgets_are_as_it_says(agent: RunningAgent) -> None:
    client = Client(agent.port)
    description = await _described(client)
    one = "/v1/threads/{thread_id}"
    thread = await client.begin(
        please(
            call("spawn_thread", task="look at Oslo"),
            call("sleep", seconds=3600),
            call("ask_user", question="Which?", choices=["red"]),
        )
    )
    async with client.events(thread) as stream:
        events = await stream.until("choice")
        call_id = events[-1].data["call_id"]
        events += await stream.until("entry", lambda entry: entry["kind"] == "report")
        description.check("GET", one, await client.get(thread))
        family = await client.get(f"{thread}/family")
        description.check("GET", f"{one}/family", family)
        assert [child["task"] for child in family.json["children"]] == ["look at Oslo"]
        reply = await client.post(f"{thread}/calls/{call_id}/answer", {"text": "blue"})
        assert reply.status == 202
        description.check("POST", f"{one}/calls/{{call_id}}/answer", reply)
        description.check("POST", f"{one}/budget", await client.post(f"{thread}/budget", {"slices": 1, "cost": 0.5}))
        events += await stream.until("entry", lambda entry: entry["kind"] == "granted")
        await agent.quiet()
        child = f"/v1/threads/{family.json['children'][0]['thread_id']}"
        await client.post(f"{child}/close")
        events += await stream.until("entry", lambda entry: entry["kind"] == "child_closed")
    for event in events:
        description.check_event(event)
    for each in (thread, child):
        description.check("GET", f"{one}/history", await client.get(f"{each}/history"))


async def test_real_problems_are_as_it_says(agent: RunningAgent) -> None:
    client = Client(agent.port)
    description = await _described(client)
    one = "/v1/threads/{thread_id}"
    talk = await agent.doing(call("unknown_tool"))
    await client.post("/v1/threads", {}, key="k")
    for method, path, reply in (
        ("POST", "/v1/threads", await client.post("/v1/threads", {"user_id": 1})),
        ("POST", "/v1/threads", await client.post("/v1/threads", {"user_id": "u"}, key="k")),
        ("POST", "/v1/threads", await client.request("POST", "/v1/threads", b"{}", {"Content-Type": "text/plain"})),
        ("GET", "/v1/threads", await client.request("GET", "/v1/threads", headers={"Host": "evil.example"})),
        ("GET", one, await client.get("/v1/threads/none")),
        ("POST", f"{one}/calls/{{call_id}}/cancel", await client.post(f"/v1/threads/{talk.id}/calls/none/cancel")),
        ("GET", f"{one}/family", await client.get("/v1/threads/none/family")),
        ("POST", f"{one}/calls/{{call_id}}/answer", await client.post(f"/v1/threads/{talk.id}/calls/none/answer", {})),
        (
            "POST",
            f"{one}/calls/{{call_id}}/answer",
            await client.post(f"/v1/threads/{talk.id}/calls/none/answer", {"text": "x"}),
        ),
        ("POST", f"{one}/budget", await client.post(f"/v1/threads/{talk.id}/budget", {"tokens": -1})),
        ("POST", f"{one}/budget", await client.post(f"/v1/threads/{talk.id}/budget", {})),
    ):
        assert reply.status >= 400
        description.check(method, path, reply)


@pytest.mark.parametrize(
    ("name", "missing"), [("NewMessage", "text"), ("Selection", "selected"), ("AnswerInWords", "text")]
)
async def test_bodies_are_described_by_what_reads_them(client: Client, name: str, missing: str) -> None:
    schema = (await _described(client)).document["components"]["schemas"][name]

    assert schema["required"] == [missing]
    assert schema["properties"][missing]["description"]


async def test_it_is_written_once_however_many_agents_there_are(api: Api, store: str) -> None:
    openapi.encoded_document.cache_clear()

    for _ in range(3):
        api_routes(lambda: api.threads, nobody, Callers({}), 1000)
    assert openapi.encoded_document.cache_info().misses == 0  # not before somebody asks

    async with serving_api(store) as other:
        replies = [await each.client().get("/openapi.json") for each in (api, other)]
    assert openapi.encoded_document.cache_info().misses == 1
    assert replies[0].body == replies[1].body
