"""The command line's client of an agent: what it sends, what it makes of answers, and how it can be ended."""

import contextlib
import json
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from rapkit.cli.agent_api import AgentApi, AgentRefused, AgentTimeout, AgentUnreachable, StreamEvent
from rapkit.cli.agent_selection import AgentSelection, reach_agent
from rapkit.errors import ConfigError
from tests.cli.fake_agent import Answer, FakeAgent, document, entry, events, problem, raw

TOKEN = secrets.token_urlsafe()


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentApi]:
    """A real agent that wants a token."""
    folder: Path = tmp_path_factory.mktemp("agent")
    (folder / "plan.yaml").write_text("- say: Hello.\n")
    (folder / "rapkit.toml").write_text(
        f'[agent]\nmodel = "scripted:plan.yaml"\nport = 0\n[agent.tokens]\nme = "{TOKEN}"\n'
    )
    with reach_agent(AgentSelection(str(folder / "rapkit.toml")), working=True) as agent:
        yield agent.api


def test_the_token_and_the_path_are_sent(impostor: FakeAgent) -> None:
    impostor.answers = [document({"threads": []})]

    AgentApi(f"{impostor.url}/behind/a/proxy/", "secret").get("threads", limit=5, status=None)

    (request,) = impostor.requests
    assert (request.method, request.path) == ("GET", "/behind/a/proxy/v1/threads?limit=5")
    assert request.headers["authorization"] == "Bearer secret"


def test_a_real_agent_is_talked_to(agent: AgentApi) -> None:
    first = agent.post("threads", {"text": "Hi"}, key="k1")
    again = agent.post("threads", {"text": "Hi"}, key="k1")

    assert first == again
    assert agent.get(f"threads/{first['thread_id']}")["thread_id"] == first["thread_id"]


@pytest.mark.parametrize(
    ("token", "hint"), [(None, "Give it with --token, or in RAPKIT_TOKEN."), ("x" * 30, "Is the token right?")]
)
def test_without_the_right_token_it_says_what_to_do(agent: AgentApi, token: str | None, hint: str) -> None:
    with pytest.raises(AgentRefused) as caught:
        AgentApi(agent.url, token).get("threads")

    assert caught.value.status == 401
    assert str(caught.value).endswith(hint)
    assert (token or TOKEN) not in str(caught.value)


def test_a_refusal_without_words_says_what_to_do_too(impostor: FakeAgent) -> None:
    impostor.answers = [raw(b"", 401)]
    with pytest.raises(
        AgentRefused, match=r"answered 401, so it wants a token\. Give it with --token, or in RAPKIT_TOKEN"
    ):
        AgentApi(impostor.url).get("threads")
    with pytest.raises(AgentRefused, match=r"answered 401, so it wants a token\. Is the token right\?"):
        AgentApi(impostor.url, "wrong").get("threads")


def test_a_refusal_is_told_in_the_agents_words(agent: AgentApi, impostor: FakeAgent) -> None:
    with pytest.raises(AgentRefused, match=r"^There is no thread 'thr_none'\.$") as caught:
        agent.get("threads/thr_none")
    assert caught.value.status == 404

    impostor.answers = [problem(409, "No.\x1b[31m")]
    with pytest.raises(AgentRefused) as caught:
        AgentApi(impostor.url).post("threads")
    assert str(caught.value) == "No.\N{REPLACEMENT CHARACTER}[31m"


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:8700", "ftp://127.0.0.1", "http://", "http://here:port", "http://[::1", "http://here/?x=1"],
)
def test_what_is_no_url_of_an_agent_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="is not where an agent could be"):
        AgentApi(url)


def test_nobody_there() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(
            AgentUnreachable, match=f"^{url} cannot be reached: Connection refused. Is the agent running there"
        ):
            AgentApi(url).get("threads")


def test_what_is_no_agent(impostor: FakeAgent) -> None:
    api = AgentApi(impostor.url)
    impostor.answers = [raw(b"<html>Hello</html>")]
    with pytest.raises(AgentRefused, match=r"did not answer as an agent does\. Is that an agent"):
        api.get("threads")
    impostor.answers = [raw(b"<html>Nothing</html>", 404)]
    with pytest.raises(AgentRefused, match=r"answered 404\. Is there an agent\?"):
        api.get("threads")
    impostor.answers = [raw(b"<html>Oh</html>", 502)]
    with pytest.raises(AgentUnreachable, match=r"answered 502: Is there an agent\?"):
        api.get("threads")


@pytest.mark.parametrize(
    "answer",
    [document([1, 2]), document(None), raw(b"[" * 100_000), raw(b'{"a":' * 100_000)],
    ids=["a list", "nothing", "deep lists", "deep objects"],
)
def test_answers_of_another_shape_are_no_agents(impostor: FakeAgent, answer: Answer) -> None:
    impostor.answers = [answer]

    with pytest.raises(AgentRefused, match="did not answer as an agent does"):
        AgentApi(impostor.url).get("threads")


def test_what_an_answer_lacks_is_not_our_mistake(impostor: FakeAgent) -> None:
    impostor.answers = [document({"hello": {"world": 1}})]
    answer = AgentApi(impostor.url).get("threads")

    assert answer.get("threads") is None
    for lacking in (answer, answer["hello"]):
        with pytest.raises(AgentRefused, match="did not answer as an agent does: it says nothing of threads"):
            _ = lacking["threads"]


def test_an_answer_that_is_too_large_is_not_read(impostor: FakeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rapkit.cli.agent_api._LARGEST", 1000)
    api = AgentApi(impostor.url)
    impostor.answers = [document({"text": "x" * 1000})]
    with pytest.raises(AgentRefused, match="did not answer as an agent does"):
        api.get("threads")
    for parts in ([b"data: " + b"x" * 1000], [b"data: xxxx\n"] * 100):
        impostor.answers = [events(*parts)]
        with pytest.raises(AgentRefused, match="did not answer with a stream of events"):
            list(api.stream("t"))
    impostor.answers = [events(*[entry(number, text="x" * 500) for number in range(9)])]
    assert len(list(api.stream("t"))) == 9


@pytest.mark.parametrize("part", ["the head", "the body"])
def test_an_answer_that_never_ends_is_given_up(impostor: FakeAgent, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However steadily it comes."""
    monkeypatch.setattr("rapkit.cli.agent_api._LONGEST", 0.5)

    def drip(handler: BaseHTTPRequestHandler) -> None:
        if part == "the body":
            handler.send_response(200)
            handler.end_headers()
        with contextlib.suppress(OSError):
            while True:
                handler.wfile.write(b" ")
                time.sleep(0.01)

    impostor.answers = [drip]
    with pytest.raises(AgentUnreachable, match=r"cannot be reached: no whole answer within 0\.5 s"):
        AgentApi(impostor.url).get("threads")


@pytest.mark.parametrize("url", ["http://me:hunter2@127.0.0.1:9", "ftp://me:hunter2@here", "http://me:hunter2@[::1"])
def test_a_password_in_a_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ConfigError, match="holds no user name or password") as caught:
        AgentApi(url)
    assert "hunter2" not in str(caught.value)


def test_what_does_not_even_speak_http() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def babble() -> None:
            connection, _ = listener.accept()
            connection.sendall(b"220 mail\x1b[31m\x07 " + b"x" * 5000 + b"\r\n")
            connection.close()

        threading.Thread(target=babble, daemon=True).start()
        with pytest.raises(AgentUnreachable, match="cannot be reached: 220 mail\N{REPLACEMENT CHARACTER}") as caught:
            AgentApi(f"http://127.0.0.1:{listener.getsockname()[1]}").get("threads")

    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


def test_the_same_is_sent_again_to_an_agent_that_is_away(impostor: FakeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same key: the agent may have taken it before it was away."""
    monkeypatch.setattr("rapkit.cli.agent_api._PAUSE", 0.01)
    impostor.answers = [problem(503, "Not now."), problem(503, "Not now."), document({"thread_id": "t"}, 201)]

    assert AgentApi(impostor.url).post("threads", {"text": "x"}, patience=60) == {"thread_id": "t"}

    assert len(impostor.requests) == 3
    assert len({request.headers["idempotency-key"] for request in impostor.requests}) == 1
    assert {request.body for request in impostor.requests} == {json.dumps({"text": "x"}).encode()}


@pytest.mark.parametrize("how", ["says nothing", "says so without end", "is away"])
def test_an_agent_is_waited_for_as_long_as_there_is_time(impostor: FakeAgent, how: str) -> None:
    over = threading.Event()

    def dawdle(handler: BaseHTTPRequestHandler) -> None:
        with contextlib.suppress(OSError):
            while not over.wait(0.01):
                handler.wfile.write(b" " * (how == "says so without end"))

    impostor.answers = [problem(503, "Not now.") if how == "is away" else dawdle]
    try:
        with pytest.raises(AgentTimeout, match="did not answer in time"):
            AgentApi(impostor.url, ends_at=time.monotonic() + 0.5).post("threads", patience=3600)
    finally:
        over.set()


def test_without_patience_it_is_sent_once(impostor: FakeAgent) -> None:
    impostor.answers = [problem(503, "Not now.")]

    with pytest.raises(AgentUnreachable, match=r"answered 503: Not now\."):
        AgentApi(impostor.url).post("threads")

    assert len(impostor.requests) == 1


# Streams


def test_a_stream_is_read_event_by_event(impostor: FakeAgent) -> None:
    impostor.answers = [
        events(
            b"retry: 1000\n\n",
            entry(1, kind="user"),
            b": still here\n\n",
            b'event: delta\r\ndata: {"text":\r\ndata:  "\xc3\xb8"}\r\n\r\n',
            b'event: entry\nid: 2\ndata: {"unfinished": true}\n',
        )
    ]

    heard = list(AgentApi(impostor.url).stream("a/b", "0"))

    assert heard == [
        StreamEvent("entry", {"seq": 1, "at": 0.0, "kind": "user"}, "1"),
        StreamEvent("delta", {"text": "ø"}, None),
    ]
    assert impostor.requests[0].path == "/v1/threads/a%2Fb/events"
    assert impostor.requests[0].headers["last-event-id"] == "0"


def test_a_stream_that_is_no_stream_is_refused(impostor: FakeAgent) -> None:
    for answer in (
        raw(b"<html>"),
        document({"a": 1}),
        events(b"event: entry\ndata: {nonsense\n\n"),
        events(b"data: [1]\n\n"),
    ):
        impostor.answers = [answer]
        with pytest.raises(AgentRefused, match=r"did not answer with a stream of events\. Is that an agent\?"):
            list(AgentApi(impostor.url).stream("t"))


def test_a_stream_that_breaks_off_is_an_agent_that_is_away(impostor: FakeAgent) -> None:
    impostor.answers = [events(entry(1, kind="user"), cut=True)]
    stream = iter(AgentApi(impostor.url).stream("t"))

    assert next(stream).id == "1"
    with pytest.raises(AgentUnreachable):
        next(stream)


def test_a_stream_of_a_closed_thread_that_was_read(agent: AgentApi) -> None:
    thread_id = agent.post("threads")["thread_id"]
    agent.post(f"threads/{thread_id}/close")
    heard = list(agent.stream(thread_id))

    assert heard[-1].data["status"] == "closed"
    with pytest.raises(EOFError):
        list(agent.stream(thread_id, heard[-1].id))


def test_a_stream_of_nothing_is_refused(agent: AgentApi) -> None:
    with pytest.raises(AgentRefused, match="There is no thread 'thr_none'"):
        list(agent.stream("thr_none"))


def test_another_thread_can_end_a_stream(agent: AgentApi) -> None:
    stream = agent.stream(agent.post("threads")["thread_id"])
    heard = threading.Event()

    def end() -> None:
        heard.wait()
        stream.close()

    threading.Thread(target=end, daemon=True).start()

    for event in stream:
        assert event.kind == "status"
        heard.set()


def test_a_stream_that_was_ended_before_it_began(agent: AgentApi) -> None:
    stream = agent.stream(agent.post("threads")["thread_id"])
    stream.close()

    assert list(stream) == []
