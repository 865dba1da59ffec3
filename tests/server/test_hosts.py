"""Requests with two `Host` headers, when the app is mounted in a server that lets them through."""

import json
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from rapkit import Agent, Toolset

TOKEN = "a-token-of-the-agent"
TWO_HOSTS = [(b"host", b"127.0.0.1"), (b"host", b"evil.example")]


def greet() -> str:
    """Greet."""
    return "Hello."


async def ask(app: Any, method: str, path: str, *headers: tuple[bytes, bytes]) -> tuple[int, Any]:
    """Send a request through a server that mounts the app, as ASGI has it."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [*headers, (b"content-type", b"application/json"), (b"content-length", b"2")],
        "client": ("127.0.0.1", 4000),
        "server": ("127.0.0.1", 80),
    }
    await Starlette(routes=[Mount("/here", app)])(scope, receive, send)
    return sent[0]["status"], json.loads(b"".join(message.get("body", b"") for message in sent))


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/.well-known/rap-toolset"),
        ("POST", "/invoke"),
        ("POST", "/cancel_tool_call"),
        ("POST", "/close_thread"),
        ("GET", "/metrics"),
    ],
)
@pytest.mark.parametrize("tokens", [{}, {"agent": TOKEN}], ids=["local", "tokens"])
async def test_a_toolset_refuses_two_hosts(method: str, path: str, tokens: dict[str, str]) -> None:
    tools = Toolset("tools", store="sqlite:///:memory:", tokens=tokens)
    tools.tool(greet)
    authorization = (b"authorization", f"Bearer {TOKEN}".encode())

    async with tools.lifespan():
        status, problem = await ask(tools.app, method, f"/here{path}", *TWO_HOSTS, authorization)

    assert (status, problem["detail"]) == (400, "A request has one Host header.")


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/threads"), ("POST", "/v1/threads"), ("GET", "/metrics")])
async def test_an_agent_refuses_two_hosts(method: str, path: str) -> None:
    agent = Agent(model="test", store="sqlite:///:memory:")

    async with agent:
        status, problem = await ask(agent.app, method, f"/here{path}", *TWO_HOSTS)

    assert (status, problem["detail"]) == (400, "A request has one Host header.")
