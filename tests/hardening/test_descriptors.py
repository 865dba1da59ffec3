"""Processes that run out of file descriptors, and get some back."""

import http.client
import json
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from tests.interop.conftest import Join, Serve
from tests.interop.foreign_runtime import ForeignRuntime
from tests.interop.http_peer import PATIENCE, eventually, get
from tests.interop.processes import Process

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the limits of another process can be set on Linux only"
)

TOOLS = """
    from rapkit import Toolset

    tools = Toolset("tools")

    @tools.tool
    def greet() -> str:
        return "Hello."
"""

CLIENT_WITHOUT_DESCRIPTORS = """
import asyncio, os, resource
from rapkit.delivery.http_client import HttpClient
from rapkit.delivery.guard import Guard
from rapkit.errors import ConfigError

async def start() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (os.dup(0), most))
    try:
        async with HttpClient(Guard()):
            print("started")
    except ConfigError as error:
        print(error)

asyncio.run(start())
"""


class Connection:
    """A kept-alive connection: one made before the descriptors are exhausted serves afterwards too."""

    def __init__(self, process: Process) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", process.port, timeout=PATIENCE)
        self._http.connect()

    def request(self, method: str, path: str, message: object = None) -> tuple[int, bytes]:
        body = None if message is None else json.dumps(message)
        self._http.request(method, path, body, {"Content-Type": "application/json"})
        answer = self._http.getresponse()
        return answer.status, answer.read()


@contextmanager
def exhausted(process: Process) -> Iterator[None]:
    """Let a process open no descriptor more."""
    before = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    used = {int(path.name) for path in Path(f"/proc/{process.pid}/fd").iterdir()}
    lowest_free = next(number for number in count() if number not in used)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (lowest_free, before[1]))
    try:
        yield
    finally:
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, before)


def test_results_are_delivered_once_descriptors_are_there_again(serve: Serve, join: Join) -> None:
    """Also if the very first POST of the process was the one that met none."""
    server = serve(TOOLS)
    runtime = join(ForeignRuntime(server.url))
    connection = Connection(server)
    call = runtime.invocation("greet")
    assert connection.request("GET", "/healthz")[0] == 200

    with exhausted(server):
        assert connection.request("POST", "/invoke", call)[0] == 200
        eventually(lambda: "attempt 1" in server.log() or "could not be sent" in server.log())

    assert runtime.result_of(call)["text"] == "Hello."
    assert get(f"{server.url}/readyz")[0] == 200
    assert "Traceback" not in server.log()


def test_connections_that_cannot_be_accepted_do_not_end_the_listener(serve: Serve) -> None:
    server = serve(TOOLS)
    connection = Connection(server)
    assert connection.request("GET", "/healthz")[0] == 200

    with exhausted(server):
        turned_away = [socket.create_connection(("127.0.0.1", server.port), PATIENCE) for _ in range(50)]
        assert connection.request("GET", "/healthz")[0] == 200
    for each in turned_away:
        each.close()

    assert get(f"{server.url}/healthz")[0] == 200


def test_a_client_that_cannot_be_started_says_what_to_do() -> None:
    """Its process could not deliver anything, so it does not begin to accept."""
    ended = subprocess.run(
        [sys.executable, "-c", CLIENT_WITHOUT_DESCRIPTORS], capture_output=True, text=True, timeout=PATIENCE, check=True
    )

    assert ended.stdout.startswith("The HTTP client cannot be started (")
    assert "ulimit -n" in ended.stdout
