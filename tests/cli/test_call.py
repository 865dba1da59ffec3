"""`rapkit call`."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import TOOLS, Outcome, Running, eventually, rapkit, running
from tests.cli.stranger import Stranger

TOKEN = "abcdefghijklmnopqrst"


@pytest.fixture
def call(served: Running, tmp_path: Path) -> "Caller":
    return Caller(served.url, tmp_path)


class Caller:
    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder

    def __call__(self, *words: str) -> Outcome:
        return rapkit("call", self._url, *words, folder=self._folder)


def test_the_answer_is_printed(call: Caller) -> None:
    assert call("forecast", "city=Oslo", "days=2") == Outcome(0, "Sunny in Oslo for 2 days, in °C.\n", "")


def test_values_are_read_as_the_schema_says(call: Caller) -> None:
    words = ("text=3", "number=1e3", "flag=True", "tags:=[]", 'more={"a": 1}')

    assert json.loads(call("echo", *words).out) == {
        "text": "3",
        "number": 1000,
        "flag": True,
        "tags": [],
        "more": {"a": 1},
    }


def test_an_error_result_has_a_code_of_its_own(call: Caller) -> None:
    assert call("refuse") == Outcome(1, "Error: There is no such station.\n", "")


def test_an_image_is_named(call: Caller) -> None:
    assert call("picture").out == "Here it is:\n\n[image/png, 4 bytes]\n"


def test_a_result_does_not_steer_the_terminal(call: Caller) -> None:
    assert call("colour").out == "\N{REPLACEMENT CHARACTER}[31mred\n"


def test_json_is_the_message(call: Caller) -> None:
    message = json.loads(call("picture", "--json").out)

    assert message["type"] == "tool_result"
    assert message["content"][1] == {"type": "image", "data": "iVBORw==", "mediaType": "image/png"}


def test_an_answer_that_does_not_come_in_time(call: Caller, tmp_path: Path) -> None:
    outcome = call("nap", "seconds=0.7", f"started={tmp_path / 'started'}", "--timeout", "0.1")

    assert outcome.code == 3
    assert outcome.out == ""
    assert outcome.err.startswith("no answer within 0.1 s; the call call_")


def test_ctrl_c_stops_waiting(served: Running, tmp_path: Path) -> None:
    started = tmp_path / "started"
    with running("call", served.url, "nap", "seconds=1", f"started={started}", folder=tmp_path) as waiting:
        eventually(started.exists)
        waiting.send(signal.SIGINT)

        assert waiting.ended() == 130
        assert waiting.err.startswith("not waiting any longer; the call call_")
        assert "Traceback" not in waiting.err


def test_the_answer_can_go_elsewhere(call: Caller, stranger: Stranger) -> None:
    outcome = call("forecast", "city=Oslo", "--callback-url", f"{stranger.url}/there")

    assert outcome.code == 0
    assert outcome.out == ""
    assert outcome.err.endswith(f"; the answer goes to {stranger.url}/there\n")
    eventually(lambda: bool(stranger.received))
    assert stranger.received[0]["text"] == "Sunny in Oslo for 3 days, in °C."


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("forcast",), "has no operation 'forcast'. It offers: forecast, echo, "),
        (("forecast",), "The arguments do not fit forecast:\n  city: required, but missing"),
        (("echo", "--timeout", "inf"), "--timeout is a number of seconds above 0."),
        (("echo", "--callback-url", "there"), "/invoke answered 400: invocation.callback_url: "),
        (("echo", "--callback-url", "http://10.0.0.1/"), "leads to 10.0.0.1, which is private"),
    ],
)
def test_a_call_that_cannot_be_made(call: Caller, words: tuple[str, ...], said: str) -> None:
    outcome = call(*words)

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("rapkit: ")
    assert said in outcome.err
    assert "Traceback" not in outcome.err


def test_a_server_that_is_down(tmp_path: Path) -> None:
    outcome = rapkit("call", "http://127.0.0.1:9", "forecast", folder=tmp_path)

    assert outcome.code == 2
    assert outcome.err.startswith("rapkit: http://127.0.0.1:9 cannot be reached: Connection refused")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("guarded")
    with running("serve", str(TOOLS), "--port", "0", "--token", f"agent={TOKEN}", folder=folder) as server:
        assert server.url
        yield server


@pytest.mark.parametrize(
    ("token", "code", "said"),
    [
        (("--token", "env:AGENT"), 0, "Sunny in Oslo"),
        (("--token", "guessed"), 2, "answered 401"),
        ((), 2, "answered 401"),
    ],
)
def test_a_token_lets_you_in(guarded: Running, tmp_path: Path, token: tuple[str, ...], code: int, said: str) -> None:
    words = ("call", guarded.url, "forecast", "city=Oslo", *token)
    outcome = rapkit(*words, folder=tmp_path, environment={"AGENT": TOKEN})

    assert outcome.code == code
    assert said in outcome.out + outcome.err


def test_a_subscription_is_followed_to_its_end(stranger: Stranger, tmp_path: Path) -> None:
    stranger.offer()
    stranger.callbacks = [
        {"type": "tool_result", "text": "Watching.", "subscription": True},
        {"type": "subscription_event", "text": "Thunder."},
        {"type": "subscription_event", "text": "Silence.", "final": True},
    ]
    assert rapkit("call", stranger.url, "watch", folder=tmp_path) == Outcome(0, "Watching.\nThunder.\nSilence.\n", "")


def test_a_subscription_that_does_not_end_in_time(stranger: Stranger, tmp_path: Path) -> None:
    stranger.offer()
    stranger.callbacks = [{"type": "tool_result", "text": "Watching.", "subscription": True}]
    outcome = rapkit("call", stranger.url, "watch", "--timeout", "1", folder=tmp_path)

    assert (outcome.code, outcome.out) == (3, "Watching.\n")
    assert outcome.err.startswith("no end within 1 s; ")


def test_what_a_person_has_to_do_is_said(stranger: Stranger, tmp_path: Path) -> None:
    choice = {"prompt": "Really?", "choices": ["Yes", "No"], "default": 1, "response_url": "http://127.0.0.1:9/c"}
    stranger.offer()
    stranger.callbacks = [
        {"type": "oauth", "auth_url": "https://login.example.com/"},
        {"type": "user_choice", **choice},
        {"type": "tool_result", "content": [{"type": "text", "text": "Error: no"}, image()]},
    ]
    outcome = rapkit("call", stranger.url, "watch", folder=tmp_path)

    assert outcome.out.splitlines() == [
        "It needs your authorisation: https://login.example.com/",
        "Really?",
        "  0: Yes",
        "  1: No (the default)",
        "It waits for a choice, to be sent to http://127.0.0.1:9/c",
        "Error: no",
        "[image/png]",
    ]
    assert outcome.code == 1


def image() -> dict[str, Any]:
    return {"type": "image", "data": "iVBORw==", "mediaType": "image/png"}


def test_a_server_that_does_not_take_it(stranger: Stranger, tmp_path: Path) -> None:
    stranger.offer()
    stranger.status = 503
    outcome = rapkit("call", stranger.url, "watch", folder=tmp_path)

    assert outcome == Outcome(2, "", f"rapkit: {stranger.url}/invoke answered 503: no explanation\n")
