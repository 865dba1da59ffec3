"""`rapkit up`: what it finds, what it says, how it talks, how it ends, and what it says when it cannot begin."""

import json
import re
import shlex
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from rapkit.extras import how_to_install
from tests.cli.command import Running, eventually, rapkit, running
from tests.cli.foreign_server import ForeignServer, listening

TOKEN = "4Dc1f3JcZK0hQp8y7W2gkQ=="
PLAN = """
- user: {regex: "weather in (?P<city>.+)"}
  calls: [forecast: {city: "{match[city]}"}]
- user: think
  delay: 60
  say: At last.
- user: watch
  calls: [watch]
- answer: forecast
  say: "I asked: {answer}"
- say: Hello.
"""
GRACE = 10  # what running threads get to end
AT = re.compile(r"^agent at (http://\S+?),? ", re.MULTILINE)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where an agent is started; `configure` writes its settings there."""
    (tmp_path / "plan.yaml").write_text(PLAN)
    return tmp_path


def configure(home: Path, *urls: str, agent: str = "", model: str = "scripted:plan.yaml") -> None:
    servers = "".join(f'\n[[servers]]\nurl = "{url}"\n' for url in urls)
    (home / "rapkit.toml").write_text(f'[agent]\nmodel = "{model}"\n{agent}\n{servers}')


def url_of(up: Running) -> str:
    """Where the agent says it is, which is the last thing it says before it works on in silence."""
    eventually(lambda: bool(AT.search(up.err)) or not up.alive)
    found = AT.search(up.err)
    assert found is not None, up.err
    return found[1]


def api(method: str, url: str, message: dict[str, Any] | None = None, token: str | None = None) -> Any:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    body = None if message is None else json.dumps(message).encode()
    with urlopen(Request(url, body, headers, method=method)) as answer:
        return json.load(answer)


def offering(stranger: ForeignServer, *names: str) -> bytes:
    tools = [{"name": name, "description": "A tool.", "inputSchema": {"type": "object"}} for name in names]
    return json.dumps(
        {"name": "strange", "version": "7", "endpoint": f"{stranger.url}/invoke", "tools": tools}
    ).encode()


@pytest.fixture
def other() -> Iterator[ForeignServer]:
    with listening() as stranger:
        yield stranger


@pytest.fixture
def nobody() -> Iterator[str]:
    """A URL where nobody listens, and nobody will."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture
def found(home: Path, served: Running, stranger: ForeignServer, other: ForeignServer, nobody: str) -> list[str]:
    """Four servers: a good one, one with a tool of the same name, an invalid one, one that is down."""
    stranger.document = offering(stranger, "forecast", "watch")
    other.document = b'{"name": "other", "tools": []}'
    urls = [served.url, stranger.url, other.url, nobody]
    configure(home, *urls)
    return urls


def test_a_table_shows_what_was_found_and_what_is_wrong(home: Path, found: list[str]) -> None:
    """DIS-5, DIS-12: colliding tools are withheld and reported; a server that is down or wrong takes nothing from the others."""
    good, colliding, invalid, down = found
    with running("up", "--port", "0", folder=home, environment={"COLUMNS": "100"}) as up:
        url = url_of(up)
        text = up.err

    lines = text.splitlines()
    rows = [re.split(r"\s{2,}", line.rstrip()) for line in lines]
    assert rows[0] == ["server", "toolset", "version", "tools"]
    assert rows[1][:2] == [good, "weather"]
    assert rows[1][3].startswith("echo, refuse, picture")  # without forecast
    assert rows[2] == [colliding, "strange", "7", "watch"]
    assert rows[3] == [invalid, "-", "-", "nothing, see below"]
    assert rows[4] == [down, "-", "-", "nothing, see below"]
    together = " ".join(" ".join(lines[5:]).split())
    assert f"problem {invalid}/.well-known/rap-toolset is not a valid toolset: toolset: endpoint: missing" in together
    assert f"problem {down}: Connection refused" in together
    assert together.count("2 tools are called 'forecast' by the model") == 1
    assert f"(forecast of {good}, forecast of {colliding}). Give one of the servers a prefix." in together
    assert lines[-2:] == [
        f"agent at {url}, model scripted:plan.yaml, kept in sqlite:///.rapkit/agent.db, no threads waiting",
        "No token is configured: only clients on this machine are served.",
    ]
    assert all(len(line) <= 100 for line in lines[:-2])


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_names_of_tools_are_clipped_to_the_width(home: Path, stranger: ForeignServer, columns: int) -> None:
    names = [f"operation_{number}" for number in range(30)]
    stranger.document = offering(stranger, *names)
    configure(home, stranger.url)
    with running("up", "--port", "0", folder=home, environment={"COLUMNS": str(columns)}) as up:
        url_of(up)
        row = up.err.splitlines()[1].rstrip()

    shown = row.count("operation_")
    assert len(row) <= columns
    if columns == 60:
        assert row.endswith("  30 tools")
    else:
        assert row.endswith(f"operation_{shown - 1} and {30 - shown} more")
        assert columns - len(row) < len(", operation_10")  # not clipped more than needed


def test_json_lines_say_the_same(home: Path, found: list[str]) -> None:
    good, colliding, invalid, down = found
    with running("up", "--port", "0", "--log-format", "json", folder=home) as up:
        eventually(lambda: '"serving"' in up.err or not up.alive)
        up.send(signal.SIGTERM)
        assert up.ended() == 0
        lines = [json.loads(line) for line in up.err.splitlines()]

    told = {line["server"]: line for line in lines if "server" in line}
    assert (told[good]["toolset"], told[good]["withheld"]) == ("weather", ["forecast"])
    assert (told[colliding]["version"], told[colliding]["tools"]) == ("7", ["watch"])
    assert "is not a valid toolset" in told[invalid]["problem"]
    assert "Connection refused" in told[down]["problem"]
    assert next(line["problem"] for line in lines if line["message"] == "tool withheld").startswith("2 tools")
    (serving,) = [line for line in lines if line["message"] == "serving"]
    assert serving["url"] == serving["public_url"]
    assert (serving["model"], serving["waiting"]) == ("scripted:plan.yaml", 0)


SETTINGS = """
[agent.confirm.tools]
forecst = "always"
echo = "always"
[agent.call_timeouts]
demolish = "5m"
"""


def test_tools_that_are_named_and_not_offered_are_told_of(home: Path, served: Running, nobody: str) -> None:
    """A slip would mean that nobody is asked before it is called. One that is only withheld, or offered, is no slip."""
    configure(home, served.url, agent=SETTINGS)
    with running("up", "--port", "0", folder=home) as up:
        url_of(up)
        told = " ".join(up.err.split())
    nowhere = "and no server offers a tool that the model calls so."
    assert f"unknown [agent.confirm.tools] names 'forecst', {nowhere} Did you mean 'forecast'? unknown" in told
    assert f"unknown [agent.call_timeouts] names 'demolish', {nowhere} agent at" in told
    assert "'echo'" not in told

    configure(home, served.url, nobody, agent=SETTINGS)
    with running("up", "--port", "0", "--log-format", "json", folder=home) as up:
        eventually(lambda: '"serving"' in up.err or not up.alive)
        lines = [json.loads(line) for line in up.err.splitlines()]
    problems = [line["problem"] for line in lines if line["message"] == "tool unknown"]
    assert len(problems) == 2
    assert all(f"It may be one of {nobody}, where nothing was found" in each for each in problems)


def test_without_servers_every_tool_that_is_named_is_told_of(home: Path) -> None:
    configure(home, agent=SETTINGS)
    with running("up", "--port", "0", folder=home) as up:
        url_of(up)
        assert "No tool servers are configured" in up.err
        assert up.err.count("unknown  [agent.") == 3


def test_a_prefix_that_was_left_out_is_what_was_meant(home: Path, stranger: ForeignServer) -> None:
    stranger.document = offering(stranger, "demolish")
    configure(home, stranger.url, agent=SETTINGS)
    with (home / "rapkit.toml").open("a") as settings:
        settings.write('prefix = "city_"\n')
    with running("up", "--port", "0", folder=home, environment={"COLUMNS": "200"}) as up:
        url_of(up)
        assert "Did you mean 'city_demolish'?" in up.err


def test_somebody_talks_to_it_and_it_calls_a_tool(home: Path, served: Running) -> None:
    configure(home, served.url)
    with running("up", "--port", "0", folder=home) as up:
        threads = f"{url_of(up)}/v1/threads"
        thread = api("POST", threads, {"text": "weather in Oslo"})["thread_id"]

        def history() -> str:
            return json.dumps(api("GET", f"{threads}/{thread}/history"))

        eventually(lambda: "I asked: Sunny in Oslo for 3 days" in history())
        up.send(signal.SIGTERM)
        assert up.ended() == 0

    assert (home / ".rapkit" / "agent.db").is_file()
    assert "Traceback" not in up.err


def test_threads_that_wait_are_counted_at_the_next_start(home: Path, stranger: ForeignServer) -> None:
    stranger.offer()
    configure(home, stranger.url)
    with running("up", "--port", "0", folder=home) as up:
        threads = f"{url_of(up)}/v1/threads"
        thread = api("POST", threads, {"text": "watch"})["thread_id"]
        eventually(lambda: bool(api("GET", f"{threads}/{thread}")["status"] == "waiting"))
        up.send(signal.SIGTERM)
        assert up.ended() == 0

    with running("up", "--port", "0", folder=home) as again:
        assert url_of(again)
        assert ", 1 thread waiting\n" in again.err


def test_with_a_token_only_its_bearers_are_served(home: Path) -> None:
    configure(home, agent='public_url = "https://agent.example.com"\n[agent.tokens]\nme = "env:MY_TOKEN"')
    with running("up", "--port", "0", "--host", "0.0.0.0", folder=home, environment={"MY_TOKEN": TOKEN}) as up:
        url = url_of(up).replace("0.0.0.0", "127.0.0.1")
        assert "(for tools https://agent.example.com), model" in up.err
        assert "Only clients with a token are served." in up.err
        assert "No tool servers are configured" in up.err

        assert api("POST", f"{url}/v1/threads", {}, token=TOKEN)["thread_id"]
        with pytest.raises(OSError, match="401"):
            api("POST", f"{url}/v1/threads", {})
        assert TOKEN not in up.err


def test_servers_elsewhere_cannot_call_back_here(home: Path) -> None:
    configure(home, "https://tools.invalid")
    with running("up", "--port", "0", folder=home) as up:
        url = url_of(up)
        assert f"Tools are told to call back at {url}, which only this machine can reach" in up.err
        assert "not on this machine are: https://tools.invalid." in up.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_never_answers_holds_up_nothing(home: Path, number: signal.Signals) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as free:
        configure(home, f"http://127.0.0.1:{silent.getsockname()[1]}")
        port = free.getsockname()[1]
        free.close()
        with running("up", "--port", str(port), folder=home) as up:
            eventually(lambda: "not all servers have said yet what they offer" in up.err)
            assert api("POST", f"http://127.0.0.1:{port}/v1/threads", {})["thread_id"]
            asked = time.monotonic()
            up.send(number)

            assert up.ended() == 0
            assert time.monotonic() - asked < GRACE / 2
            assert "stopping: threads that run get 10 s to end" in up.err
            assert "Traceback" not in up.err
            assert "Task" not in up.err


def test_the_second_time_it_does_not_wait(home: Path) -> None:
    configure(home)
    with running("up", "--port", "0", folder=home) as up:
        threads = f"{url_of(up)}/v1/threads"
        thread = api("POST", threads, {"text": "think"})["thread_id"]
        eventually(lambda: bool(api("GET", f"{threads}/{thread}")["status"] == "running"))
        up.send(signal.SIGINT)
        eventually(lambda: "stopping" in up.err)
        asked = time.monotonic()
        up.send(signal.SIGINT)

        assert up.ended() == 0
        assert time.monotonic() - asked < GRACE / 2
        assert "Traceback" not in up.err


def refused(*words: str, folder: Path, environment: dict[str, str] | None = None) -> str:
    """What is said when it does not begin."""
    outcome = rapkit("up", "--port", "0", *words, folder=folder, environment=environment)
    assert (outcome.code, outcome.out) == (2, ""), outcome
    assert "Traceback" not in outcome.err
    assert outcome.err.startswith("rapkit: ")
    return outcome.err.removeprefix("rapkit: ").rstrip("\n")


def test_without_a_file_and_a_model_the_one_thing_that_is_missing_is_explained(tmp_path: Path) -> None:
    assert refused("--server", "http://127.0.0.1:8001", folder=tmp_path) == (
        """\
There is no rapkit.toml here, and no model is named, so there is no agent to run. Write a rapkit.toml like this one:

[agent]
model = "openai:gpt-5-mini"

[[servers]]
url = "http://127.0.0.1:8001"

Or do without a file:

rapkit up --model openai:gpt-5-mini --server http://127.0.0.1:8001

New here? `rapkit demo` needs no key and no servers. `rapkit new my_tools` makes a tool server, and a rapkit.toml to run it with."""
    )


def test_a_model_and_a_server_are_enough_without_a_file(home: Path, served: Running) -> None:
    with running("up", "--port", "0", "--model", "scripted:plan.yaml", "--server", served.url, folder=home) as up:
        threads = f"{url_of(up)}/v1/threads"
        thread = api("POST", threads, {"text": "weather in Oslo"})["thread_id"]
        eventually(lambda: "I asked: Sunny in Oslo" in json.dumps(api("GET", f"{threads}/{thread}/history")))

    assert sorted(each.name for each in home.iterdir() if each.is_file() and each.suffix == ".toml") == []


def test_without_a_file_whoever_wakes_it_finds_the_same_model_and_servers(home: Path, served: Running) -> None:
    """`rapkit wake` is told neither: the environment it is run in says both."""
    wake = shlex.join([sys.executable, "-m", "rapkit", "wake"])
    agent = ("--model", "scripted:plan.yaml", "--server", served.url)
    with running("up", "--port", "0", *agent, "--no-worker", "--on-accept", wake, folder=home) as up:
        threads = f"{url_of(up)}/v1/threads"
        thread = api("POST", threads, {"text": "weather in Oslo"})["thread_id"]
        eventually(lambda: "I asked: Sunny in Oslo" in json.dumps(api("GET", f"{threads}/{thread}/history")))
        eventually(lambda: "rapkit.on_accept: 1 thread ran" in up.err)


def test_schedules_and_parked_threads_are_told_of(home: Path) -> None:
    schedule = '\n[[schedule]]\ncron = "0 9 * * *"\nzone = "Asia/Tokyo"\nname = "{}"\nmessage = "Look."\n'
    configure(home, agent="".join(map(schedule.format, ["morning", "noon", "evening", "night"])))
    (home / "plan.yaml").write_text("- user: fail\n  fail: No credit.\n  retryable: false\n" + PLAN)
    with running("up", "--port", "0", folder=home) as up:
        threads = f"{url_of(up)}/v1/threads"
        assert re.search(
            r"^4 schedules: evening, next at \S+ 09:00 Asia/Tokyo \(in \d+ \w+\); .*; and 1 more$", up.err, re.MULTILINE
        )
        thread = api("POST", threads, {"text": "fail"})["thread_id"]
        eventually(lambda: bool(api("GET", f"{threads}/{thread}")["status"] == "parked"))
        up.send(signal.SIGTERM)
        assert up.ended() == 0

    with running("up", "--port", "0", "--log-format", "json", folder=home) as again:
        eventually(lambda: '"serving"' in again.err or not again.alive)
        said = next(json.loads(line) for line in again.err.splitlines() if '"serving"' in line)
        assert (said["waiting"], said["parked"], said["schedules"][0]) == (0, 1, "morning")
    with running("up", "--port", "0", folder=home) as at_last:
        assert url_of(at_last)
        assert ", no threads waiting, 1 parked\n" in at_last.err


def test_a_command_besides_the_work_is_said_to_be_run(home: Path) -> None:
    configure(home)
    with running("up", "--port", "0", "--on-accept", "echo ring", folder=home) as up:
        api("POST", f"{url_of(up)}/v1/threads", {"text": "Hello"})
        assert "Threads are worked on here; besides, the command of --on-accept is run whenever one has" in up.err
        eventually(lambda: "rapkit.on_accept: ring" in up.err)


@pytest.mark.parametrize(
    ("write", "words", "said"),
    [
        (lambda home: configure(home, agent="prot = 1"), (), "there is no key 'prot' in [agent]. Did you mean 'port'?"),
        (lambda home: configure(home, model="scripted:none.yaml"), (), "The script none.yaml cannot be read"),
        (lambda home: configure(home, model="gpt"), (), "'gpt' is no model. Use \"provider:model\""),
        (lambda home: configure(home, "http://127.0.0.1:1", "http://127.0.0.1:1/"), (), "is named twice"),
        (configure, ("--host", "0.0.0.0"), "0.0.0.0 can be reached from other machines, and no token is configured"),
        (configure, ("--token", "me=short"), "it needs 16 or more printable ASCII characters"),
        (configure, ("--token", "me=env:NOT_THERE"), "The environment variable NOT_THERE is not set"),
        (configure, ("--port", "80x"), "'80x' is no port. Give a number from 0 to 65535. See: rapkit up --help"),
        (configure, ("--store", "agent.db"), "'agent.db' is no store. Use sqlite:///file.db"),
        (configure, ("--store", ""), "--store is empty."),
        (configure, ("--public-url", "example.com"), "--public-url: 'example.com' is not a public URL."),
        (configure, ("-c", "storm.toml"), "There is no file storm.toml. Name one with -c or in RAPKIT_CONFIG, or write it"),
        (configure, ("-c", "storm.toml", "--model", "test"), "There is no file storm.toml."),
        (configure, ("-c", "."), ". cannot be read: Is a directory. Name the file, not its folder."),
        (configure, ("--server", "weather"), "--server: 'weather' is not the URL of a tool server."),
        (lambda home: (home / "rapkit.toml").touch(), (), "rapkit.toml is empty, and no model is named. Write into it:"),
        (lambda home: (home / "rapkit.toml").write_text("[agent]"), (), '"model" is missing in [agent]. Write one, such as'),
        (lambda home: configure(home, model="openai:gpt-5-mini"), (), "'openai:gpt-5-mini' cannot be used: set OPENAI_API_KEY. To try"),
        (configure, ("--on-accept", "env rapkit wake"), "which has nothing to do as long as threads are worked on here."),
        (configure, ("--workers",), " See: rapkit up --help"),
        (configure, ("--no-worker", "--store", "sqlite:///:memory:"), "so nobody could wake the agent. Keep it in a file."),
        (configure, ("--on-accept", "no-such-command --now"), "names a command that cannot be found: no-such-command"),
        (configure, ("--on-accept", "echo 'never"), "--on-accept cannot be read as a command: No closing quotation."),
        (configure, ("--on-accept", ""), "--on-accept is empty."),
    ],
)  # fmt: skip
def test_what_cannot_be(
    home: Path,
    write: Callable[[Path], None],
    words: tuple[str, ...],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    write(home)

    assert said in refused(*words, folder=home)


def test_without_the_extra_it_is_named(home: Path) -> None:
    (home / "pydantic_ai.py").write_text("raise ImportError\n")  # found first, as if it were not installed
    configure(home, model="openai:gpt-5-mini")

    assert refused(folder=home).endswith(f"Run: {how_to_install('agent')}")


def test_help_explains_every_option(tmp_path: Path) -> None:
    outcome = rapkit("up", "--help", folder=tmp_path)

    assert outcome.code == 0
    options = (
        "--config",
        "--host",
        "--port",
        "--store",
        "--public-url",
        "--model",
        "--server",
        "--token",
        "--no-worker",
    )
    for option in (*options, "--on-accept", "--log-format"):
        assert f" {option} " in outcome.out


def test_a_port_that_is_taken(home: Path) -> None:
    configure(home)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])

        assert refused("--port", port, folder=home).startswith(f"Port {port} on 127.0.0.1 is taken.")
