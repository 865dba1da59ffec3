"""`rapkit serve`: what can be served, what is said at the start, and what is said when it cannot be."""

import json
import shutil
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.cli.command import TOOLS, Running, eventually, rapkit, running
from tests.cli.foreign_server import ForeignServer

TOKEN = "4Dc1f3JcZK0hQp8y7W2gkQ=="

WEATHER = """
from rapkit import Toolset

tools = Toolset("weather")

@tools.tool
def ping() -> str:
    \"\"\"Answer.\"\"\"
    return "pong"
"""
TWO = 'from rapkit import Toolset\n\nnorth = Toolset("north")\nsouth = Toolset("south")\nalias = south\n'


@pytest.fixture
def weather(tmp_path: Path) -> Path:
    (tmp_path / "weather.py").write_text(WEATHER)
    return tmp_path


def refused(*words: str, folder: Path, environment: dict[str, str] | None = None) -> str:
    """What `rapkit serve` says when it does not serve."""
    outcome = rapkit("serve", *words, folder=folder, environment=environment)
    assert outcome.code == 2, outcome
    assert outcome.out == ""
    assert outcome.err.startswith("rapkit: ")
    assert len(outcome.err.splitlines()) <= 2
    assert "Traceback" not in outcome.err
    return outcome.err.removeprefix("rapkit: ").rstrip("\n")


@pytest.mark.parametrize("target", ["weather.py", "weather.py:tools", "weather:tools"])
def test_a_file_or_a_module_is_served(weather: Path, target: str) -> None:
    with running("serve", target, "--port", "0", folder=weather) as server:
        with urlopen(f"{server.url}/.well-known/rap-toolset") as answer:
            assert json.load(answer)["name"] == "weather"
        assert server.err.splitlines() == [
            f"weather: 1 tool at {server.url}, kept in sqlite:///.rapkit/weather.db",
            "No token is configured: only callers on this machine are served.",
        ]
    assert (weather / ".rapkit" / "weather.db").is_file()


def test_a_file_may_be_named_like_a_module_and_have_neighbours(tmp_path: Path) -> None:
    (tmp_path / "calendar.py").write_text(f"import neighbour\n{WEATHER}")
    (tmp_path / "neighbour.py").write_text(
        "import http.cookiejar\n"
    )  # which needs the calendar of the standard library
    (tmp_path / "elsewhere").mkdir()

    with running("serve", "../calendar.py", "--port", "0", folder=tmp_path / "elsewhere") as server:
        assert server.url


def test_with_a_token_only_its_bearers_are_served(weather: Path) -> None:
    public = "https://weather.example.com"
    words = ("weather.py", "--port", "0", "--token", TOKEN, "--public-url", public, "--store", "sqlite:///w.db")
    with running("serve", *words, folder=weather) as server:
        url = server.url
        assert server.err.splitlines() == [
            f"weather: 1 tool at {url} (for callers {public}), kept in sqlite:///w.db",
            "Only callers with a token are served.",
        ]
        with urlopen(f"{server.url}/.well-known/rap-toolset") as answer:
            assert json.load(answer)["endpoint"] == f"{public}/invoke"
        assert TOKEN not in server.err


def test_from_python_it_says_the_same(weather: Path) -> None:
    (weather / "weather.py").write_text(WEATHER + "\ntools.run(port=0)\n")
    with running(script="weather.py", folder=weather) as server:
        eventually(lambda: "No token is configured" in server.err)
        assert server.err.startswith(f"weather: 1 tool at {server.url}, kept in ")


def test_a_file_that_is_not_python_is_told_from_one_that_is_not_there(weather: Path) -> None:
    (weather / "rapkit.toml").touch()

    said = "rapkit.toml is no Python file. A toolset is in one, like weather.py, or in a module."
    assert refused("rapkit.toml", folder=weather) == said


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("storm.py", "There is no file storm.py."),
        ("wether.py", "There is no file wether.py. Did you mean weather.py?"),
        ("wether.py:tools", "There is no file wether.py. Did you mean weather.py?"),
        ("nowhere/weather.py", "There is no file nowhere/weather.py."),
        ("storm", "There is no module storm. A file is named with its ending: storm.py"),
        ("./weather", "'./weather' is neither a Python file (weather.py) nor a module (package.module)."),
        ("", "'' is neither a Python file (weather.py) nor a module (package.module)."),
        ("weather.py:ping", "weather.py has no toolset 'ping'. Name one: weather.py:tools"),
        ("weather:storm", "weather has no toolset 'storm'. Name one: weather:tools"),
    ],
)
def test_a_target_that_is_not_there(weather: Path, target: str, said: str) -> None:
    assert refused(target, folder=weather) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\n", 'bad.py has no toolset. Make one: tools = Toolset("name")'),
        (TWO, "bad.py has several toolsets. Name one: bad.py:alias, bad.py:north"),
        ("\nx = (1\n", "bad.py cannot be loaded. SyntaxError: '(' was never closed (bad.py, line 2)"),
        (
            "\n\nimport storms\n",
            "bad.py cannot be loaded. ModuleNotFoundError: No module named 'storms' (bad.py, line 3)",
        ),
        # The user's line, not the library's that was called from it.
        (
            "import json\n\njson.loads('x')\n",
            "JSONDecodeError: Expecting value: line 1 column 1 (char 0) (bad.py, line 3)",
        ),
        ("raise SystemExit(0)\n", "bad.py ends the process while it is loaded (bad.py, line 1)."),
        ('from rapkit import Toolset\nt = Toolset("calm")\n', "toolset 'calm' has no tools. Put @tools.tool above"),
        (WEATHER + "tools.run()\n", "tools.run() is called while the file is loaded. Put it under: if __name__"),
        (WEATHER.replace("ping()", "ping(*words: str)"), "(bad.py, line 6)"),
    ],
)
def test_a_file_without_a_usable_toolset(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "bad.py").write_text(text)

    assert said in refused("bad.py", "--port", "0", folder=tmp_path)


@pytest.mark.parametrize(
    ("token", "said"),
    [
        ("short", "it needs 16 or more printable ASCII characters"),
        ("env:STORM_TOKEN", "The environment variable STORM_TOKEN is not set"),
        ("env:EMPTY", "The environment variable EMPTY is empty"),
        ("file:storm.txt", "No secret can be read from storm.txt"),
        ("", "--token is empty. Write env:VARIABLE, file:PATH or the token itself."),
        ("agent=", "--token agent= is empty. Write NAME=env:VARIABLE"),
        ("an agent=abcdefghijklmnopqrst", "'an agent' cannot name a token"),
    ],
)
def test_a_token_that_is_none(weather: Path, token: str, said: str) -> None:
    environment = {"EMPTY": ""}

    assert said in refused("weather.py", "--port", "0", "--token", token, folder=weather, environment=environment)


def test_a_port_that_is_taken(weather: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = refused("weather.py", "--port", port, folder=weather)

    assert (
        said
        == f"Port {port} on 127.0.0.1 is taken. Stop what uses it, or choose another port, with --port or in the settings."
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--host", "0.0.0.0"), "0.0.0.0 can be reached from other machines, and no credentials are configured"),
        (("--host", "0.0.0.0"), "AWS keys (--aws-key) or client certificates (--client-ca), or listen on 127.0.0.1."),
        (("--host", "192.0.2.1", "--token", TOKEN), "Cannot listen on 192.0.2.1 port 0: "),
        (("--store", "weather.db"), "'weather.db' is no store. Use sqlite:///file.db"),
        (("--store", ""), "--store is empty. Write it like sqlite:///weather.db."),
        (("--store", "sqlite:///weather.py/w.db"), "weather.py/w.db cannot be opened for writing"),
        (("--store", "sqlite:///weather.py"), "weather.py is not a SQLite file"),
        (("--store", "sqlite:///theirs.db"), "theirs.db is a SQLite file of another program."),
        (("--allow-callback", "10.0.0.0/99"), "Cannot allow '10.0.0.0/99'"),
        (("--public-url", "weather.example.com"), "Write it in full, like https://weather.example.com."),
        (("--stor", "x"), " See: rapkit serve --help"),
        (("--port", "80000"), "'80000' is no port. Give a number from 0 to 65535. See: rapkit serve --help"),
        (("--port", "80x"), "Invalid value for '--port': '80x' is no port. Give a number from 0 to 65535."),
    ],
)
def test_an_option_that_cannot_be(weather: Path, words: tuple[str, ...], said: str) -> None:
    with sqlite3.connect(weather / "theirs.db") as theirs:
        theirs.execute("CREATE TABLE orders (id)")
    theirs.close()

    assert said in refused("weather.py", "--port", "0", *words, folder=weather)


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("logged")
    shutil.copy(TOOLS, folder / "tools.py")
    logging = ("--log-format", "json", "--log-level", "debug")
    with running("serve", "tools.py", "--port", "0", "--token", f"agent={TOKEN}", *logging, folder=folder) as server:
        assert server.url
        yield server


def test_json_logs_are_json_and_hold_no_secrets(logged: Running, stranger: ForeignServer, tmp_path: Path) -> None:
    stranger.status = 400
    words = (
        "call",
        logged.url,
        "forecast",
        "city=Oslo",
        "--token",
        TOKEN,
        "--callback-url",
        f"{stranger.url}/secret-path",
    )

    assert rapkit(*words, folder=tmp_path).code == 0
    eventually(lambda: "undeliverable" in logged.err)

    lines = [json.loads(line) for line in logged.err.splitlines()]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    assert [line["url"] for line in lines if line["message"] == "serving"] == [logged.url]
    finished = next(line for line in lines if line["message"] == "call finished")
    assert (finished["operation"], finished["caller"], finished["outcome"]) == ("forecast", "agent", "ok")
    assert "secret-path" not in logged.err
    assert TOKEN not in logged.err
