"""Any app on a real socket, inside a life of its own, with real signals."""

import asyncio
import contextlib
import http.client
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from urllib.parse import urlsplit

import pytest

from rapkit.errors import ConfigError, StoreError
from rapkit.http.health import Health
from rapkit.http.http_server import listen, serve_until_signal, url_of
from tests.log_records import our_messages, ours


def test_an_app_is_served_inside_its_lifespan_until_a_signal(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rapkit.http")
    happened: list[str] = []

    @contextlib.asynccontextmanager
    async def life() -> AsyncIterator[None]:
        happened.append("entered")
        yield
        happened.append("left")

    def talk(url: str) -> None:
        happened.append(f"answered {status(url)}")
        os.kill(os.getpid(), signal.SIGTERM)

    serve(life(), talk, happened)

    assert happened == ["entered", "told", "answered 200", "left"]
    assert "stopping: steps get 3 s to end; a second Ctrl-C does not wait for them" in our_messages(caplog)


def test_a_second_signal_does_not_wait_for_the_lifespan_to_end() -> None:
    happened: list[str] = []

    @contextlib.asynccontextmanager
    async def life() -> AsyncIterator[None]:
        yield
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            happened.append("cut short")

    serve(life(), lambda _url: os.kill(os.getpid(), signal.SIGTERM), happened)

    assert happened == ["told", "cut short"]


def test_a_life_that_cannot_begin_is_an_error_and_nobody_is_told_of_it() -> None:
    happened: list[str] = []

    def open_store() -> None:
        raise StoreError("no disk")

    @contextlib.asynccontextmanager
    async def life() -> AsyncIterator[None]:
        open_store()
        yield

    with pytest.raises(StoreError, match="no disk"):
        serve(life(), lambda _url: None, happened)
    assert happened == []


@pytest.mark.parametrize(("problem", "logged"), [(StoreError("no disk"), 0), (TypeError("no such thing"), 1)])
def test_the_log_has_the_traceback_of_what_nobody_foresaw(
    problem: Exception, logged: int, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise problem

    @contextlib.asynccontextmanager
    async def life() -> AsyncIterator[None]:
        fail()
        yield

    with pytest.raises(type(problem)):
        serve(life(), lambda _url: None, [])
    assert [record.exc_info is not None for record in ours(caplog)] == [True] * logged


def test_a_port_is_had_once() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]

        with pytest.raises(ConfigError, match=f"Port {port} on 127.0.0.1 is taken"):
            listen("127.0.0.1", port)


@pytest.mark.parametrize(
    ("host", "before_the_port"), [("127.0.0.1", "http://127.0.0.1:"), ("localhost", "http://localhost:")]
)
def test_a_url_has_the_host_as_it_was_given(host: str, before_the_port: str) -> None:
    with listen(host, 0) as listener:
        assert url_of(host, listener) == f"{before_the_port}{listener.getsockname()[1]}"


def serve(
    life: contextlib.AbstractAsyncContextManager[None], client: Callable[[str], None], happened: list[str]
) -> None:
    """Serve, and let a client talk to the server from another thread once it has started."""
    with listen("127.0.0.1", 0) as listener:
        talking = threading.Thread(target=client, args=(url_of("127.0.0.1", listener),))

        def started() -> None:
            happened.append("told")
            talking.start()

        serve_until_signal(Health(), listener, life, on_start=started, ending="steps get 3 s to end")
        talking.join()


def status(url: str) -> int:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status
    finally:
        connection.close()
