import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from rapkit import Context, Toolset
from rapkit.protocol import parse_toolset
from tests.server.served_toolset import ServedToolset, invocation, serving, serving_app, until
from tests.server.sink import Sink

TOKEN = "token-for-these-tests"
WELL_KNOWN = "/.well-known/rap-toolset"


async def test_discovery_answers_the_toolset_as_json(toolset: Callable[..., Toolset]) -> None:
    """DIS-1, DIS-3"""
    tools = toolset("weather", description="Forecasts", version="7")

    @tools.tool(read_only=True, long_running=True, display='"Weather in " + args.city')
    async def forecast(city: str, ctx: Context, days: int = 3) -> str:
        """Forecast for a city.

        Args:
            city: Where.
            days: How far ahead.
        """
        return f"{city} {days} {ctx.call_id}"

    @tools.tool(destructive=True, requires_auth="github", name="wipe-it")
    def wipe() -> None:
        """Remove everything."""

    async with serving(tools) as server:
        reply = await server.get(WELL_KNOWN, Accept="application/json")

        assert reply.status == 200
        assert reply.headers["content-type"] == "application/json"
        assert reply.json == {
            "name": "weather",
            "description": "Forecasts",
            "endpoint": f"{server.url}/invoke",
            "version": "7",
            "tools": [
                {
                    "name": "forecast",
                    "description": "Forecast for a city.",
                    "inputSchema": {
                        "type": "object",
                        "properties": {
                            "city": {"type": "string", "description": "Where."},
                            "days": {"type": "integer", "default": 3, "description": "How far ahead."},
                        },
                        "required": ["city"],
                        "additionalProperties": False,
                    },
                    "annotations": {"readOnly": True, "longRunning": True},
                    "displayScript": '"Weather in " + args.city',
                },
                {
                    "name": "wipe-it",
                    "description": "Remove everything.",
                    "inputSchema": {"type": "object", "additionalProperties": False},
                    "annotations": {"destructive": True, "requiresAuth": "github"},
                },
            ],
        }
        parse_toolset(reply.body)


async def test_an_invocation_sent_to_the_endpoint_of_the_manifest_is_answered(tools: Toolset, sink: Sink) -> None:
    """DIS-2, INV-8"""
    async with serving(tools) as server:
        endpoint = (await server.get(WELL_KNOWN)).json["endpoint"]
        path = endpoint.removeprefix(server.url)

        reply = await server.post(path, invocation(sink.url, id="c1", arguments={"text": "hello"}))

        assert (reply.status, reply.body) == (200, b"")
        assert (await sink.result("c1")).text == "hello"


async def test_both_endpoints_work_as_soon_as_the_server_is_ready(tools: Toolset, sink: Sink) -> None:
    """DIS-2"""
    async with serving(tools) as server:
        ready = await server.get("/readyz")
        discovery, invoked = await server.get(WELL_KNOWN), await server.invoke(invocation(sink.url))

        assert [ready.status, discovery.status, invoked.status] == [200, 200, 200]


async def test_the_version_changes_when_a_tool_does(toolset: Callable[..., Toolset]) -> None:
    """DIS-9"""

    def version(days: object) -> str:
        tools = toolset()

        @tools.tool
        def forecast(days: days) -> str:  # type: ignore[valid-type]
            return str(days)

        return tools.version

    assert version(int) == version(int)
    assert version(int) != version(str)


async def test_the_endpoint_is_under_the_name_that_was_asked(tools: Toolset) -> None:
    tools.tokens = TOKEN
    async with serving(tools) as server:
        reply = await server.get(WELL_KNOWN, Host="tools.internal:8080")

        assert reply.json["endpoint"] == "http://tools.internal:8080/invoke"


async def test_the_endpoint_is_under_the_public_url_if_there_is_one(
    toolset: Callable[..., Toolset],
) -> None:
    tools = toolset(public_url="https://api.example/weather/", tokens=TOKEN)
    tools.tool(_nothing)
    async with serving(tools) as server:
        reply = await server.get(WELL_KNOWN, Host="elsewhere")

        assert reply.json["endpoint"] == "https://api.example/weather/invoke"


async def test_without_tokens_only_this_machine_learns_what_there_is(tools: Toolset) -> None:
    """TRA-3: a web page cannot read it by a name it has pointed here."""
    async with serving(tools) as server:
        assert (await server.get(WELL_KNOWN, Host="evil.example")).status == 401
        assert (await server.get(WELL_KNOWN)).status == 200


async def test_a_host_that_is_none_gets_an_answer_and_no_server_error(tools: Toolset) -> None:
    tools.tokens = TOKEN
    async with serving(tools) as server:
        for host in ("", " ", "?", "a b", "/", "#x", "user@host", "\\"):
            reply = await server.get(WELL_KNOWN, Host=host)

            assert reply.status in (200, 400), host
            if reply.status == 200:
                parse_toolset(reply.body)


async def test_health_says_that_the_process_answers(tools: Toolset) -> None:
    async with serving(tools) as server:
        reply = await server.get("/healthz")

        assert (reply.status, reply.json) == (200, {"ok": True})


async def test_readiness_is_said_only_while_calls_are_worked_on(tools: Toolset) -> None:
    """DIS-2"""
    outer = Starlette(routes=[Mount("/", tools.app)])
    async with serving_app(outer) as port:
        server = ServedToolset(port, tools)
        before = await server.get("/readyz")
        async with tools.lifespan():
            during = await server.get("/readyz")
        afterwards = await server.get("/readyz")

        assert (await server.get("/healthz")).status == 200

    assert (before.status, before.json) == (503, {"ready": False, "reason": "It has not been started."})
    assert (during.status, during.json) == (200, {"ready": True})
    assert (afterwards.status, afterwards.json) == (503, {"ready": False, "reason": "It has not been started."})


async def test_a_mounted_toolset_is_reached_under_its_path(tools: Toolset, sink: Sink) -> None:
    """DIS-1"""
    outer = Starlette(routes=[Mount("/weather/v1", tools.app)], lifespan=tools.lifespan)
    async with serving_app(outer) as port:
        server = ServedToolset(port, tools)
        discovery = await server.get("/weather/v1" + WELL_KNOWN)
        endpoint = discovery.json["endpoint"]

        assert endpoint == f"{server.url}/weather/v1/invoke"
        assert (await server.post("/weather/v1/invoke", invocation(sink.url, id="c1"))).status == 200
        assert (await sink.result("c1")).text == "echo"
        assert (await server.get("/weather/v1/readyz")).status == 200
        assert (await server.get("/weather/v1/invoke")).status == 405
        assert (await server.get(WELL_KNOWN)).status == 404


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/invoke"), ("POST", "/close_thread"), ("GET", WELL_KNOWN)], ids=str
)
async def test_a_mounted_toolset_without_lifespan_says_what_to_do(tools: Toolset, method: str, path: str) -> None:
    """DIS-2"""
    outer = Starlette(routes=[Mount("/weather", tools.app)])
    async with serving_app(outer) as port:
        server = ServedToolset(port, tools)

        reply = await server.request(method, "/weather" + path, json.dumps(invocation("http://127.0.0.1:1/")).encode())

        assert reply.status == 503
        assert reply.detail == (
            "The toolset 'tools' is mounted but not started, because mounted apps get no lifespan. "
            "Give it to the outer app: FastAPI(lifespan=tools.lifespan)."
        )


async def test_the_author_s_lifespan_lasts_longer_than_any_call(toolset: Callable[..., Toolset], sink: Sink) -> None:
    events: list[str] = []

    @contextlib.asynccontextmanager
    async def lifespan(given: Toolset) -> AsyncIterator[None]:
        events.append(f"entered by {given.name}")
        yield
        events.append("left")

    tools = toolset(lifespan=lifespan)

    @tools.tool
    async def note() -> None:
        events.append("called")

    async with serving(tools) as server:
        await server.invoke(invocation(sink.url, "note"))
        await sink.received(1)

    assert events == ["entered by tools", "called", "left"]


async def test_a_toolset_that_is_mounted_and_served_starts_once(tools: Toolset, sink: Sink) -> None:
    async with tools.lifespan(), serving(tools) as server:
        await server.invoke(invocation(sink.url))
        await sink.received(1)
        await server.quiet()

        assert len(sink.posts) == 1


async def test_two_toolsets_share_an_app(toolset: Callable[..., Toolset], sink: Sink) -> None:
    """INV-12"""
    one, two = toolset("one"), toolset("two")
    one.tool(name="who")(lambda: "one")
    two.tool(name="who")(lambda: "two")

    @contextlib.asynccontextmanager
    async def both(_app: object) -> AsyncIterator[None]:
        async with one.lifespan(), two.lifespan():
            yield

    outer = Starlette(routes=[Mount("/one", one.app), Mount("/two", two.app)], lifespan=both)
    async with serving_app(outer) as port:
        server = ServedToolset(port, one)
        await server.post("/one/invoke", invocation(sink.url, "who", id="c1"))
        await server.post("/two/invoke", invocation(sink.url, "who", id="c2"))

        assert (await sink.result("c1")).text == "one"
        assert (await sink.result("c2")).text == "two"


async def test_only_post_reaches_what_changes_something(tools: Toolset) -> None:
    async with serving(tools) as server:
        for path in ("/invoke", "/cancel_tool_call", "/close_thread"):
            for method in ("GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"):
                reply = await server.request(method, path)

                assert (reply.status, reply.headers["allow"]) == (405, "POST"), (method, path)


async def test_discovery_answers_head_and_refuses_post(tools: Toolset) -> None:
    async with serving(tools) as server:
        assert (await server.request("HEAD", WELL_KNOWN)).status == 200
        assert (await server.request("POST", WELL_KNOWN, b"{}")).status == 405


async def test_an_unknown_path_is_not_found(tools: Toolset) -> None:
    async with serving(tools) as server:
        for path in ("/", "/nothing", "/invoke/more", "/.well-known/", "/%2e%2e/invoke", "/migrate"):
            assert (await server.request("POST", path, b"{}")).status == 404, path


async def test_a_store_of_its_own_is_made_where_the_author_said(tmp_path: Path, tools: Toolset) -> None:
    tools.store = f"sqlite:///{tmp_path}/deep/down/calls.db"
    async with serving(tools):
        assert (tmp_path / "deep" / "down" / "calls.db").is_file()


async def test_the_app_can_be_started_again(tools: Toolset, sink: Sink) -> None:
    for number in (1, 2):
        async with serving(tools) as server:
            await server.invoke(invocation(sink.url, id=f"c{number}"))
            await sink.result(f"c{number}")
    await until(lambda: len(sink.posts) == 2)


def _nothing() -> None:
    """Do nothing."""
