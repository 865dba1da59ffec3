"""`rapkit call`."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import PATIENCE, TOOLS, Outcome, Running, eventually, rapkit, running
from tests.cli.foreign_server import ForeignServer

TOKEN = "abcdefghijklmnopqrst"
LASTING = TOOLS.with_name("durable_tools.py")
CANCELLED = r"cancelled the call call_\w+ on the server"


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


def test_a_result_is_shown_in_the_letters_it_is_written_in(stranger: ForeignServer, tmp_path: Path) -> None:
    text = "Prix\u202f: 10\u00a0km\u3000全角 👩\u200d💻 می\u200cروم"
    stranger.offer()
    stranger.callbacks = [{"type": "tool_result", "text": text}]

    assert rapkit("call", stranger.url, "watch", folder=tmp_path) == Outcome(0, f"{text}\n", "")


def test_a_result_does_not_steer_the_terminal(call: Caller) -> None:
    assert call("colour").out == "\N{REPLACEMENT CHARACTER}[31mred\n"


def test_json_is_the_message(call: Caller) -> None:
    message = json.loads(call("picture", "--json").out)

    assert message["type"] == "tool_result"
    assert message["content"][1] == {"type": "image", "data": "iVBORw==", "mediaType": "image/png"}


def test_an_answer_that_does_not_come_in_time(call: Caller, tmp_path: Path) -> None:
    outcome = call("nap", "seconds=0.7", f"started={tmp_path / 'started'}", "--timeout", "0.1s")

    assert outcome.code == 3
    assert outcome.out == ""
    assert re.fullmatch(rf"no answer within 0.1 s; {CANCELLED}\n", outcome.err)


def test_the_answer_can_go_elsewhere(call: Caller, stranger: ForeignServer) -> None:
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
        (("echo", "--timeout", "inf"), "--timeout inf is not a time. Write it like 45s, 5m or 1h."),
        (("echo", "--timeout", "0"), "--timeout 0 is not a time."),
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
        (("--token", "guessed"), 2, "Is the token right?"),
        ((), 2, "Give it credentials that it knows: --token, --sigv4 or --cert."),
    ],
)
def test_a_token_lets_you_in(guarded: Running, tmp_path: Path, token: tuple[str, ...], code: int, said: str) -> None:
    words = ("call", guarded.url, "forecast", "city=Oslo", *token)
    outcome = rapkit(*words, folder=tmp_path, environment={"AGENT": TOKEN})

    assert outcome.code == code
    assert said in outcome.out + outcome.err


def test_a_subscription_is_followed_to_its_end(stranger: ForeignServer, tmp_path: Path) -> None:
    stranger.offer()
    stranger.callbacks = [
        {"type": "tool_result", "text": "Watching.", "subscription": True},
        {"type": "subscription_event", "text": "Thunder."},
        {"type": "subscription_event", "text": "Silence.", "final": True},
    ]
    assert rapkit("call", stranger.url, "watch", folder=tmp_path) == Outcome(0, "Watching.\nThunder.\nSilence.\n", "")


def test_a_subscription_that_ends_with_an_error_has_the_code_of_one(stranger: ForeignServer, tmp_path: Path) -> None:
    stranger.offer()
    stranger.callbacks = [
        {"type": "tool_result", "text": "Watching.", "subscription": True},
        {"type": "subscription_event", "text": "Error: this one is not the last."},
        {"type": "subscription_event", "text": "Error: the station is closed.", "final": True},
    ]
    outcome = rapkit("call", stranger.url, "watch", folder=tmp_path)

    assert (outcome.code, outcome.out.splitlines()[-1]) == (1, "Error: the station is closed.")


def test_a_subscription_that_does_not_end_in_time(stranger: ForeignServer, tmp_path: Path) -> None:
    stranger.offer()
    stranger.callbacks = [{"type": "tool_result", "text": "Watching.", "subscription": True}]
    outcome = rapkit("call", stranger.url, "watch", "--timeout", "1", folder=tmp_path)

    assert (outcome.code, outcome.out) == (3, "Watching.\n")
    assert re.fullmatch(rf"no end within 1 s; {CANCELLED}\n", outcome.err)
    assert stranger.paths == ["/invoke", "/cancel_tool_call"]


def test_what_a_person_has_to_do_is_said(stranger: ForeignServer, tmp_path: Path) -> None:
    choice = {"prompt": "Really?", "choices": ["Yes", "No"], "default": 1, "response_url": "http://127.0.0.1:9/c"}
    stranger.offer()
    stranger.callbacks = [
        {"type": "oauth", "auth_url": "https://login.example.com/"},
        {"type": "user_choice", **choice},
        {"type": "tool_result", "content": [{"type": "text", "text": "Error: no"}, image()]},
    ]
    outcome = rapkit("call", stranger.url, "watch", folder=tmp_path)

    body = json.dumps({"id": stranger.received[0]["id"], "selected": 1})
    assert outcome.err.splitlines() == [
        "It needs your authorisation: https://login.example.com/",
        "? Really?",
        "   1  Yes",
        "   2  No (the default)",
        f"It waits for your choice. For 'No': curl -d '{body}' http://127.0.0.1:9/c  (selected counts from 0)",
    ]
    assert outcome.out == "Error: no\n[image/png]\n"
    assert outcome.code == 1


def image() -> dict[str, Any]:
    return {"type": "image", "data": "iVBORw==", "mediaType": "image/png"}


def test_a_server_that_does_not_take_it(stranger: ForeignServer, tmp_path: Path) -> None:
    stranger.offer()
    stranger.status = 503
    outcome = rapkit("call", stranger.url, "watch", folder=tmp_path)

    assert outcome == Outcome(2, "", f"rapkit: {stranger.url}/invoke answered 503: no explanation\n")


# Leaving before it has ended


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with calls that do not end by themselves."""
    with running("serve", str(LASTING), "--port", "0", folder=tmp_path_factory.mktemp("lasting")) as server:
        assert server.url
        yield server


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_subscription_ends_on_the_server_when_nobody_listens_any_longer(
    lasting: Running, tmp_path: Path, number: signal.Signals
) -> None:
    ended = tmp_path / "ended"
    with running("call", lasting.url, "watch", f"ended={ended}", folder=tmp_path) as waiting:
        eventually(lambda: "tick" in waiting.out)
        waiting.send(number)

        assert waiting.ended() == 128 + number
    eventually(ended.exists)
    assert re.fullmatch(rf"not waiting any longer; {CANCELLED}\n", waiting.err)


def test_so_does_a_call_that_is_not_answered_yet(lasting: Running, tmp_path: Path) -> None:
    started, ended = tmp_path / "started", tmp_path / "ended"
    with running("call", lasting.url, "sleep", f"started={started}", f"ended={ended}", folder=tmp_path) as waiting:
        eventually(started.exists)
        waiting.send(signal.SIGINT)

        assert waiting.ended() == 130
    eventually(ended.exists)
    assert re.fullmatch(rf"not waiting any longer; {CANCELLED}\n", waiting.err)


def test_so_does_one_whose_output_nobody_reads_any_longer(lasting: Running, tmp_path: Path) -> None:
    ended = tmp_path / "ended"
    words = [sys.executable, "-m", "rapkit", "call", lasting.url, "watch", f"ended={ended}"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as calling:
        assert calling.stdout is not None
        assert calling.stdout.readline().startswith(b"Subscribed to watch.")
        calling.stdout.close()
        assert calling.stderr is not None
        assert re.fullmatch(rf"not waiting any longer; {CANCELLED}\n", calling.stderr.read().decode())
        assert calling.wait(PATIENCE) == 1
    eventually(ended.exists)


def test_the_server_is_told_which_call_nobody_waits_for(stranger: ForeignServer, tmp_path: Path) -> None:
    """Even before it has said that it took it: then it will not begin it."""
    stranger.offer()
    stranger.answering.clear()
    with running("call", stranger.url, "watch", "--token", TOKEN, folder=tmp_path) as waiting:
        eventually(lambda: len(stranger.received) == 1)
        waiting.send(signal.SIGINT)
        eventually(lambda: len(stranger.received) == 2)
        stranger.answering.set()

        assert waiting.ended() == 130
    invocation, notice = stranger.received
    assert stranger.paths == ["/invoke", "/cancel_tool_call"]
    assert notice == {"thread_id": invocation["group_id"], "tool_call_id": invocation["id"]}


def test_the_last_words_of_a_cancelled_call_are_taken_and_not_shown(stranger: ForeignServer, tmp_path: Path) -> None:
    stranger.offer()
    with running("call", stranger.url, "watch", folder=tmp_path) as waiting:
        eventually(lambda: len(stranger.received) == 1)
        stranger.callbacks = [{"type": "tool_result", "text": "Error: Cancelled."}]
        stranger.answering.clear()
        waiting.send(signal.SIGINT)
        eventually(lambda: len(stranger.received) == 2)
        stranger.answering.set()
        eventually(lambda: "cancelled the call" in waiting.err)
        stranger.call_back(stranger.received[0])  # which fails if nobody takes it

        assert waiting.ended() == 130
    assert waiting.out == ""


def test_a_server_that_cannot_be_told_is_no_secret(stranger: ForeignServer, tmp_path: Path) -> None:
    stranger.offer()
    stranger.callbacks = [{"type": "tool_result", "text": "Watching.", "subscription": True}]
    with running("call", stranger.url, "watch", folder=tmp_path) as waiting:
        eventually(lambda: "Watching." in waiting.out)
        stranger.status = 503
        waiting.send(signal.SIGINT)

        assert waiting.ended() == 130
    told = rf"{stranger.url}/cancel_tool_call answered 503: no explanation"
    assert re.fullmatch(
        rf"not waiting any longer; the call call_\w+ goes on, for the server could not be told: {told}\n", waiting.err
    )


def test_a_second_ctrl_c_does_not_wait_for_the_server(stranger: ForeignServer, tmp_path: Path) -> None:
    stranger.offer()
    stranger.callbacks = [{"type": "tool_result", "text": "Watching.", "subscription": True}]
    with running("call", stranger.url, "watch", folder=tmp_path) as waiting:
        eventually(lambda: "Watching." in waiting.out)
        stranger.answering.clear()
        waiting.send(signal.SIGINT)
        eventually(lambda: len(stranger.received) == 2)

        def has_ended() -> bool:
            waiting.send(signal.SIGINT)
            return not waiting.alive

        eventually(has_ended)
        assert waiting.ended() == -signal.SIGINT
        assert waiting.err == ""


def test_what_is_sent_elsewhere_is_not_cancelled(stranger: ForeignServer, tmp_path: Path) -> None:
    stranger.offer()
    outcome = rapkit("call", stranger.url, "watch", "--callback-url", f"{stranger.url}/there", folder=tmp_path)

    assert outcome.code == 0
    assert stranger.paths == ["/invoke"]


def test_what_was_refused_is_not_cancelled(stranger: ForeignServer, tmp_path: Path) -> None:
    stranger.offer()
    stranger.status = 400
    rapkit("call", stranger.url, "watch", folder=tmp_path)

    assert stranger.paths == ["/invoke"]


@pytest.mark.parametrize("status", [502, 503])
def test_what_was_perhaps_taken_is_cancelled(stranger: ForeignServer, tmp_path: Path, status: int) -> None:
    stranger.offer()
    stranger.status = status
    outcome = rapkit("call", stranger.url, "watch", folder=tmp_path)

    assert outcome == Outcome(2, "", f"rapkit: {stranger.url}/invoke answered {status}: no explanation\n")
    assert stranger.paths == ["/invoke", "/cancel_tool_call"]
