"""Whether tools can call back: who answers at the public URL, and what would, if the agent does not run."""

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rapkit import Agent
from rapkit.cli.doctor import reachable
from rapkit.cli.doctor.check_result import CheckResult
from rapkit.cli.doctor.checked_agent import CheckedAgent
from rapkit.models.scripted import Scripted
from tests.cli.doctor.checked_agents import checked, free_port
from tests.cli.foreign_server import ForeignServer

TOKEN, OTHER_TOKEN = "xyzzy-xyzzy-xyzzy-xyzzy", "plugh-plugh-plugh-plugh"


def only(examined: CheckedAgent) -> CheckResult:
    (result,) = reachable.check(examined)
    return result


def an_agent(folder: Path, port: int, token: str | None = None) -> Agent:
    tokens = {"me": token} if token else None
    return Agent(model=Scripted(lambda _: "Hi."), store=f"sqlite:///{folder}/agent.db", port=port, tokens=tokens)


def settings(port: int, more: str = "") -> str:
    return f'port = {port}\nstore = "sqlite:///agent.db"\n{more}'


async def test_this_agent_answers(tmp_path: Path) -> None:
    port = free_port()
    async with an_agent(tmp_path, port, TOKEN):
        examined = checked(tmp_path, settings(port, f'tokens = {{ me = "{TOKEN}" }}'))
        result = await asyncio.to_thread(only, examined)

    assert result == CheckResult("public_url", "ok", f"this agent answers at http://127.0.0.1:{port}")


async def test_another_agent_answers(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "elsewhere").mkdir()
    async with an_agent(tmp_path / "elsewhere", port):
        result = await asyncio.to_thread(only, checked(tmp_path, settings(port)))

    assert result.state == "failed"
    assert result.seen == (
        f"another agent answers at http://127.0.0.1:{port}: its threads are in sqlite:///{tmp_path}/elsewhere/agent.db"
    )


async def test_an_agent_that_does_not_take_the_token(tmp_path: Path) -> None:
    port = free_port()
    async with an_agent(tmp_path, port, TOKEN):
        examined = checked(tmp_path, settings(port, f'tokens = {{ me = "{OTHER_TOKEN}" }}'))
        result = await asyncio.to_thread(only, examined)

    assert result.state == "warning"
    assert "something answers 401" in result.seen
    assert OTHER_TOKEN not in result.seen


@pytest.fixture
def localhost_is_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachable, "is_loopback_host", lambda host: host == "127.0.0.1")


async def test_elsewhere_it_is_known_by_what_it_says_to_somebody_without_a_token(
    tmp_path: Path, localhost_is_elsewhere: None
) -> None:
    port = free_port()
    more = f'tokens = {{ me = "{TOKEN}" }}\npublic_url = "http://localhost:{port}/"'
    async with an_agent(tmp_path, port, TOKEN):
        result = await asyncio.to_thread(only, checked(tmp_path, settings(port, more)))
    assert result.state == "ok", result

    assert only(checked(tmp_path, settings(port, more))).seen.startswith("the agent does not run; ")


@pytest.mark.parametrize("runs", [True, False])
async def test_a_stranger_elsewhere_is_not_told_the_token(
    tmp_path: Path, stranger: ForeignServer, localhost_is_elsewhere: None, runs: bool
) -> None:
    port = free_port()
    stranger.discovery_status = 401
    elsewhere = stranger.url.replace("127.0.0.1", "localhost")
    more = f'tokens = {{ me = "{TOKEN}" }}\npublic_url = "{elsewhere}"'
    async with an_agent(tmp_path, port, TOKEN) if runs else contextlib.nullcontext():
        result = await asyncio.to_thread(only, checked(tmp_path, settings(port, more)))

    assert result.state == ("failed" if runs else "warning")
    assert result.seen.startswith(
        f"what answers at {elsewhere} does not say what the agent on"
        if runs
        else "somebody who wants a token answers at"
    )
    assert stranger.headers
    assert not any("authorization" in headers for headers in stranger.headers)


def test_the_agent_does_not_run_and_would_be_reached(tmp_path: Path) -> None:
    port = free_port()
    result = only(checked(tmp_path, settings(port, f'public_url = "http://localhost:{port}/"')))

    assert result.state == "ok"
    assert f"the agent does not run; http://localhost:{port}/ leads to 127.0.0.1 port {port}" in result.seen
    with socket.create_server(("127.0.0.1", port)):
        pass  # nobody listens there any more


def test_the_agent_does_not_run_and_would_not_be_reached(tmp_path: Path) -> None:
    port, nowhere = free_port(), free_port()
    result = only(checked(tmp_path, settings(port, f'public_url = "http://127.0.0.1:{nowhere}"')))

    assert result.state == "failed"
    assert f"the agent does not run, and what listens on 127.0.0.1 port {port} is not reached at" in result.seen
    assert "Connection refused" in result.seen


def test_something_listens_and_is_not_what_is_reached(tmp_path: Path, stranger: ForeignServer) -> None:
    port = int(stranger.url.rpartition(":")[2])
    result = only(checked(tmp_path, settings(port, f'public_url = "http://127.0.0.1:{free_port()}"')))

    assert result.state == "failed"
    assert f"But something listens on 127.0.0.1 port {port}" in result.seen
    assert result.do == "If it is this agent, public_url does not lead to it: correct it."


@pytest.mark.parametrize("elsewhere", [False, True], ids=["there", "behind a proxy"])
def test_something_listens_and_does_not_answer(
    tmp_path: Path, stranger: ForeignServer, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    """As an agent that was stopped, or is stuck."""
    monkeypatch.setattr(reachable, "_PATIENCE", 0.5)
    stranger.discovery_status = 504
    more = f'public_url = "{stranger.url}"' if elsewhere else ""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        result = only(checked(tmp_path, settings(port, more)))

    assert result.state == "failed"
    assert result.seen.endswith(f" Something listens on 127.0.0.1 port {port}, and does not answer as an agent does")
    assert result.do.startswith("Look at it: if it is this agent, it hangs or fails, so restart it; ")


def test_an_address_that_is_not_one_of_this_machine(tmp_path: Path) -> None:
    nowhere = f'host = "192.0.2.1"\npublic_url = "http://127.0.0.1:{free_port()}"'
    result = only(checked(tmp_path, settings(free_port(), nowhere)))

    assert (result.state, result.do) == ("failed", "Correct the host that it is to listen on.")
    assert "Cannot listen on 192.0.2.1" in result.seen


def test_a_proxy_that_leads_elsewhere(tmp_path: Path, stranger: ForeignServer) -> None:
    stranger.discovery_status = 502
    result = only(checked(tmp_path, settings(free_port(), f'public_url = "{stranger.url}"')))

    assert result.state == "failed"
    assert f"the agent does not run, and something else answers at {stranger.url} (status 502)" in result.seen


@pytest.mark.parametrize(("status", "document"), [(404, b""), (200, b"<html>"), (200, b"[]"), (200, b"{}")])
def test_what_is_no_agent(tmp_path: Path, stranger: ForeignServer, status: int, document: bytes) -> None:
    stranger.discovery_status, stranger.document = status, document
    result = only(checked(tmp_path, settings(free_port(), f'public_url = "{stranger.url}"')))

    assert result.state == "failed"
    assert result.seen.startswith(f"what answers at {stranger.url} is no agent")


def test_an_address_of_this_machine_alone_with_servers_elsewhere(tmp_path: Path) -> None:
    result = only(checked(tmp_path, settings(free_port()), 'url = "https://tools.invalid"'))

    assert result.state == "failed"
    assert "can be reached from this machine alone, and not on it are: https://tools.invalid." in result.seen
    assert result.do == "Set public_url to an address of this agent that they can reach."


def test_a_name_that_nobody_knows(tmp_path: Path) -> None:
    result = only(checked(tmp_path, settings(free_port(), 'public_url = "https://agent.invalid"')))

    assert result.state == "failed"
    assert "the name agent.invalid is not known" in result.seen


@contextlib.contextmanager
def over_tls(certificate: Path) -> Iterator[int]:
    """A port where somebody proves with this certificate who he is, and says no more."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)

    async def ignore(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(ignore, "127.0.0.1", 0, ssl=tls))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_a_certificate_that_nobody_vouches_for(tmp_path: Path, certificate: Path) -> None:
    with over_tls(certificate) as port:
        result = only(checked(tmp_path, settings(free_port(), f'public_url = "https://localhost:{port}"')))

    assert result.state == "failed"
    assert "cannot prove who it is" in result.seen
    assert result.do.startswith("Correct the certificate")


def test_what_cannot_be_known_is_skipped(tmp_path: Path) -> None:
    assert only(checked(tmp_path, "port = 0")).state == "skipped"
    assert only(checked(tmp_path, f'port = 0\npublic_url = "http://127.0.0.1:{free_port()}"')).state == "skipped"
    assert only(CheckedAgent(Path("x"), None, "", tmp_path)).state == "skipped"


def test_a_token_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_THERE", raising=False)
    result = only(checked(tmp_path, settings(free_port(), 'tokens = { me = "env:NOT_THERE" }')))

    assert result.state == "failed"
    assert "The environment variable NOT_THERE is not set" in result.seen


def test_a_token_that_cannot_be_sent(tmp_path: Path, stranger: ForeignServer) -> None:
    port = int(stranger.url.rpartition(":")[2])
    result = only(checked(tmp_path, settings(port, r'tokens = { me = "xyzzy-xyzzy-xyzzy\nplugh" }')))

    assert result.state == "failed"
    assert result.seen.startswith("The token cannot be sent: ")
    assert stranger.headers == []
