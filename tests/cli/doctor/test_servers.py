"""What is said of tool servers: those that answer, and those that something is wrong with."""

import json
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from rapkit.cli.doctor import clock, servers, tokens
from rapkit.cli.doctor.checked_agent import CheckedAgent
from rapkit.keyring import load_keyring
from rapkit.mailbox import NewBox
from rapkit.stores import open_store
from rapkit.stores.sqlite import SqliteStore
from tests.cli.doctor.checked_agents import checked, free_port
from tests.cli.foreign_server import ForeignServer

SECRET = "xyzzy-xyzzy-xyzzy-xyzzy"


def entry(url: str, more: str = "") -> str:
    return f'url = "{url}"\n{more}'


def test_one_that_is_well(tmp_path: Path, stranger: ForeignServer) -> None:
    stranger.offer()

    (result,) = servers.check(checked(tmp_path, "", entry(stranger.url, f'token = "{SECRET}"')))

    assert result.state == "ok"
    assert result.seen.startswith(f"{stranger.url}: strange, 1 tool, in ")
    assert stranger.headers[0]["authorization"] == f"Bearer {SECRET}"
    assert SECRET not in result.seen


def test_one_whose_toolset_has_unusable_parts(tmp_path: Path, stranger: ForeignServer) -> None:
    """Item 12"""
    stranger.offer()
    odd = json.loads(stranger.document) | {"version": 3}
    stranger.document = json.dumps(odd).encode()

    (result,) = servers.check(checked(tmp_path, "", entry(stranger.url)))

    assert result.state == "warning"
    assert "ignored, because it cannot be used: toolset: version: a number, must be a string" in result.seen
    assert f"rapkit inspect {stranger.url}" in result.do

    odd["tools"].append({**odd["tools"][0], "name": "a b"})
    stranger.document = json.dumps(odd).encode()

    (result,) = servers.check(checked(tmp_path, "", entry(stranger.url)))

    assert result.state == "warning"
    assert "withheld from the model: a b." in result.seen
    assert "ignored, because it cannot be used: toolset: version" in result.seen


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize(
    ("token", "sent", "seen", "do"),
    [
        (
            "",
            None,
            "it wants credentials, and none are configured",
            "Put credentials for it into {file}: [[servers]] with url = ",
        ),
        (
            f'token = "{SECRET}"',
            f"Bearer {SECRET}",
            "it wants a token, and the one that is configured is not one it knows",
            "Correct the token of this server in {file}",
        ),
        (
            'token = "env:TOOLS"',
            f"Bearer {SECRET}",
            "it wants a token, and the one from env:TOOLS is not one it knows",
            "Correct the token of this server in {file}, or what it refers to",
        ),
    ],
    ids=["none", "wrong", "wrong in a variable"],
)
def test_one_that_tells_everybody_what_it_offers_and_takes_no_calls(
    tmp_path: Path,
    stranger: ForeignServer,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    token: str,
    sent: str | None,
    seen: str,
    do: str,
) -> None:
    """Seen without calling anything: what is sent is no message of the protocol."""
    monkeypatch.setenv("TOOLS", SECRET)
    stranger.offer()
    stranger.status = status
    examined = checked(tmp_path, "", entry(stranger.url, token))

    (result,) = servers.check(examined)

    assert result.state == "failed"
    assert result.seen.endswith(f" ms; but calls are answered {status}: {seen}")
    assert result.do.startswith(do.format(file=examined.config))
    assert (stranger.received, stranger.authorizations) == ([{}], [sent])
    assert SECRET not in result.seen + result.do


@pytest.mark.parametrize("status", [200, 302, 400, 404, 415, 422, 429, 500, 503])
def test_one_that_refuses_no_message_but_not_its_sender_takes_the_token(
    tmp_path: Path, stranger: ForeignServer, status: int
) -> None:
    stranger.offer()
    stranger.status = status

    (result,) = servers.check(checked(tmp_path, "", entry(stranger.url)))

    assert (result.state, stranger.received) == ("ok", [{}])


def test_one_whose_tools_are_where_nobody_is(tmp_path: Path, stranger: ForeignServer) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    stranger.offer()
    stranger.document = stranger.document.replace(stranger.url.encode(), nobody.encode())

    (result,) = servers.check(checked(tmp_path, "", entry(stranger.url)))

    assert result.state == "failed"
    assert f"; but calls do not get to where it says that they go: {nobody}: Connection refused" in result.seen
    assert result.do == "Have it started with the --public-url at which this machine reaches it."


@pytest.mark.parametrize(
    ("elsewhere", "why"),
    [("https://10.0.0.1", "private"), ("http://93.184.216.34", "plain http"), ("http://169.254.169.254", "link-local")],
)
def test_one_whose_tools_are_where_an_agent_would_not_go_is_not_followed_there(
    tmp_path: Path, stranger: ForeignServer, monkeypatch: pytest.MonkeyPatch, elsewhere: str, why: str
) -> None:
    def dialled(*_: object) -> None:
        pytest.fail("it was dialled")

    monkeypatch.setattr(tokens, "post", dialled)
    stranger.offer()
    stranger.document = stranger.document.replace(stranger.url.encode(), elsewhere.encode())

    (result,) = servers.check(checked(tmp_path, "", entry(stranger.url, f'token = "{SECRET}"')))

    assert result.state == "failed"
    assert why in result.seen


def test_a_name_is_dialled_where_it_was_judged_to_be(tmp_path: Path, stranger: ForeignServer) -> None:
    by_name = stranger.url.replace("127.0.0.1", "localhost")
    stranger.offer()
    stranger.document = stranger.document.replace(stranger.url.encode(), by_name.encode())

    (result,) = servers.check(checked(tmp_path, "", entry(by_name)))

    assert (result.state, stranger.received) == ("ok", [{}])


def test_one_that_is_down_takes_nothing_from_the_others(tmp_path: Path, stranger: ForeignServer) -> None:
    stranger.offer()
    nobody = f"http://127.0.0.1:{free_port()}"

    down, well = servers.check(checked(tmp_path, "", entry(nobody), entry(stranger.url)))

    assert (down.state, well.state) == ("failed", "ok")
    assert down.seen.startswith(f"{nobody}: Connection refused")
    assert down.do == "Start it, or correct its url in the settings."


@pytest.mark.parametrize(
    ("token", "do"),
    [(f'token = "{SECRET}"', "Correct the token of this server in "), ("", "Put credentials for it into ")],
    ids=["wrong", "none"],
)
def test_one_that_wants_a_token_before_it_says_anything(
    tmp_path: Path, stranger: ForeignServer, token: str, do: str
) -> None:
    stranger.discovery_status = 401

    (result,) = servers.check(checked(tmp_path, "", entry(stranger.url, token)))

    assert result.state == "failed"
    assert result.do.startswith(do)
    assert "answered 401" in result.seen
    assert SECRET not in result.seen
    assert stranger.received == []


@pytest.mark.parametrize(
    ("status", "do"),
    [
        (404, "Correct its url in the settings."),
        (405, "Correct its url in the settings."),
        (302, "Correct its url in the settings."),
        (502, "Start it, or correct its url in the settings."),
    ],
)
def test_tokens_are_not_spoken_of_where_something_else_is_wrong(
    tmp_path: Path, stranger: ForeignServer, status: int, do: str
) -> None:
    stranger.discovery_status = status

    (result,) = servers.check(checked(tmp_path, "", entry(stranger.url)))

    assert (result.state, result.do) == ("failed", do)
    assert f"answered {status}" in result.seen


@pytest.mark.parametrize(
    ("reference", "seen"),
    [
        ("env:NOT_THERE", "The environment variable NOT_THERE is not set"),
        ("file:not-there", "No secret can be read from "),
    ],
    ids=["variable", "file"],
)
def test_a_token_that_is_not_there(
    tmp_path: Path, stranger: ForeignServer, monkeypatch: pytest.MonkeyPatch, reference: str, seen: str
) -> None:
    monkeypatch.delenv("NOT_THERE", raising=False)

    (result,) = servers.check(checked(tmp_path, "", entry(stranger.url, f'token = "{reference}"')))

    assert result.state == "failed"
    assert f"{stranger.url}: {seen}" in result.seen
    assert result.do == "Check its token in the settings."


def test_one_that_is_no_tool_server(tmp_path: Path, stranger: ForeignServer) -> None:
    stranger.document = b'{"name": "other", "tools": []}'

    (result,) = servers.check(checked(tmp_path, "", entry(stranger.url)))

    assert result.state == "failed"
    assert "is not a valid toolset: toolset: endpoint: missing" in result.seen
    assert result.do == f"Tell whoever runs it; `rapkit inspect {stranger.url}` shows all of it."


def test_tools_that_are_withheld_and_tools_that_are_not_there(tmp_path: Path, stranger: ForeignServer) -> None:
    """DIS-5: of tools with the same name none is offered to the model."""
    stranger.offer()
    twice = [entry(stranger.url), entry(f"{stranger.url}/")]
    twice[1] = entry(stranger.url.replace("127.0.0.1", "localhost"))

    *both, unknown = servers.check(checked(tmp_path, '[agent.call_timeouts]\nwacth = "5m"', *twice))

    for result in both:
        assert (result.state, result.do) == (
            "warning",
            "Give one of the servers a prefix, or have the tool renamed or corrected.",
        )
        assert "; withheld from the model: watch. " in result.seen
    assert (unknown.check, unknown.state) == ("tools", "warning")
    assert "[agent.call_timeouts] names 'wacth'" in unknown.seen
    assert "Did you mean 'watch'?" in unknown.seen


def test_without_servers_and_without_settings_there_is_nobody_to_ask(tmp_path: Path) -> None:
    assert [result.state for result in servers.check(checked(tmp_path))] == ["skipped"]
    assert [result.state for result in servers.check(CheckedAgent(Path("x"), None, "", tmp_path))] == ["skipped"]


def test_a_stranger_with_a_large_document_is_refused(tmp_path: Path, stranger: ForeignServer) -> None:
    stranger.document = json.dumps({"name": "x" * 5 * 1024 * 1024}).encode()

    (result,) = servers.check(checked(tmp_path, "", entry(stranger.url)))

    assert "answered with more than" in result.seen


# The clock


def test_a_clock_that_is_right(tmp_path: Path, stranger: ForeignServer) -> None:
    stranger.offer()

    (result,) = clock.check(checked(tmp_path, "", entry(stranger.url)))

    assert result.state == "ok"


@pytest.mark.parametrize(
    ("seconds", "said"), [(-7200, "it is 2 h ahead of that of "), (600, "it is 10 min behind that of ")]
)
def test_a_clock_that_differs_from_a_servers(
    tmp_path: Path, stranger: ForeignServer, monkeypatch: pytest.MonkeyPatch, seconds: int, said: str
) -> None:
    right = BaseHTTPRequestHandler.date_time_string
    monkeypatch.setattr(
        BaseHTTPRequestHandler, "date_time_string", lambda self, _=None: right(self, int(time.time()) + seconds)
    )

    (result,) = clock.check(checked(tmp_path, "", entry(stranger.url)))

    assert result.state == "failed"
    assert said + stranger.url in result.seen


async def test_a_store_from_the_future(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    await open_store(f"sqlite:///{path}").close()
    store = SqliteStore(str(path), load_keyring(path), clock=lambda: time.time() + 3 * 86400)
    await store.create(NewBox("t1", "thread", b"{}", root="t1"))
    await store.close()

    (result,) = clock.check(checked(tmp_path, 'store = "sqlite:///agent.db"'))

    assert result.state == "failed"
    assert "the store has something from 3 d later" in result.seen


def test_a_clock_that_stands_long_ago_or_jumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([2_000_000_000.0, 2_000_000_000.0, 2_000_003_600.0])
    examined = checked(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: next(times, 2_000_003_600.0))
        (jumped,) = clock.check(examined)
        patched.setattr(time, "time", lambda: 1000.0)
        (ago,) = clock.check(examined)

    assert "it was set by +3600 s just now" in jumped.seen
    assert ago.seen.endswith("that is long ago")


def test_without_time_zones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(key: str) -> None:
        raise LookupError(key)

    monkeypatch.setattr(clock, "ZoneInfo", missing)

    (result,) = clock.check(checked(tmp_path))

    assert (result.state, result.do) == ("warning", "Run: pip install tzdata")
