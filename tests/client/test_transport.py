"""Requests that fail, in every way they can; with an agent that is played by a plain socket, and with a real one behind a bad line."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rapkit import Agent, Client, RapkitError
from rapkit.client import ClientRetries, ClientTimeouts, UserEntry
from rapkit.errors import (
    AgentTimeout,
    AgentUnreachable,
    BadRequest,
    ClientError,
    ConfigError,
    Conflict,
    InvalidAnswer,
    NotFound,
    Unauthorized,
    Unavailable,
)
from rapkit.models.scripted import Scripted
from tests.client.proxy import proxied
from tests.interop.processes import free_port
from tests.runtime.agents import RunningAgent
from tests.server.sink import Behaviour, Sink, answer, never, reset

QUICK = ClientRetries(attempts=3, first_pause=0.01, longest_pause=0.05)
RIGHT = "a-token-of-sixteen-or-more"
AGENT = {"version": "1", "model": "m", "servers": [], "store": "s", "works": True, "lasting": True}
FINE = answer(200, body=json.dumps(AGENT).encode())


def problem(status: int, detail: str = "That is why.", headers: str = "") -> Behaviour:
    document = {"type": "about:blank", "title": "No", "status": status, "detail": detail}
    return answer(status, f"Content-Type: application/problem+json\r\n{headers}", json.dumps(document).encode())


@pytest.fixture
async def client(sink: Sink) -> AsyncIterator[Client]:
    """A client of an agent that answers as the test says."""
    async with Client(sink.url, token="s3cret", retries=QUICK) as client:
        yield client


# Problem documents


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadRequest),
        (401, Unauthorized),
        (403, Unauthorized),
        (404, NotFound),
        (405, BadRequest),
        (409, Conflict),
        (413, BadRequest),
        (415, BadRequest),
        (422, BadRequest),
        (429, Unavailable),
        (500, Unavailable),
        (502, Unavailable),
        (503, Unavailable),
    ],
)
async def test_every_problem_has_its_error(sink: Sink, client: Client, status: int, kind: type[ClientError]) -> None:
    sink.otherwise = problem(status)

    with pytest.raises(kind, match=r"That is why\.") as raised:
        await client.agent()

    assert type(raised.value) is kind
    assert isinstance(raised.value, RapkitError)
    assert (raised.value.status, raised.value.detail) == (status, "That is why.")
    assert str(raised.value).startswith(f"{sink.url} answered {status}: ")
    assert "s3cret" not in repr(raised.value)


async def test_who_has_no_token_is_told_how_to_give_one(sink: Sink) -> None:
    sink.otherwise = problem(401, "A token is needed.")
    async with Client(sink.url) as client:
        with pytest.raises(
            Unauthorized, match=r"A token is needed\. Give the client a token: Client\(url, token=\.\.\.\)"
        ):
            await client.agent()
    assert "authorization" not in sink.posts[0].headers


async def test_the_token_is_sent_and_can_come_from_the_environment(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_OF_AGENT", "abc")
    sink.otherwise = FINE
    async with Client(sink.url, token="env:TOKEN_OF_AGENT") as client:
        await client.agent()
    assert sink.posts[0].headers["authorization"] == "Bearer abc"


async def test_a_real_agent_refuses_a_wrong_token(tmp_path: Path) -> None:
    agent = Agent(model=Scripted(lambda _: "Hello."), store=f"sqlite:///{tmp_path}/a.db", tokens={"me": RIGHT})
    async with agent, Client(f"http://127.0.0.1:{_port(agent)}", token="another-token-of-mine") as client:
        with pytest.raises(Unauthorized, match="Check the token"):
            await client.agent()
    async with agent, Client(f"http://127.0.0.1:{_port(agent)}", token=RIGHT) as client:
        assert (await client.agent()).model == "scripted"


def _port(agent: Agent) -> int:
    return int(agent.engine.config.public_url.rpartition(":")[2])


# Answers that are none


@pytest.mark.parametrize(
    "body", [b"", b"<html>Welcome</html>", b"[]", b"null", b'{"version": 1}', b"{}", b"\xff", b"[" * 50_000, b'"text"']
)
async def test_garbage_is_not_taken_for_an_answer(sink: Sink, client: Client, body: bytes) -> None:
    sink.otherwise = answer(200, body=body)

    with pytest.raises(InvalidAnswer, match=r"Is there an agent at this URL\?") as raised:
        await client.agent()

    assert str(raised.value).startswith(sink.url)
    assert len(sink.posts) == 1


@pytest.mark.parametrize(
    "body", [b"<html>No</html>", b"[]", b'{"detail": 5}', b"\xff", b'{"detail": " "}', b"x" * 200_000]
)
async def test_an_error_without_a_problem_document_is_still_an_error(sink: Sink, client: Client, body: bytes) -> None:
    sink.otherwise = answer(404, body=body)

    with pytest.raises(NotFound, match=r"answered 404\. Is there an agent at this URL\?") as raised:
        await client.agent()

    assert raised.value.detail is None


async def test_a_detail_cannot_steer_the_terminal_or_fill_the_screen(sink: Sink, client: Client) -> None:
    sink.otherwise = problem(409, "\x1b[2J" + "x" * 50_000)

    with pytest.raises(Conflict) as raised:
        await client.agent()

    assert "\x1b" not in str(raised.value)
    assert len(str(raised.value)) < 3000


async def test_redirects_are_not_followed_because_they_would_get_the_token(sink: Sink, client: Client) -> None:
    sink.otherwise = answer(302, "Location: http://127.0.0.1:1/\r\n")

    with pytest.raises(InvalidAnswer, match="a redirect"):
        await client.agent()


async def test_an_answer_that_is_too_large_is_not_read_to_its_end(
    sink: Sink, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rapkit.client.transport.LARGEST", 1000)
    sink.otherwise = answer(200, body=b" " * 100_000)

    with pytest.raises(InvalidAnswer, match="more than 1000 bytes"):
        await client.agent()


async def test_what_is_no_http_is_named_with_the_url(client: Client, sink: Sink) -> None:
    async def ssh(writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
        await writer.drain()
        writer.close()

    sink.otherwise = ssh
    with pytest.raises(AgentUnreachable, match=f"{sink.url} cannot be reached: "):
        await client.agent()


# Lines that break


async def test_where_nobody_listens_the_url_is_named() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    async with Client(url, retries=QUICK) as client:
        with pytest.raises(
            AgentUnreachable, match=rf"^{url} cannot be reached: Connection refused.*Is the agent running"
        ):
            await client.agent()


async def test_an_error_of_the_http_library_does_not_show() -> None:
    async with Client(f"http://127.0.0.1:{free_port()}", retries=QUICK) as client:
        with pytest.raises(AgentUnreachable) as raised:
            await client.agent()
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


async def test_it_is_tried_as_often_as_the_settings_say(sink: Sink, client: Client) -> None:
    sink.script = [reset, reset]
    sink.otherwise = FINE
    assert (await client.agent()).model == "m"
    assert len(sink.posts) == 3

    sink.script = [reset, reset, reset]
    with pytest.raises(AgentUnreachable):
        await client.agent()
    assert len(sink.posts) == 6


async def test_an_agent_that_is_being_restarted_is_waited_for(sink: Sink) -> None:
    sink.otherwise = FINE
    await sink.down()
    async with Client(sink.url, retries=ClientRetries(attempts=20, first_pause=0.05, longest_pause=0.1)) as client:
        asked = asyncio.create_task(client.agent())
        await asyncio.sleep(0.2)
        await sink.up()
        assert (await asked).model == "m"


async def test_an_agent_that_asks_to_come_back_is_asked_again_then(sink: Sink) -> None:
    sink.script = [problem(503, headers="Retry-After: 1\r\n"), problem(429), problem(502), problem(504)]
    sink.otherwise = FINE
    begin = time.monotonic()
    async with Client(sink.url, retries=ClientRetries(attempts=5, first_pause=0.0, longest_pause=5.0)) as client:
        await client.agent()
    assert len(sink.posts) == 5
    assert 1.0 <= time.monotonic() - begin < 4.0


async def test_who_asks_for_too_much_patience_is_not_waited_for(sink: Sink, client: Client) -> None:
    sink.otherwise = problem(503, headers="Retry-After: 3600\r\n")

    with pytest.raises(Unavailable) as raised:
        await client.agent()

    assert raised.value.retry_after == 3600
    assert len(sink.posts) == 1


@pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 500])
async def test_what_will_not_change_is_not_tried_again(sink: Sink, client: Client, status: int) -> None:
    sink.otherwise = problem(status)

    with pytest.raises(ClientError):
        await client.agent()

    assert len(sink.posts) == 1


async def test_every_attempt_at_a_post_has_the_same_key_and_every_post_another(sink: Sink, client: Client) -> None:
    sink.script = [reset, problem(503), answer(202, body=b'{"message_id": "m"}')]
    sink.otherwise = answer(202, body=b'{"message_id": "m"}')
    thread = client.thread("t")

    await thread.send("one")
    await thread.send("two")
    await thread.send("three", idempotency_key="mine")

    keys = [post.headers["idempotency-key"] for post in sink.posts]
    assert len(set(keys[:3])) == 1
    assert len({keys[0], keys[3], "mine"}) == 3
    assert keys[4] == "mine"


async def test_a_message_whose_answer_was_lost_is_there_once(agent: RunningAgent) -> None:
    async with proxied(agent.url) as proxy, Client(proxy.url, retries=QUICK) as client:
        thread = await client.create_thread()
        proxy.lose_answers = 2
        message_id = await thread.send("hello")
        proxy.lose_answers = 1
        other = await client.create_thread("me too", user_id="u")
        await agent.quiet()
        said = [entry async for entry in thread.history() if isinstance(entry, UserEntry)]
        threads = {each.thread_id async for each in client.threads()}
    assert proxy.lose_answers == 0
    assert sum(b"/messages" in request for request in proxy.requests) == 3
    assert [entry.id for entry in said] == [message_id]
    assert threads == {thread.id, other.id}


# Agents that are slow


async def test_an_agent_that_does_not_answer_is_given_up(sink: Sink) -> None:
    sink.otherwise = never
    async with Client(sink.url, timeouts=ClientTimeouts(answer=0.2), retries=QUICK) as client:
        with pytest.raises(AgentTimeout, match=rf"{sink.url} did not answer within 0.2 s.*same idempotency key"):
            await client.thread("t").send("hello")
    assert len(sink.posts) == 1


async def test_nor_is_one_waited_for_that_answers_drop_by_drop(sink: Sink) -> None:
    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(1000):
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.02)

    sink.otherwise = drip
    async with Client(sink.url, timeouts=ClientTimeouts(answer=0.3), retries=QUICK) as client:
        begin = time.monotonic()
        with pytest.raises(AgentTimeout):
            await client.agent()
    assert time.monotonic() - begin < 5


async def test_an_answer_that_breaks_off_is_asked_for_again(sink: Sink, client: Client) -> None:
    async def half(writer: asyncio.StreamWriter) -> None:
        writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"version"')
        await writer.drain()
        writer.transport.abort()

    sink.script = [half]
    sink.otherwise = FINE
    assert (await client.agent()).version == "1"


async def test_a_request_can_be_cancelled_and_the_client_goes_on(sink: Sink, client: Client) -> None:
    sink.script = [never]
    sink.otherwise = FINE
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await client.agent()

    assert (await client.agent()).version == "1"


# Settings


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8700",
        "ftp://agent",
        "http://",
        "http://agent:port",
        "http://[::1",
        "http://a b",
        "http://a/?x=1",
        "http://a/#x",
        "http://\ud800",
    ],
)
def test_what_is_no_url_of_an_agent_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"Write it like http://127\.0\.0\.1:8700"):
        Client(url)


def test_a_password_in_the_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError) as raised:
        Client("http://me:s3cret@agent")
    assert "s3cret" not in str(raised.value)


def test_a_token_that_no_header_can_hold_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError) as raised:
        Client("http://agent", token="s3cret\n")
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize("wrong", [{"connect": 0}, {"answer": -1}, {"quiet": float("inf")}])
def test_timeouts_are_numbers_of_seconds(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        ClientTimeouts(**wrong)


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"first_pause": -1}, {"first_pause": 5, "longest_pause": 1}])
def test_retries_make_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ClientRetries(**wrong)


def test_pauses_grow_to_the_longest_and_differ() -> None:
    retries = ClientRetries(first_pause=1, longest_pause=8)

    assert [retries.pause(failures, 0.0) for failures in (1, 2, 3, 4, 5, 10_000)] == [1, 2, 4, 8, 8, 8]
    assert retries.pause(3, 0.5) == 3


async def test_an_agent_below_a_path_is_found(sink: Sink) -> None:
    sink.otherwise = FINE
    async with Client(f"{sink.url}/my agents/ö/".replace(" ", "%20"), retries=QUICK) as client:
        await client.agent()
    assert sink.posts[0].target == "/my%20agents/%C3%B6/v1/agent"


@pytest.mark.parametrize("id", ["", ".", ".."])
async def test_an_id_that_would_lead_elsewhere_is_not_sent(sink: Sink, client: Client, id: str) -> None:
    for attempt in (client.thread(id).get, lambda: client.thread("t").cancel(id)):
        with pytest.raises(NotFound):
            await attempt()
    assert sink.posts == []


@pytest.mark.parametrize("id", ["../agent", "a/b", "a?b#c", "%2e%2e", "ü", "\ud800", "a b"])
async def test_any_other_id_stays_in_its_place(sink: Sink, client: Client, id: str) -> None:
    sink.otherwise = problem(404)
    with pytest.raises(NotFound):
        await client.thread(id).cancel(id)
    assert sink.posts[0].target.count("/") == 6
    assert sink.posts[0].target.startswith("/v1/threads/")
    assert "?" not in sink.posts[0].target


@pytest.mark.parametrize("key", ["", "a b", "ä", "x" * 256, "a\n"])
async def test_a_key_that_no_agent_takes_is_not_sent(sink: Sink, client: Client, key: str) -> None:
    with pytest.raises(BadRequest, match="1 to 255 printable"):
        await client.thread("t").send("hello", idempotency_key=key)
    assert sink.posts == []


async def test_what_is_no_text_is_not_sent(sink: Sink, client: Client) -> None:
    with pytest.raises(BadRequest, match="not Unicode"):
        await client.thread("t").send("\ud800")
    with pytest.raises(BadRequest, match="infinite"):
        await client.thread("t").grant(cost=float("nan"))
    assert sink.posts == []


async def test_a_client_that_is_not_open_says_so() -> None:
    client = Client("http://127.0.0.1:1")
    with pytest.raises(ConfigError, match="async with Client"):
        await client.agent()
    async with client:
        with pytest.raises(ConfigError, match="open already"):
            await client.__aenter__()
    with pytest.raises(ConfigError, match="async with Client"):
        await client.agent()


SCRIPT = """
import asyncio, atexit, sys, time
from rapkit import Client

atexit.register(lambda: print(time.monotonic() - ended > 0.04))

async def main():
    async with Client(sys.argv[1]) as client:
        print((await client.agent()).model)

asyncio.run(main())
ended = time.monotonic()
"""


async def test_a_script_that_ends_right_after_its_request_ends_well(sink: Sink) -> None:
    """The HTTP library's thread now and then aborts an interpreter that ends while it lets go of what a request needed."""
    sink.otherwise = FINE
    for _ in range(3):
        command = [sys.executable, "-c", SCRIPT, sink.url]
        ended = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "m\nTrue\n", "")


def test_the_client_loads_neither_a_web_server_nor_a_validation_library() -> None:
    heavy = ("starlette", "uvicorn", "pydantic", "apsw", "rapkit.runtime", "rapkit.server")
    told = f"import sys; from rapkit import Client; import rapkit.client; print([each for each in {heavy} if each in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"
