"""What is said of tool servers: those that answer, and those that something is wrong with."""

import json
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from rapkit.cli.doctor import clock, servers
from rapkit.cli.doctor.patient import Patient
from rapkit.keys import load_keyring
from rapkit.mailbox import NewBox
from rapkit.stores import open_store
from rapkit.stores.sqlite import SqliteStore
from tests.cli.doctor.patients import free_port, patient
from tests.cli.stranger import Stranger

SECRET = "xyzzy-xyzzy-xyzzy-xyzzy"


def entry(url: str, more: str = "") -> str:
    return f'url = "{url}"\n{more}'


def test_one_that_is_well(tmp_path: Path, stranger: Stranger) -> None:
    stranger.offer()

    (verdict,) = servers.check(patient(tmp_path, "", entry(stranger.url, f'token = "{SECRET}"')))

    assert verdict.state == "ok"
    assert verdict.seen.startswith(f"{stranger.url}: strange, 1 tool, in ")
    assert stranger.headers[0]["authorization"] == f"Bearer {SECRET}"
    assert SECRET not in verdict.seen


def test_one_that_is_down_takes_nothing_from_the_others(tmp_path: Path, stranger: Stranger) -> None:
    stranger.offer()
    nobody = f"http://127.0.0.1:{free_port()}"

    down, well = servers.check(patient(tmp_path, "", entry(nobody), entry(stranger.url)))

    assert (down.state, well.state) == ("failed", "ok")
    assert down.seen.startswith(f"{nobody}: Connection refused")
    assert down.do == "Start it, or correct its url in the settings."


@pytest.mark.parametrize("token", [f'token = "{SECRET}"', ""], ids=["wrong", "none"])
def test_one_that_does_not_take_the_token(tmp_path: Path, stranger: Stranger, token: str) -> None:
    stranger.discovery_status = 401

    (verdict,) = servers.check(patient(tmp_path, "", entry(stranger.url, token)))

    assert (verdict.state, verdict.do) == ("failed", "Check its token in the settings.")
    assert "answered 401" in verdict.seen
    assert SECRET not in verdict.seen


def test_a_token_that_is_not_there(tmp_path: Path, stranger: Stranger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_THERE", raising=False)

    (verdict,) = servers.check(patient(tmp_path, "", entry(stranger.url, 'token = "env:NOT_THERE"')))

    assert verdict.state == "failed"
    assert f"{stranger.url}: The environment variable NOT_THERE is not set" in verdict.seen
    assert verdict.do == "Check its token in the settings."


def test_one_that_is_no_tool_server(tmp_path: Path, stranger: Stranger) -> None:
    stranger.document = b'{"name": "other", "tools": []}'

    (verdict,) = servers.check(patient(tmp_path, "", entry(stranger.url)))

    assert verdict.state == "failed"
    assert "is not a valid toolset: toolset: endpoint: missing" in verdict.seen
    assert verdict.do == f"Tell whoever runs it; `rapkit inspect {stranger.url}` shows all of it."


def test_tools_that_are_withheld_and_tools_that_are_not_there(tmp_path: Path, stranger: Stranger) -> None:
    """DIS-5: of tools with the same name none is offered to the model."""
    stranger.offer()
    twice = [entry(stranger.url), entry(f"{stranger.url}/")]
    twice[1] = entry(stranger.url.replace("127.0.0.1", "localhost"))

    *both, unknown = servers.check(patient(tmp_path, '[agent.call_timeouts]\nwacth = "5m"', *twice))

    for verdict in both:
        assert (verdict.state, verdict.do) == ("warning", "Give one of the servers a prefix, or have the tool renamed.")
        assert "; withheld from the model: watch. " in verdict.seen
    assert (unknown.check, unknown.state) == ("tools", "warning")
    assert "[agent.call_timeouts] names 'wacth'" in unknown.seen
    assert "Did you mean 'watch'?" in unknown.seen


def test_without_servers_and_without_settings_there_is_nobody_to_ask(tmp_path: Path) -> None:
    assert [verdict.state for verdict in servers.check(patient(tmp_path))] == ["skipped"]
    assert [verdict.state for verdict in servers.check(Patient(Path("x"), None, "", tmp_path))] == ["skipped"]


def test_a_stranger_with_a_large_document_is_refused(tmp_path: Path, stranger: Stranger) -> None:
    stranger.document = json.dumps({"name": "x" * 5 * 1024 * 1024}).encode()

    (verdict,) = servers.check(patient(tmp_path, "", entry(stranger.url)))

    assert "answered with more than" in verdict.seen


# The clock


def test_a_clock_that_is_right(tmp_path: Path, stranger: Stranger) -> None:
    stranger.offer()

    (verdict,) = clock.check(patient(tmp_path, "", entry(stranger.url)))

    assert verdict.state == "ok"


@pytest.mark.parametrize(
    ("seconds", "said"), [(-7200, "it is 2 h ahead of that of "), (600, "it is 10 min behind that of ")]
)
def test_a_clock_that_differs_from_a_servers(
    tmp_path: Path, stranger: Stranger, monkeypatch: pytest.MonkeyPatch, seconds: int, said: str
) -> None:
    right = BaseHTTPRequestHandler.date_time_string
    monkeypatch.setattr(
        BaseHTTPRequestHandler, "date_time_string", lambda self, _=None: right(self, int(time.time()) + seconds)
    )

    (verdict,) = clock.check(patient(tmp_path, "", entry(stranger.url)))

    assert verdict.state == "failed"
    assert said + stranger.url in verdict.seen


async def test_a_store_from_the_future(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    await open_store(f"sqlite:///{path}").close()
    store = SqliteStore(str(path), load_keyring(path), clock=lambda: time.time() + 3 * 86400)
    await store.create(NewBox("t1", "thread", b"{}", root="t1"))
    await store.close()

    (verdict,) = clock.check(patient(tmp_path, 'store = "sqlite:///agent.db"'))

    assert verdict.state == "failed"
    assert "the store has something from 3 d later" in verdict.seen


def test_a_clock_that_stands_long_ago_or_jumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([2_000_000_000.0, 2_000_000_000.0, 2_000_003_600.0])
    examined = patient(tmp_path)
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

    (verdict,) = clock.check(patient(tmp_path))

    assert (verdict.state, verdict.do) == ("warning", "Run: pip install tzdata")
