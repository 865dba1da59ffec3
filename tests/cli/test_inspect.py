"""`rapkit inspect`."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import PATIENCE, Running, rapkit
from tests.cli.foreign_server import ForeignServer


def refused(*words: str, folder: Path) -> str:
    outcome = rapkit("inspect", *words, folder=folder)
    assert outcome.code == 2, outcome
    assert outcome.out == ""
    return outcome.err.removeprefix("rapkit: ").rstrip("\n")


def test_it_shows_what_a_server_offers(served: Running, tmp_path: Path) -> None:
    outcome = rapkit("inspect", served.url, folder=tmp_path)

    assert outcome.code == 0
    assert outcome.err == ""
    head, forecast, *_ = outcome.out.split("\n\n")
    assert head.splitlines()[:2] == ["weather  Forecasts", f"endpoint {served.url}/invoke"]
    assert forecast.splitlines() == [
        "forecast  (read only)",
        "  Forecast for a city.",
        "    city: string  Where.",
        "    days: integer = 3  How far ahead, in days, counted from the day on which you",
        "    ask, which is today.",
        '    unit: "C" | "F" = "C"  The scale.',
    ]


def test_a_narrow_terminal_wraps_words_but_not_urls(served: Running, tmp_path: Path) -> None:
    out = rapkit("inspect", served.url, folder=tmp_path, environment={"COLUMNS": "30"}).out

    assert f"endpoint {served.url}/invoke" in out.splitlines()
    assert max(len(line) for line in out.splitlines() if "endpoint" not in line) <= 30


def test_json_is_the_document(served: Running, tmp_path: Path) -> None:
    document = json.loads(rapkit("inspect", served.url, "--json", folder=tmp_path).out)

    assert document["endpoint"] == f"{served.url}/invoke"
    assert [tool["name"] for tool in document["tools"]][:2] == ["forecast", "echo"]


def test_the_token_is_sent(stranger: ForeignServer, tmp_path: Path) -> None:
    stranger.offer()
    (tmp_path / "token").write_text("from-a-file-somewhere\n")

    assert rapkit("inspect", stranger.url, "--token", "file:token", folder=tmp_path).code == 0
    assert stranger.headers[-1]["authorization"] == "Bearer from-a-file-somewhere"


def test_shapes_of_a_strangers_schema(stranger: ForeignServer, tmp_path: Path) -> None:
    stranger.offer(
        a={"anyOf": [{"type": "integer"}, {"type": "null"}]},
        b={"type": ["string", "null"], "default": None},
        c={"const": True},
        d={"type": "array", "items": {"enum": [1, "x"]}},
        e={"description": "Paint it \x1b[31mred."},
    )
    lines = rapkit("inspect", stranger.url, folder=tmp_path).out.splitlines()

    assert lines[-5:] == [
        "    a: integer | null, optional",
        "    b: string | null = null",
        "    c: true, optional",
        '    d: array of 1 | "x", optional',
        "    e: anything, optional  Paint it \N{REPLACEMENT CHARACTER}[31mred.",
    ]


def test_what_is_wrong_with_a_toolset_is_listed(stranger: ForeignServer, tmp_path: Path) -> None:
    stranger.document = (
        b'{"name": "x", "tools": [{"name": "a b", "description": "", "inputSchema": {"type": "string"}}]}'
    )
    title, *problems = refused(stranger.url, folder=tmp_path).splitlines()

    assert title == f"{stranger.url}/.well-known/rap-toolset is not a valid toolset:"
    assert [problem.split(";")[0] for problem in problems] == [
        "  toolset: endpoint: missing",
        "  tool 'a b': name: has a character that is not allowed",
        "  tool 'a b': inputSchema: type: must be \"object\", because arguments are an object",
    ]


def test_what_an_agent_does_not_use_of_a_toolset_is_shown(stranger: ForeignServer, tmp_path: Path) -> None:
    """Item 12: on standard error beside --json, whose output is the document as it is used."""
    stranger.offer()
    odd = json.loads(stranger.document) | {"version": 3}
    odd["tools"].append({**odd["tools"][0], "name": "a b"})
    stranger.document = json.dumps(odd).encode()

    shown = rapkit("inspect", stranger.url, folder=tmp_path, environment={"COLUMNS": "200"})
    machine = rapkit("inspect", stranger.url, "--json", folder=tmp_path, environment={"COLUMNS": "200"})

    problems = [
        "left out tool 'a b': name: has a character that is not allowed; it is 1 to 128 characters of A-Z a-z 0-9 _ . -",
        "ignored  toolset: version: a number, must be a string; it is a text that changes when the toolset does",
    ]
    assert shown.code == machine.code == 0
    assert shown.out.splitlines()[-2:] == machine.err.splitlines() == problems
    assert [tool["name"] for tool in json.loads(machine.out)["tools"]] == ["watch"]


@pytest.mark.parametrize(
    ("status", "token", "said"),
    [
        (404, (), "answered 404. Is there a RAP tool server at "),
        (401, (), "answered 401. Give it credentials that it knows: --token, --sigv4 or --cert."),
        (401, ("--token", "wrong"), "answered 401. Is the token right?"),
        (200, (), "is not a valid toolset:\n  toolset: not JSON"),
    ],
)
def test_a_server_that_is_no_tool_server(
    stranger: ForeignServer, tmp_path: Path, status: int, token: tuple[str, ...], said: str
) -> None:
    stranger.document = b"<html>Hello</html>"
    stranger.discovery_status = status

    assert said in refused(stranger.url, *token, folder=tmp_path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("http://127.0.0.1:9",), "http://127.0.0.1:9 cannot be reached: Connection refused"),
        (("localhost:8001",), "'localhost:8001' is not the URL of a server. Write it like http://localhost:8001."),
        (("http://127.0.0.1:9", "--sigv4", "/"), "'' is not an AWS region. Write it like eu-central-1."),
        (("",), "'' is not the URL of a server. Write it like http://127.0.0.1:8001."),
        (("http://127.0.0.1:9", "--token", ""), "--token is empty."),
        (("http://127.0.0.1:9", "--token", "env:STORM_TOKEN"), "The environment variable STORM_TOKEN is not set"),
        (("http://127.0.0.1:9", "--token", "a\nb"), "The token cannot be sent"),
    ],
)
def test_a_url_or_token_that_is_none(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    assert said in refused(*words, folder=tmp_path)


@pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_are_for_terminals_that_want_them(served: Running, environment: dict[str, str], coloured: bool) -> None:
    screen, terminal = pty.openpty()
    try:
        subprocess.run(
            [sys.executable, "-m", "rapkit", "inspect", served.url],
            stdout=terminal,
            env={**os.environ, "TERM": "xterm-256color", **environment},
            check=True,
            timeout=PATIENCE,
        )
        shown = os.read(screen, 100_000).decode()
    finally:
        os.close(terminal)
        os.close(screen)

    assert "forecast" in shown
    assert ("\x1b[1;36m" in shown) == coloured
