"""Nothing of a secret is told, wherever it was configured, and whatever is wrong with it."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner

from rapkit.cli.doctor import command
from rapkit.stores import open_store
from tests.cli.command import rapkit
from tests.cli.doctor.checked_agents import PLAN, free_port
from tests.cli.foreign_server import ForeignServer

# Two halves, so that what is cut in two is still known.
WHOLE = "xyzzy-xyzzy-xyzzy-plugh-plugh-plugh"
BROKEN = "xyzzy-xyzzy-xyzzy\nplugh-plugh-plugh"
SHORT = "xyzzy"
NO_ASCII = "xyzzy-xyzzy-xyzzy-é-plugh-plugh"
HALVES = ("xyzzy", "plugh")


@dataclass(frozen=True)
class Planted:
    """A place with a secret in it: settings of the agent and of a server, words, variables, and what is in files that are read."""

    agent: str = ""
    server: str = ""
    words: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    file: str = ""


def everywhere(secret: str) -> dict[str, Planted]:
    """All places that can hold any text."""
    quoted = json.dumps(secret)
    return {
        "server token": Planted(server=f"token = {quoted}"),
        "server token in a variable": Planted(server='token = "env:WT"', environment={"WT": secret}),
        "server token in a file": Planted(server='token = "file:secret"', file=secret),
        "agent token": Planted(agent=f"tokens = {{ me = {quoted} }}"),
        "agent tokens in a list": Planted(agent=f"tokens = {{ me = [{quoted}, {quoted}] }}"),
        "agent token in a variable": Planted(agent='tokens = { me = "env:WT" }', environment={"WT": secret}),
        "agent token in a file": Planted(agent='tokens = { me = "file:secret" }', file=secret),
        "token of the command line": Planted(words=("--token", f"me={secret}")),
        "model key": Planted(words=("--model", "openai:gpt-5-mini"), environment={"OPENAI_API_KEY": secret}),
        "key of the store": Planted(environment={"RAPKIT_SECRET_KEY": secret}),
        "key beside the store": Planted(file=secret, words=("--store", "sqlite:///kept.db")),
    }


MISPLACED = {
    "server token that is none": Planted(server=f'token = ["{WHOLE}"]'),
    "agent tokens without names": Planted(agent=f'tokens = "{WHOLE}"'),
    "server token in the wrong table": Planted(agent=f'token = "{WHOLE}"'),
    "token without quotes": Planted(server=f"token = {WHOLE}"),
    "password in --server": Planted(words=("--server", f"http://me:{WHOLE}@127.0.0.1:1")),
    "password in RAPKIT_SERVERS": Planted(environment={"RAPKIT_SERVERS": f"http://me:{WHOLE}@127.0.0.1:1"}),
    "password in public_url": Planted(agent=f'public_url = "http://me:{WHOLE}@127.0.0.1:1"'),
    "password in the store": Planted(agent=f'store = "postgres://me:{WHOLE}@db/rapkit"'),
}

KINDS = {"whole": WHOLE, "with a newline": BROKEN, "short": SHORT, "not ASCII": NO_ASCII}
ALL = {f"{place}, {kind}": planted for kind, secret in KINDS.items() for place, planted in everywhere(secret).items()}


@pytest.mark.parametrize("planted", [pytest.param(each, id=name) for name, each in (ALL | MISPLACED).items()])
async def test_no_secret_is_told(
    tmp_path: Path, stranger: ForeignServer, monkeypatch: pytest.MonkeyPatch, planted: Planted
) -> None:
    monkeypatch.chdir(tmp_path)
    stranger.offer()
    stranger.status = 401
    await open_store(f"sqlite:///{tmp_path}/kept.db").close()
    (tmp_path / "plan.yaml").write_text(PLAN)
    (tmp_path / "secret").write_text(planted.file)
    if planted.file:
        (tmp_path / "kept.db.key").write_text(planted.file)
    agent = planted.agent if "store" in planted.agent else f'store = "sqlite:///kept.db"\n{planted.agent}'
    port = stranger.url.rpartition(":")[2]  # it is where the agent would be, too, so that it is shown the agent's token
    (tmp_path / "rapkit.toml").write_text(
        f'[agent]\nmodel = "scripted:plan.yaml"\nport = {port}\n{agent}\n'
        f'[[servers]]\nurl = "{stranger.url}"\n{planted.server}\n'
    )

    outcome = CliRunner().invoke(command, ["--json", *planted.words], env=planted.environment)

    assert json.loads(outcome.stdout)["checks"]
    assert outcome.stderr == ""
    assert "the check itself broke" not in outcome.stdout
    assert not [half for half in HALVES if half in outcome.stdout]


def test_no_key_of_a_model_is_told_that_cannot_be_sent(tmp_path: Path, stranger: ForeignServer) -> None:
    environment = {"OPENAI_API_KEY": BROKEN, "OPENAI_BASE_URL": stranger.url}
    words = ("--model", "openai:gpt-5-mini", "--port", str(free_port()), "--ask-model")

    outcome = rapkit("doctor", "--json", *words, folder=tmp_path, environment=environment)

    assert {each["check"]: each["state"] for each in json.loads(outcome.out)["checks"]}["model"] == "failed"
    assert not [half for half in HALVES if half in outcome.out + outcome.err]
