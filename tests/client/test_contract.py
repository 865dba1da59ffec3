"""The client knows all of the API and nothing else: every route, every field of every answer, every kind of entry and event.

The agent's OpenAPI document is compared with the client's classes, in both directions; and real answers are read and compared with what was
made of them.
"""

import dataclasses
import inspect
import json
import types
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

from rapkit import Client
from rapkit.client import (
    ActiveSubscription,
    AgentDetail,
    Authorization,
    Awaits,
    ClientThread,
    Entry,
    EntryPage,
    FeedEvent,
    MissingToolset,
    OpenQuestion,
    PendingCall,
    Relative,
    Status,
    ThreadBudget,
    ThreadDetail,
    ThreadPage,
    ThreadSummary,
    UnknownEntry,
    UnknownEvent,
    Usage,
    Used,
    entries,
)
from rapkit.client.decode import decode, decode_union
from rapkit.client.models import AcceptedMessage, CreatedThread
from rapkit.client.transport import Transport
from rapkit.runtime.api.openapi import describe
from rapkit.runtime.api.operations import OPERATIONS
from tests.runtime.agents import RunningAgent, call, please
from tests.runtime.api.client import Client as BareClient
from tests.runtime.foreign_toolset import ANSWER, ForeignToolset
from tests.server.sink import Sink, answer

DOCUMENT = describe(OPERATIONS, "/openapi.json")
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
ROUTES = [
    (method.upper(), path)
    for path, methods in DOCUMENT["paths"].items()
    if path != "/openapi.json"
    for method in methods
]

ANSWERS: dict[str, type[Any]] = {
    "AgentDetail": AgentDetail,
    "ThreadMade": CreatedThread,
    "MessageTaken": AcceptedMessage,
    "ThreadSummary": ThreadSummary,
    "ThreadPage": ThreadPage,
    "ThreadDetail": ThreadDetail,
    "Relative": Relative,
    "PendingCall": PendingCall,
    "ActiveSubscription": ActiveSubscription,
    "OpenQuestion": OpenQuestion,
    "Authorization": Authorization,
    "Used": Used,
    "ThreadBudget": ThreadBudget,
    "MissingToolset": MissingToolset,
    "Usage": Usage,
    "EntryPage": EntryPage,
}
"""The schemas of answers, with the classes they are read as."""

KNOWN_ENTRIES = [each for each in get_args(Entry) if each is not UnknownEntry]


# Routes

Doing = Callable[[Client], Any]
QUESTION = OpenQuestion("call_id", "Really?", ["yes", "no"], None, True, 17.5)
METHODS: dict[tuple[str, str], list[Doing]] = {
    ("GET", "/v1/agent"): [lambda c: c.agent()],
    ("POST", "/v1/threads"): [lambda c: c.create_thread("x", user_id="u")],
    ("GET", "/v1/threads"): [
        lambda c: c.threads_page(status="idle", parent="p", limit=5, cursor="c"),
        lambda c: anext(aiter(c.threads(status="idle", parent="p", page_size=5))),
    ],
    ("GET", "/v1/threads/{thread_id}"): [lambda c: c.thread("thread_id").get()],
    ("GET", "/v1/threads/{thread_id}/family"): [lambda c: c.thread("thread_id").family()],
    ("GET", "/v1/threads/{thread_id}/history"): [
        lambda c: c.thread("thread_id").history_page(cursor=3, limit=5),
        lambda c: anext(aiter(c.thread("thread_id").history(after=3, page_size=5))),
    ],
    ("GET", "/v1/threads/{thread_id}/events"): [lambda c: anext(c.thread("thread_id").events("3"))],
    ("POST", "/v1/threads/{thread_id}/messages"): [lambda c: c.thread("thread_id").send("x")],
    ("POST", "/v1/threads/{thread_id}/close"): [lambda c: c.thread("thread_id").close()],
    ("POST", "/v1/threads/{thread_id}/calls/{call_id}/cancel"): [lambda c: c.thread("thread_id").cancel("call_id")],
    ("POST", "/v1/threads/{thread_id}/calls/{call_id}/choice"): [
        lambda c: c.thread("thread_id").choose(QUESTION, 1),
        lambda c: c.thread("thread_id").dismiss(QUESTION),
    ],
    ("POST", "/v1/threads/{thread_id}/calls/{call_id}/answer"): [lambda c: c.thread("thread_id").answer(QUESTION, "x")],
    ("POST", "/v1/threads/{thread_id}/budget"): [lambda c: c.thread("thread_id").grant(slices=1, tokens=2, cost=0.5)],
}
"""What each route is asked for with."""

COMPOSED = {"ask", "thread", "url"}
"""What makes no request of its own."""


@pytest.mark.parametrize("route", ROUTES, ids=" ".join)
async def test_every_route_has_a_method_that_sends_all_it_takes(sink: Sink, route: tuple[str, str]) -> None:
    method, path = route
    described = DOCUMENT["paths"][path][method.lower()]
    sink.otherwise = answer(404)
    async with Client(sink.url) as client:
        for doing in METHODS[route]:
            with pytest.raises(Exception, match="404"):
                await doing(client)

    sent_query: set[str] = set()
    sent_body: set[str] = set()
    for post in sink.posts:
        target, _, query = post.target.partition("?")
        assert (post.method, target) == (method, path.replace("{", "").replace("}", ""))
        assert ("idempotency-key" in post.headers) == (method == "POST")
        sent_query |= {each.partition("=")[0] for each in query.split("&") if each}
        sent_body |= set(json.loads(post.body)) if post.body else set()
    parameters = {each["name"] for each in described["parameters"] if each["in"] == "query"}
    body = described.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    assert sent_query == parameters - {"cursor", "last_event_id"} | (sent_query & {"cursor"})
    assert "cursor" not in parameters or "cursor" in sent_query
    assert sent_body == set(_schema(body).get("properties", ())) if body else sent_body == set()


def test_every_method_is_for_a_route_of_the_api() -> None:
    assert set(METHODS) == set(ROUTES)
    used = {name for each in METHODS.values() for doing in each for name in doing.__code__.co_names}
    public = {
        name
        for owner in (Client, ClientThread)
        for name, member in vars(owner).items()
        if name[0] != "_" and (inspect.isfunction(member) or isinstance(member, property))
    }
    assert public - used - COMPOSED == set()


# Shapes


def _schema(schema: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref")
    found: dict[str, Any] = SCHEMAS[reference.rpartition("/")[2]] if reference else schema
    return found


def _entry_schemas() -> dict[str, dict[str, Any]]:
    one_of = SCHEMAS["EntryPage"]["properties"]["entries"]["items"]["oneOf"]
    return {_schema(each)["properties"]["kind"]["const"]: _schema(each) for each in one_of}


def _fields(kind: type[Any]) -> dict[str, "dataclasses.Field[Any]"]:
    return {each.name: each for each in dataclasses.fields(kind)}


def _is_required(field: "dataclasses.Field[Any]") -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _check(kind: type[Any], schema: dict[str, Any]) -> None:
    fields = _fields(kind)
    assert set(fields) == set(schema["properties"]), kind
    required = {name for name, field in fields.items() if _is_required(field)}
    # What the client insists on, every agent has to say; "kind" has chosen the class.
    assert required <= set(schema.get("required", ())), kind
    hints = get_type_hints(kind)
    for name, described in schema["properties"].items():
        assert _json_types(hints[name]) == _described_types(described), (kind, name)


def _json_types(hint: Any) -> set[str]:
    if hint is Any:
        return {"any"}
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return set().union(*(_json_types(each) for each in get_args(hint)))
    if origin is Literal:
        return {"string"}
    if origin is not None:
        return {"array" if origin is list else "object"}
    if dataclasses.is_dataclass(hint):
        return {"object"}
    return {{str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}[hint]}


def _described_types(described: dict[str, Any]) -> set[str]:
    for word in ("anyOf", "oneOf"):
        if word in described:
            return set().union(*(_described_types(each) for each in described[word]))
    if "$ref" in described:
        return _described_types(_schema(described))
    return {described["type"]} if "type" in described else {"any"}


@pytest.mark.parametrize("name", ANSWERS)
def test_every_answer_has_the_fields_that_are_described(name: str) -> None:
    _check(ANSWERS[name], SCHEMAS[name])


def test_every_answer_that_is_described_has_a_class() -> None:
    answered = set()
    for methods in DOCUMENT["paths"].values():
        for operation in methods.values():
            for status, each in operation["responses"].items():
                for content in each.get("content", {}).values():
                    if status.startswith("2") and "$ref" in content["schema"]:
                        answered |= set(_reachable(content["schema"]["$ref"].rpartition("/")[2]))
    in_entries = {each.rpartition("/")[2] for each in _references(SCHEMAS["EntryPage"])} | {
        each for name in _entry_names() for each in _reachable(name)
    }
    assert answered - in_entries - set(ANSWERS) - {"Taken"} == set()


def _entry_names() -> Iterator[str]:
    for each in SCHEMAS["EntryPage"]["properties"]["entries"]["items"]["oneOf"]:
        yield each["$ref"].rpartition("/")[2]


def _references(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref":
                yield value
            else:
                yield from _references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _references(value)


def _reachable(name: str, seen: frozenset[str] = frozenset()) -> Iterator[str]:
    if name in seen:
        return
    yield name
    for each in set(_references(SCHEMAS[name])):
        yield from _reachable(each.rpartition("/")[2], seen | {name})


def test_every_kind_of_entry_has_a_class_of_its_name_and_no_other_has() -> None:
    kinds = {get_args(get_type_hints(each)["kind"])[0]: each for each in KNOWN_ENTRIES}
    assert set(kinds) == set(_entry_schemas())
    for kind, each in kinds.items():
        assert each.__name__.lower() == kind.replace("_", "") + "entry"


@pytest.mark.parametrize("kind", _entry_schemas())
def test_every_entry_has_the_fields_that_are_described(kind: str) -> None:
    (entry,) = [each for each in KNOWN_ENTRIES if get_args(get_type_hints(each)["kind"]) == (kind,)]
    _check(entry, _entry_schemas()[kind])


@pytest.mark.parametrize(
    ("described", "kind"),
    [
        ("MadeCall", entries.MadeCall),
        ("LiveCall", entries.LiveCall),
        ("TextContent", entries.TextItem),
        ("ImageContent", entries.ImageItem),
    ],
)
def test_what_entries_are_made_of_has_the_fields_that_are_described(described: str, kind: type[Any]) -> None:
    _check(kind, SCHEMAS[described])


def test_every_event_is_known_and_has_the_fields_that_are_described() -> None:
    streams = DOCUMENT["paths"]["/v1/threads/{thread_id}/events"]["get"]["responses"]["200"]
    described = streams["content"]["text/event-stream"]["x-events"]
    kinds = {
        each.__name__.removesuffix("Event").lower(): each for each in get_args(FeedEvent) if each is not UnknownEvent
    }
    assert set(kinds) == set(described)
    for name in ("status", "view", "delta", "reset"):
        assert set(_fields(kinds[name])) - {"id"} == set(
            _schema(described[name])["properties"] if name != "reset" else ()
        )
    assert described["choice"]["$ref"].endswith("/OpenQuestion")
    assert described["oauth"]["$ref"].endswith("/Authorization")


def test_the_known_values_are_those_that_are_described() -> None:
    def known(hint: Any) -> tuple[Any, ...]:
        (literal,) = [each for each in get_args(hint) if get_origin(each) is Literal]
        return get_args(literal)

    assert list(known(Status)) == SCHEMAS["ThreadSummary"]["properties"]["status"]["enum"]
    assert list(known(Awaits)) == SCHEMAS["PendingCall"]["properties"]["awaits"]["enum"]


# Real answers


class Exact:
    """Reads answers as the client does, and compares what was read with what came: nothing may be lost, nothing made up."""

    def __init__(self) -> None:
        self.kinds: set[type[Any]] = set()

    def compare(self, read: object, came: object, where: str) -> None:
        if dataclasses.is_dataclass(read) and not isinstance(read, type):
            assert isinstance(came, dict), where
            self.kinds.add(type(read))
            fields = _fields(type(read))
            assert set(came) <= set(fields), where
            for name, field in fields.items():
                if name in came:
                    self.compare(getattr(read, name), came[name], f"{where}.{name}")
                else:  # entries leave out what has no value
                    assert getattr(read, name) is None, f"{where}.{name}"
                    assert not _is_required(field)
        elif isinstance(read, list):
            assert isinstance(came, list), where
            for number, (one, other) in enumerate(zip(read, came, strict=True)):
                self.compare(one, other, f"{where}[{number}]")
        else:
            assert read == came, where


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> Exact:
    """Has every answer that any client reads compared."""
    exact = Exact()
    read = Transport.read

    def checked(self: Transport, kind: type[Any], document: object) -> Any:
        found = read(self, kind, document)
        exact.compare(found, document, kind.__name__)
        return found

    monkeypatch.setattr(Transport, "read", checked)

    def decoded(union: Any, data: object) -> Any:
        found = decode_union(union, data)
        exact.compare(found, data, "event")
        return found

    def decoded_one(kind: type[Any], data: Any) -> Any:
        found = decode(kind, data)
        exact.compare(found, data, kind.__name__)
        return found

    monkeypatch.setattr("rapkit.client.events.decode_union", decoded)
    monkeypatch.setattr("rapkit.client.events.decode", decoded_one)
    return exact


async def _until(events: AsyncIterator[Any], kind: str, **fields: Any) -> Any:
    async for event in events:
        about = getattr(event, "entry", event)
        name = getattr(about, "kind", type(event).__name__)
        if name == kind and all(getattr(about, field) == value for field, value in fields.items()):
            return event
    raise AssertionError(f"no {kind}")


async def test_real_answers_are_read_whole(
    agent: RunningAgent, stranger: ForeignToolset, client: Client, exact: Exact
) -> None:
    await client.agent()
    thread = await client.create_thread(please(call("work", n=1)), user_id="u")
    invocation = await stranger.invoked()
    await invocation.view("progress", {"done": [1, None]})
    await invocation.oauth("https://provider.example/authorize")
    await invocation.choice("Really?", ["yes", "no"], 1, f"{stranger.url}{ANSWER}/1")
    async with thread.events() as events:
        asked = await _until(events, "ChoiceEvent")
        detail = await thread.get()
        assert detail.choices == [asked.question]
        assert [each.auth_url for each in detail.oauth] == ["https://provider.example/authorize"]
        assert detail.views == {"progress": {"done": [1, None]}}
        await thread.choose(asked.question, 0)
        content = [{"type": "text", "text": "done"}, {"type": "image", "data": "aGk=", "mediaType": "image/png"}]
        await invocation.result("done", content=content, display_as=[{"type": "text", "content": "done"}])
        await _until(events, "StatusEvent", status="idle")
        await thread.send(please(call("other_work")))
        subscribed = await stranger.invoked(2)
        await subscribed.confirm()
        await subscribed.event("news", associative=True)
        await _until(events, "event")
        assert [each.call_id for each in (await thread.get()).subscriptions] == [subscribed.id]
        await thread.cancel(subscribed.id)
        await _until(events, "unsubscribed")
        await thread.send(
            please(
                call("spawn_thread", task="look at Oslo"),
                call("sleep", seconds=3600),
                call("ask_user", question="Which?", choices=["red"]),
            )
        )
        asked = await _until(events, "ChoiceEvent")
        await _until(events, "report")
        family = await thread.family()
        assert [child.task for child in family.children] == ["look at Oslo"]
        await thread.grant(slices=1, cost=0.5)
        await _until(events, "granted")
        await thread.answer(asked.question, "blue")
        await _until(events, "chosen", text="blue")
        await agent.quiet()
        await client.thread(family.children[0].thread_id).close()
        await _until(events, "child_closed")
        await agent.quiet()
        await thread.close()
        async for _ in events:
            pass
    assert [entry async for entry in thread.history(page_size=2)]
    assert [entry async for entry in client.thread(family.children[0].thread_id).history()]
    assert {each.thread_id async for each in client.threads()} == {thread.id, family.children[0].thread_id}
    assert exact.kinds >= {each for each in ANSWERS.values() if each is not MissingToolset}
    seen = {each for each in KNOWN_ENTRIES if each in exact.kinds}
    assert len(seen) >= 15, seen
    assert UnknownEntry not in exact.kinds


async def test_a_bare_client_gets_the_same(agent: RunningAgent, client: Client) -> None:
    thread = await client.create_thread("hello")
    await agent.quiet()
    bare = await BareClient(agent.port).look(f"/v1/threads/{thread.id}")
    assert dataclasses.asdict(await thread.get()) == bare
