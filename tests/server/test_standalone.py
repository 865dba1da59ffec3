"""Serving in the foreground, until a signal. The server runs here, on the main thread, as it would in a process of its own."""

import asyncio
import http.client
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rapkit import Durations, Toolset
from rapkit.cli.call.callback_listener import CallbackListener
from rapkit.errors import ConfigError, StoreError
from rapkit.protocol import ToolResult
from rapkit.server.standalone import announcement, serve


@pytest.fixture
def callbacks() -> Iterator[CallbackListener]:
    with CallbackListener() as listener:
        yield listener


def post(url: str, path: str, message: object) -> int:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        connection.request("POST", path, json.dumps(message), {"Content-Type": "application/json"})
        return connection.getresponse().status
    finally:
        connection.close()


def call(url: str, callbacks: CallbackListener, operation: str) -> int:
    message = {
        "operation": operation,
        "arguments": {},
        "id": "c1",
        "group_id": "t1",
        "callback_url": callbacks.url,
    }
    return post(url, "/invoke", message)


def run(tools: Toolset, client: Callable[[str], None], host: str = "127.0.0.1") -> str:
    """Serve, and let a client talk to the server from another thread; returns the URL that was announced."""
    urls: list[str] = []
    failures: list[BaseException] = []

    def talk(url: str) -> None:
        try:
            client(url)
        except BaseException as error:  # noqa: BLE001 - it is raised again below, on the test's own thread
            failures.append(error)
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0.1)

    def announced(url: str) -> None:
        urls.append(url)
        threading.Thread(target=talk, args=(url,)).start()

    serve(tools, host, 0, on_start=announced)
    if failures:
        raise failures[0]
    return urls[0]


def stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_call_is_answered_and_a_signal_ends_the_server(tools: Toolset, callbacks: CallbackListener) -> None:
    """INV-8, DIS-2"""
    answers: list[object] = []

    def client(url: str) -> None:
        assert call(url, callbacks, "echo") == 200
        answers.append(callbacks.next(10))
        stop()

    url = run(tools, client)

    assert url.startswith("http://127.0.0.1:")
    (answer,) = answers
    assert isinstance(answer, ToolResult)
    assert answer.text == "echo"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_at_a_signal_running_handlers_may_end(
    toolset: Callable[..., Toolset], callbacks: CallbackListener, number: signal.Signals
) -> None:
    """INV-13"""
    tools = toolset()
    begun = threading.Event()

    @tools.tool
    async def slow() -> str:
        """Take a while."""
        begun.set()
        await asyncio.sleep(0.3)
        return "done"

    def client(url: str) -> None:
        call(url, callbacks, "slow")
        assert begun.wait(60)
        os.kill(os.getpid(), number)

    run(tools, client)

    answer = callbacks.next(0.1)
    assert isinstance(answer, ToolResult)
    assert answer.text == "done"


@pytest.mark.parametrize("how", ["async", "sync"])
def test_a_second_signal_ends_the_server_at_once_and_nothing_is_lost(
    toolset: Callable[..., Toolset], callbacks: CallbackListener, how: str
) -> None:
    """INV-11, INV-13"""
    begun = threading.Event()
    release = threading.Event()

    def make() -> Toolset:
        tools = toolset(durations=Durations(grace=60, lease=0.5))
        if how == "sync":

            def slow() -> None:
                begun.set()
                release.wait()

            tools.tool(slow)
        else:

            async def slow_async() -> None:
                begun.set()
                await asyncio.Event().wait()

            tools.tool(name="slow")(slow_async)
        return tools

    def impatient(url: str) -> None:
        call(url, callbacks, "slow")
        assert begun.wait(60)
        stop()
        time.sleep(0.3)
        stop()

    answers: list[object] = []

    def patient(_url: str) -> None:
        answers.append(callbacks.next(10))
        stop()

    started = time.monotonic()
    run(make(), impatient)
    assert time.monotonic() - started < 10
    run(make(), patient)
    release.set()

    (answer,) = answers
    assert isinstance(answer, ToolResult)
    assert "it is not known whether it took effect" in str(answer.text)


def test_what_is_announced_says_where_it_is_and_who_may_call(tools: Toolset) -> None:
    said = announcement(tools, "http://127.0.0.1:8000")

    assert said.startswith(f"tools: 1 tool at http://127.0.0.1:8000, kept in {tools.store_url}\n")
    assert said.endswith("No token is configured: only callers on this machine are served.")
    tools.public_url = "https://api.example/tools"
    assert "https://api.example/tools" in announcement(tools, "http://127.0.0.1:8000")


@pytest.mark.parametrize("url", ["api.example", "ftp://api.example", "https://", "/tools"])
def test_a_public_url_that_is_none_is_refused(tools: Toolset, url: str) -> None:
    tools.public_url = url

    with pytest.raises(ConfigError, match="is not a public URL"):
        serve(tools, "127.0.0.1", 0)


def test_run_serves_until_a_signal(tools: Toolset) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]

    def talk() -> None:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                if post(f"http://127.0.0.1:{port}", "/close_thread", {"thread_id": "t"}) == 200:
                    break
            except OSError:
                time.sleep(0.02)
        stop()

    talking = threading.Timer(0.2, talk)
    talking.start()
    tools.run(port=port)
    talking.join()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com"])
def test_without_a_token_the_server_is_not_opened_to_other_machines(tools: Toolset, host: str) -> None:
    with pytest.raises(ConfigError, match="no credentials are configured: anybody could call your tools"):
        serve(tools, host, 0)


def test_a_port_that_is_taken_is_told_in_one_sentence(tools: Toolset) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        with pytest.raises(ConfigError) as refused:
            serve(tools, "127.0.0.1", port)
    assert (
        str(refused.value)
        == f"Port {port} on 127.0.0.1 is taken. Stop what uses it, or choose another port, with --port or in the settings."
    )


def test_an_address_of_another_machine_is_told_in_one_sentence(toolset: Callable[..., Toolset]) -> None:
    tools = toolset(tokens="a-token-of-some-length")
    tools.tool(name="echo")(lambda: "x")

    with pytest.raises(ConfigError, match=r"Cannot listen on 192\.0\.2\.1 port 0"):
        serve(tools, "192.0.2.1", 0)


def test_a_toolset_that_cannot_be_served_is_found_before_the_port_is(toolset: Callable[..., Toolset]) -> None:
    """DIS-2, DIS-3"""
    with pytest.raises(ConfigError, match="has no tools"):
        serve(toolset(), "127.0.0.1", 0)


def test_a_store_of_another_program_is_an_error_and_left_alone(toolset: Callable[..., Toolset], tmp_path: Path) -> None:
    path = tmp_path / "precious.db"
    path.write_bytes(b"not a database" * 1000)
    tools = toolset(store=f"sqlite:///{path}")
    tools.tool(name="echo")(lambda: "x")

    with pytest.raises(StoreError):
        serve(tools, "127.0.0.1", 0)
    assert path.read_bytes() == b"not a database" * 1000
