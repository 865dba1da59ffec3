"""Peers and callers that hang must not take the places of those that do not."""

import contextlib
import http.client
import json
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.interop.conftest import Join, Serve, Up
from tests.interop.foreign_runtime import ForeignRuntime
from tests.interop.foreign_server import ForeignServer, result
from tests.interop.http_peer import PATIENCE, Answer, Json, Received, eventually, get
from tests.interop.processes import OurServer, Process

PLACES = 1024
"""How many callbacks are under way at most by default."""

TOOLS = """
    from rapkit import Toolset

    tools = Toolset("tools")

    @tools.tool
    async def greet() -> str:
        return "Hello."
"""

HANGING_NAMES = """
import socket
import time

ask = socket.getaddrinfo

def getaddrinfo(host, *arguments, **more):
    if str(host).startswith("hang-"):
        time.sleep(3600)
    return ask(host, *arguments, **more)

socket.getaddrinfo = getaddrinfo
"""


@pytest.fixture
def hanging_names(tmp_path: Path) -> dict[str, str]:
    """The environment of a process for which the lookup of every name that begins with `hang-` never ends."""
    folder = tmp_path / "patched"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(HANGING_NAMES)
    return {"PYTHONPATH": str(folder)}


def send(server: OurServer, invocations: Sequence[Json], headers: Mapping[str, str] | None = None) -> None:
    """Send invocations over one connection, faster than places come free again by themselves."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    for invocation in invocations:
        connection.request(
            "POST", "/invoke", json.dumps(invocation), {"Content-Type": "application/json", **(headers or {})}
        )
        response = connection.getresponse()
        assert (response.status, response.read()) == (200, b"")
    connection.close()


def metric(process: Process, name: str, headers: Mapping[str, str] | None = None) -> float:
    lines = get(f"{process.url}/metrics", headers)[1].decode().splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(name))


@pytest.mark.parametrize("names", [50, 250])
def test_names_that_never_resolve_do_not_keep_others_from_being_looked_up(
    serve: Serve, join: Join, hanging_names: dict[str, str], names: int
) -> None:
    server = serve(TOOLS, environment=hanging_names)
    runtime = join(ForeignRuntime(server.url))

    for number in range(names):
        runtime.call("greet", callback_url=f"http://hang-{number}.example:8000/callback")
    healthy = runtime.call("greet", callback_url=f"http://localhost:{runtime.port}/callback")

    assert runtime.result_of(healthy)["text"] == "Hello."

    server.stop()  # a lookup that hangs does not keep the process alive


@pytest.mark.parametrize(("origins", "each"), [(18, 64), (50, 30), (200, 10)])
def test_origins_that_never_answer_do_not_keep_others_from_their_results(
    serve: Serve, join: Join, origins: int, each: int
) -> None:
    """Each of them takes connections and requests, and says nothing."""
    server = serve(TOOLS)
    runtime = join(ForeignRuntime(server.url))
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(origins)]
        send(
            server,
            [
                runtime.invocation("greet", callback_url=f"http://127.0.0.1:{port}/", group_id=f"thread-{number}")
                for number in range(each)
                for port in silent
            ],
        )
        healthy = runtime.call("greet")

        assert runtime.result_of(healthy)["text"] == "Hello."

        assert origins <= metric(server, "rapkit_callbacks_under_way") < PLACES


def test_servers_that_never_answer_do_not_keep_others_from_their_invocations(up: Up, join: Join) -> None:
    """More invocations are sent to them than may be under way."""

    class Silent(ForeignServer):
        def answer(self, request: Received) -> Answer:
            return Answer(delay=3600) if request.method == "POST" else super().answer(request)

    silent = [join(Silent({f"hang{number}": lambda _: []})) for number in range(8)]
    healthy = join(ForeignServer({"add": lambda call: [result(call, "3")]}))
    calls = ", ".join(f"hang{number}" for number in range(8) for _ in range(4))
    plan = f"""
    - user: hang
      calls: [{calls}]
    - user: add
      calls: [add]
    - answer: add
      say: "It is {{answer}}."
    """
    capacity = {"agent.capacity": {"deliveries": 64, "deliveries_per_origin": 16}}
    runtime = up(plan, [*(each.url for each in silent), healthy.url], tables=capacity)

    for _ in range(4):
        runtime.thread("hang")
    for each in silent:
        each.wait(lambda request: request.method == "POST")
    runtime.until(runtime.thread("add"), "It is 3.")

    assert 8 <= metric(runtime, "rapkit_posts_under_way") < 64


def test_a_caller_whose_handlers_hang_does_not_keep_another_from_its_results(serve: Serve, join: Join) -> None:
    """It has more calls than there are places for handlers."""
    server = serve(
        """
        import asyncio

        from rapkit import Toolset

        tools = Toolset("tools", tokens={"anna": "the-token-of-anna", "bert": "the-token-of-bert"}, allow_callbacks=["127.0.0.0/8"])

        @tools.tool
        async def greet() -> str:
            return "Hello."

        @tools.tool
        async def hang() -> None:
            await asyncio.sleep(3600)
        """
    )
    anna, bert = ({"Authorization": f"Bearer the-token-of-{name}"} for name in ("anna", "bert"))
    runtime = join(ForeignRuntime(server.url, headers=bert))
    send(server, [runtime.invocation("hang") for _ in range(300)], anna)

    assert runtime.result_of(runtime.call("greet"))["text"] == "Hello."
    eventually(lambda: metric(server, "rapkit_handlers_running", bert) == 224)
    assert metric(server, "rapkit_backlog", bert) == 300
