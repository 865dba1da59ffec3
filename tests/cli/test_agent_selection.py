"""Which agent a command finds, and what it leaves behind of one that it ran itself."""

import contextlib
import json
import secrets
import socket
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rapkit.cli import agent_selection
from rapkit.cli.agent_api import AgentApi, AgentRefused, AgentUnreachable, StreamEvent
from rapkit.cli.agent_selection import AgentSelection, ReachedAgent, reach_agent
from rapkit.cli.reconnecting_stream import ReconnectingStream
from rapkit.errors import ConfigError
from rapkit.runtime.config import Patience
from rapkit.settings.settings import Flags
from tests.cli.command import PATIENCE, eventually, rapkit
from tests.cli.fake_agent import document, posing, problem, raw

TOKEN = secrets.token_urlsafe()


class Folder:
    """A folder with settings on a port of their own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            self.port: int = bound.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.store = path / ".rapkit" / "agent.db"
        (path / "plan.yaml").write_text("- say: Hello.\n")
        self.configure()

    def configure(self, more: str = "", port: int | None = None) -> None:
        port = self.port if port is None else port
        (self.path / "rapkit.toml").write_text(f'[agent]\nmodel = "scripted:plan.yaml"\nport = {port}\n{more}')

    def wanted(self, **said: Any) -> AgentSelection:
        return AgentSelection(str(self.path / "rapkit.toml"), **said)

    def dump(self) -> list[str]:
        """Everything in the store; but for its seal, which is renewed by whoever opens it."""
        with contextlib.closing(sqlite3.connect(self.store)) as database:
            return [line for line in database.iterdump() if not line.startswith('INSERT INTO "seal"')]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def is_free(port: int) -> bool:
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def answer_to(api: AgentApi, text: str) -> str:
    thread_id = api.post("threads", {"text": text})["thread_id"]
    eventually(lambda: api.get(f"threads/{thread_id}")["status"] == "idle" and bool(lines(api, thread_id)[1:]))
    return str(lines(api, thread_id)[1]["text"])


def lines(api: AgentApi, thread_id: str) -> Any:
    return api.get(f"threads/{thread_id}/history")["entries"]


# One that the command runs


def test_an_agent_that_does_not_run_is_run_as_long_as_it_is_needed(folder: Folder) -> None:
    with reach_agent(folder.wanted(), working=True) as agent:
        assert (agent.is_ours, agent.works, agent.api.url) == (True, True, folder.url)
        assert answer_to(agent.api, "Hi") == "Hello."
        assert not is_free(folder.port)

    assert is_free(folder.port)
    assert folder.store.is_file()


def test_it_ends_too_when_the_command_fails(folder: Folder) -> None:
    with pytest.raises(ZeroDivisionError), reach_agent(folder.wanted(), working=True):
        _ = 1 / 0

    assert is_free(folder.port)


@pytest.mark.parametrize("way", ["in order", "interrupted", "in a hurry"])
def test_what_is_under_way_is_not_waited_for_to_its_end(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The model takes a minute here. In order it gets a moment; else nothing, however patient the agent is."""
    (folder.path / "plan.yaml").write_text("- delay: 60\n  say: At last.\n")
    monkeypatch.setattr("rapkit.runtime.agent.Patience", partial(Patience, grace=600.0))
    if way != "in order":
        monkeypatch.setattr("rapkit.cli.agent_host._GRACE", 600.0)

    with contextlib.suppress(KeyboardInterrupt), reach_agent(folder.wanted(), working=True) as agent:
        thread_id = agent.api.post("threads", {"text": "Hi"})["thread_id"]
        eventually(lambda: bool(lines(agent.api, thread_id)))
        if way == "interrupted":
            raise KeyboardInterrupt
        if way == "in a hurry":
            agent.leave_at_once()

    assert is_free(folder.port)
    with reach_agent(folder.wanted(), working=False) as agent:
        assert [each["kind"] for each in lines(agent.api, thread_id)] == ["user"]
        assert agent.api.get(f"threads/{thread_id}")["status"] == "running"


def test_other_commands_find_the_one_that_a_command_runs(folder: Folder) -> None:
    with reach_agent(folder.wanted(), working=True), reach_agent(folder.wanted(), working=False) as other:
        assert (other.is_ours, other.works, other.api.url) == (False, True, folder.url)


def test_who_may_use_it_is_as_configured(folder: Folder) -> None:
    folder.configure(f'[agent.tokens]\nme = "{TOKEN}"\n')
    for working in (True, False):
        with reach_agent(folder.wanted(), working=working) as agent:
            assert agent.is_ours
            assert agent.api.get("threads")["threads"] == []
            with pytest.raises(AgentRefused):
                AgentApi(agent.api.url).get("threads")


def test_any_free_port_will_do(folder: Folder) -> None:
    folder.configure(port=0)

    with reach_agent(folder.wanted(), working=True) as agent:
        assert answer_to(agent.api, "Hi") == "Hello."


def test_one_that_anybody_could_use_is_not_run(folder: Folder) -> None:
    folder.configure('host = "0.0.0.0"\n')
    with pytest.raises(ConfigError, match="no token is configured"), reach_agent(folder.wanted(), working=True):
        pass
    assert is_free(folder.port)


def test_what_keeps_it_from_running_is_told(folder: Folder) -> None:
    folder.configure('[agent.tokens]\nme = "env:NOT_SET_ANYWHERE"\n')
    with pytest.raises(ConfigError, match="NOT_SET_ANYWHERE"), reach_agent(folder.wanted(), working=True):
        pass
    folder.configure()
    flags = Flags(model="opena:gpt-5-mini")
    with pytest.raises(ConfigError, match="Did you mean"), reach_agent(folder.wanted(flags=flags), working=True):
        pass


# One that is only looked at


def test_looking_needs_no_port_and_no_model(folder: Folder) -> None:
    with reach_agent(folder.wanted(), working=True) as agent:
        answer_to(agent.api, "Hi")
    settings = (folder.path / "rapkit.toml").read_text()
    (folder.path / "rapkit.toml").write_text(settings.replace('model = "scripted:plan.yaml"\n', ""))

    with reach_agent(folder.wanted(), working=False) as agent:
        assert (agent.is_ours, agent.works) == (True, False)
        assert is_free(folder.port)
        assert len(agent.api.get("threads")["threads"]) == 1


def test_what_is_left_by_somebody_who_looks_is_done_later(folder: Folder) -> None:
    with reach_agent(folder.wanted(), working=True) as agent:
        answer_to(agent.api, "Hi")
    with reach_agent(folder.wanted(), working=False) as agent:
        thread_id = agent.api.post("threads", {"text": "Are you there?"})["thread_id"]
        assert agent.api.get(f"threads/{thread_id}")["status"] == "running"

    with reach_agent(folder.wanted(), working=True) as agent:
        eventually(lambda: len(lines(agent.api, thread_id)) == 2)


def test_looking_makes_nothing(folder: Folder) -> None:
    with pytest.raises(ConfigError, match="There is no agent here"), reach_agent(folder.wanted(), working=False):
        pass

    assert not folder.store.exists()
    assert not folder.store.parent.exists()


def test_looking_changes_nothing(folder: Folder) -> None:
    """Neither schedules, nor where an agent without a worker receives: what is configured now counts when the agent runs."""
    folder.configure('[[schedule]]\ncron = "0 9 * * *"\nmessage = "Good morning."\nname = "first"\n')
    with reach_agent(folder.wanted(), working=True) as agent:
        answer_to(agent.api, "Hi")
    folder.configure('[[schedule]]\ncron = "0 10 * * *"\nmessage = "Good evening."\nname = "second"\n', port=0)
    before = folder.dump()

    with reach_agent(folder.wanted(), working=False) as agent:
        agent.api.get("threads")

    assert folder.dump() == before
    assert any("first" in line for line in before)


# One that runs


@pytest.fixture
def running(folder: Folder) -> Iterator[AgentApi]:
    with reach_agent(folder.wanted(), working=True) as agent:
        yield agent.api


def test_one_that_runs_is_found_by_its_settings_or_its_url(folder: Folder, running: AgentApi, tmp_path: Path) -> None:
    for wanted in (folder.wanted(), AgentSelection(str(tmp_path / "nothing.toml"), url=running.url)):
        for working in (True, False):
            with reach_agent(wanted, working=working) as agent:
                assert (agent.api.url, agent.is_ours, agent.works) == (running.url, False, True)


def test_the_agent_of_another_folder_is_not_taken_for_ours(folder: Folder, running: AgentApi, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Folder(tmp_path / "other")
    other.configure(port=folder.port)

    with (
        pytest.raises(ConfigError, match=f"The agent at {running.url} is another one"),
        reach_agent(other.wanted(), working=False),
    ):
        pass


@pytest.mark.parametrize("theirs", ["sqlite:///.rapkit/agent.db", "sqlite:///:memory:"], ids=["a file", "memory"])
def test_a_store_in_memory_is_nobody_elses(folder: Folder, theirs: str) -> None:
    ours = folder.wanted(flags=Flags(store="sqlite:///:memory:"))
    with (
        reach_agent(folder.wanted(flags=Flags(store=theirs)), working=True),
        pytest.raises(ConfigError, match=f"The agent at {folder.url} is another one: .*--url {folder.url} to use"),
        reach_agent(ours, working=True),
    ):
        pass


def test_what_was_asked_for_is_not_ignored(folder: Folder, running: AgentApi) -> None:
    for flags, said in (
        (Flags(model="test"), r"with the model scripted:.*plan\.yaml, not test\. Leave out --model"),
        (Flags(servers=("http://127.0.0.1:9/",)), r"without the server http://127\.0\.0\.1:9/\."),
    ):
        for wanted in (folder.wanted(flags=flags), folder.wanted(flags=flags, url=running.url)):
            with pytest.raises(ConfigError, match=said), reach_agent(wanted, working=True):
                pass
    same = Flags(model=f"scripted:{folder.path / 'plan.yaml'}")
    with reach_agent(folder.wanted(flags=same), working=True) as agent:
        assert not agent.is_ours


def test_a_server_with_a_name_is_known_by_its_url(folder: Folder) -> None:
    folder.configure('[[servers]]\nurl = "http://127.0.0.1:9"\nname = "weather"\n')
    flags = Flags(servers=("http://127.0.0.1:9",))
    with reach_agent(folder.wanted(), working=True), reach_agent(folder.wanted(flags=flags), working=True) as agent:
        assert agent.api.get("agent")["servers"] == ["weather"]


# One that another command runs


def test_one_that_ends_with_its_command_goes_on_here(folder: Folder) -> None:
    with contextlib.ExitStack() as first:
        began = first.enter_context(reach_agent(folder.wanted(), working=True))
        with reach_agent(folder.wanted(), working=True) as heir:
            thread_id = heir.api.post("threads", {"text": "Hi"}, key="k1")["thread_id"]
            assert (began.is_ours, heir.is_ours) == (True, False)
            assert heir.api.get("agent")["lasting"] is False
            first.close()

            assert heir.api.post("threads", {"text": "Hi"}, key="k1")["thread_id"] == thread_id
            assert (began.is_ours, heir.is_ours) == (False, True)
            assert answer_to(heir.api, "And now?") == "Hello."
            assert heir.api.url == folder.url

    assert is_free(folder.port)


def test_whoever_would_run_it_a_second_time_is_told(folder: Folder) -> None:
    with reach_agent(folder.wanted(), working=True):
        outcome = rapkit("up", folder=folder.path)
    assert outcome.code == 2
    assert f"The agent of these settings runs already, on 127.0.0.1 port {folder.port}, for a command" in outcome.err

    about = {"store": f"sqlite:///{folder.store}", "works": True, "lasting": True}
    for answer, said in ((document(about), "runs already, on"), (document({}), "is taken. Stop what uses it")):
        with posing() as impostor:
            impostor.answers = [answer]
            port = impostor.url.rpartition(":")[2]
            outcome = rapkit("up", "--port", port, folder=folder.path)
        assert outcome.code == 2
        assert said in outcome.err
        assert "for a command" not in outcome.err


def test_one_of_many_heirs_goes_on_for_all(folder: Folder) -> None:
    with contextlib.ExitStack() as first, contextlib.ExitStack() as others:
        first.enter_context(reach_agent(folder.wanted(), working=True))
        heirs = [others.enter_context(reach_agent(folder.wanted(), working=True)) for _ in range(3)]
        thread_id = heirs[0].api.post("threads", {"text": "Hi"})["thread_id"]
        first.close()

        def follow(heir: ReachedAgent) -> int:
            return next(
                int(each.data["seq"])
                for each in ReconnectingStream(heir.api, thread_id)
                if isinstance(each, StreamEvent) and each.kind == "entry"
            )

        with ThreadPoolExecutor(len(heirs)) as pool:
            assert list(pool.map(follow, heirs)) == [1, 1, 1]
        assert sum(heir.is_ours for heir in heirs) == 1


def test_who_only_looks_takes_nothing_over(folder: Folder) -> None:
    with contextlib.ExitStack() as first:
        first.enter_context(reach_agent(folder.wanted(), working=True))
        with reach_agent(folder.wanted(), working=False) as looking:
            first.close()
            with pytest.raises(AgentUnreachable):
                looking.api.get("threads")
            assert is_free(folder.port)


def test_one_that_is_run_for_good_is_waited_for(folder: Folder) -> None:
    """Its port is kept free for it, while it is restarted."""
    about = {"store": f"sqlite:///{folder.store}", "works": True, "lasting": True}
    with contextlib.ExitStack() as stack:
        impostor = stack.enter_context(posing())
        impostor.answers = [document(about)]
        folder.configure(port=int(impostor.url.rpartition(":")[2]))
        with reach_agent(folder.wanted(), working=True) as agent:
            stack.close()
            with pytest.raises(AgentUnreachable):
                agent.api.get("threads")
            assert not agent.is_ours


def test_one_that_cannot_go_on_here_says_why(folder: Folder) -> None:
    with contextlib.ExitStack() as first:
        first.enter_context(reach_agent(folder.wanted(), working=True))
        with reach_agent(folder.wanted(), working=True) as heir:
            first.close()
            (folder.path / "plan.yaml").unlink()
            with pytest.raises(
                AgentRefused, match=r"has ended with the command that ran it, and cannot run here: .*plan\.yaml"
            ):
                heir.api.get("threads")


def test_two_that_begin_at_once_share_one(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second looks before the first listens, and finds the port taken then."""
    looked = threading.Barrier(2)
    about, here = agent_selection._about, threading.local()

    def both_look(api: AgentApi) -> Any:
        try:
            return about(api)
        finally:
            if not hasattr(here, "looked"):
                here.looked = True
                looked.wait(PATIENCE)

    monkeypatch.setattr(agent_selection, "_about", both_look)

    def ask(text: str) -> str:
        with reach_agent(folder.wanted(), working=True) as agent:
            return answer_to(agent.api, text)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(ask, ["One", "Two"])) == ["Hello.", "Hello."]


def test_a_url_where_nobody_is(folder: Folder) -> None:
    with (
        pytest.raises(AgentUnreachable, match="cannot be reached"),
        reach_agent(folder.wanted(url=folder.url), working=True),
    ):
        pass


@pytest.mark.parametrize(
    "answer",
    [raw(b"<html>"), raw(b"<html>", 404), document({"hello": "world"}), document(["store", "works"]), document("x")],
    ids=["a page", "no page", "an object", "a list", "a text"],
)
def test_something_else_on_its_port_is_no_agent(folder: Folder, answer: Any) -> None:
    with posing() as impostor:
        impostor.answers = [answer]
        folder.configure(port=int(impostor.url.rpartition(":")[2]))
        for wanted in (folder.wanted(), folder.wanted(url=impostor.url)):
            for working in (True, False):
                with pytest.raises(ConfigError, match="is no agent"), reach_agent(wanted, working=working):
                    pass


def test_something_on_its_port_that_fails_keeps_it_from_running(folder: Folder) -> None:
    with posing() as impostor:
        impostor.answers = [problem(503, "Not now.")]
        port = int(impostor.url.rpartition(":")[2])
        folder.configure(port=port)
        with (
            pytest.raises(ConfigError, match=f"Port {port} on 127.0.0.1 is taken"),
            reach_agent(folder.wanted(), working=True),
        ):
            pass


def test_one_that_wants_another_token_says_so(folder: Folder) -> None:
    folder.configure(f'[agent.tokens]\nme = "{TOKEN}"\n')
    with reach_agent(folder.wanted(), working=True):
        folder.configure()
        with pytest.raises(AgentRefused, match="--token"), reach_agent(folder.wanted(), working=False):
            pass
        with reach_agent(folder.wanted(token=TOKEN), working=False) as agent:
            assert json.dumps(agent.api.get("threads"))
