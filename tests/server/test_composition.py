"""Toolsets within something larger: mounted into a FastAPI app, several in one process, on one store."""

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from urllib.parse import urlsplit

from fastapi import FastAPI

from rapkit import Context, Delivery, Event, Toolset
from tests.server.served_toolset import ServedToolset, exchange, invocation, serving_app
from tests.server.sink import Sink


def asking(tools: Toolset) -> Toolset:
    @tools.tool
    async def ask(ctx: Context) -> str:
        """Ask."""
        return await ctx.choose("Which?", ["left", "right"])

    return tools


async def post(port: int, path: str, message: object) -> int:
    body = json.dumps(message).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return (await exchange(port, head.encode() + body)).status


async def test_a_toolset_mounted_into_a_fastapi_app_is_whole(toolset: Callable[..., Toolset], sink: Sink) -> None:
    """CHO-2: discovery, calls, and the URLs that users' answers come to are all under the mount."""
    tools = asking(toolset())
    app = FastAPI(lifespan=tools.lifespan)

    @app.get("/hello")
    def hello() -> str:
        return "the app's own"

    app.mount("/tools/v1", tools.app)
    async with serving_app(app) as port:
        server = ServedToolset(port, tools)
        assert (await server.get("/hello")).json == "the app's own"
        found = (await server.get("/tools/v1/.well-known/rap-toolset")).json
        assert found["endpoint"] == f"{server.url}/tools/v1/invoke"

        message = invocation(sink.url, "ask")
        assert await post(port, "/tools/v1/invoke", message) == 200
        choice = await sink.result(message["id"])
        answer_url = urlsplit(choice.message["response_url"])
        assert f"http://{answer_url.netloc}" == server.url
        assert answer_url.path.startswith("/tools/v1/answer/")
        assert await post(port, answer_url.path, {"id": message["id"], "selected": 1}) == 200
        posts = await sink.received(2)

        assert posts[1].text == "right"


async def test_the_public_url_is_what_users_are_sent_to(toolset: Callable[..., Toolset], sink: Sink) -> None:
    tools = asking(toolset(public_url="http://localhost:1/v1/"))
    async with serving_app(tools.app) as port:
        message = invocation(sink.url, "ask")
        assert await post(port, "/invoke", message) == 200
        choice = await sink.result(message["id"])

        assert choice.message["response_url"].startswith("http://localhost:1/v1/answer/")


async def test_several_toolsets_in_one_process_on_one_store(tmp_path: Path, sink: Sink) -> None:
    """Each has its own calls, topics, threads and callers' names, though all they keep is in one file."""
    store = f"sqlite:///{tmp_path}/shared.db"
    one, two = (asking(Toolset(name, store=store)) for name in ("one", "two"))
    for tools in (one, two):

        @tools.subscription(topic="news")
        async def news(payload: str, ctx: Context) -> Event:
            """Tell me."""
            return Event(payload)

        @tools.webhook("/hooks/news", verify=lambda _delivery: True)
        async def hook(delivery: Delivery, tools: Toolset = tools) -> None:
            await tools.emit("news", delivery.json)

    @contextlib.asynccontextmanager
    async def both(_app: FastAPI) -> AsyncIterator[None]:
        async with one.lifespan(), two.lifespan():
            yield

    app = FastAPI(lifespan=both)
    app.mount("/one", one.app)
    app.mount("/two", two.app)
    async with serving_app(app) as port:
        message = invocation(sink.url, "news")  # the same call, sent to both
        assert await post(port, "/one/invoke", message) == 200
        assert await post(port, "/two/invoke", message) == 200
        posts = await sink.received(2)
        assert all(each.message["subscription"] for each in posts)

        assert await post(port, "/one/hooks/news", "from one") == 200
        posts = await sink.received(3)
        assert posts[2].text == "from one"

        cancelled = {"thread_id": message["group_id"], "tool_call_id": message["id"]}
        assert await post(port, "/one/cancel_tool_call", cancelled) == 200
        assert await post(port, "/one/hooks/news", "nobody listens") == 200
        assert await post(port, "/two/hooks/news", "from two") == 200
        posts = await sink.received(4)
        assert posts[3].text == "from two"
