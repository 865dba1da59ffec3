"""`rapkit demo --live`, with a model that a provider on this machine answers for."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rapkit.cli.demo.live_model import live_model
from rapkit.errors import ConfigError
from rapkit.extras import how_to_install
from tests.cli.command import rapkit
from tests.cli.demo_runs import demo, environment, provider, summary_of


def test_live_is_played_by_a_real_model(tmp_path: Path) -> None:
    with provider() as model, demo(tmp_path / "run", "--live", more=model.env) as run:
        run.until("→ lab    load_test(build=42")
        assert "agent    On it." in run.out
        assert model.requests[0]["model"] == "gpt-5-mini"
        assert "call load_test and watch_alerts" in json.dumps(model.requests[0])
        run.stop(signal.SIGTERM)


@pytest.mark.soak
def test_live_goes_on_to_the_end(tmp_path: Path) -> None:
    with provider() as model, demo(tmp_path / "run", "--live", more=model.env) as run:
        assert run.ended() == 0, run.out + run.err
        assert "child    reports: Harmless: a cold cache." in run.out
        assert summary_of(run.out)["model"] == f"{len(model.requests)} requests to openai:gpt-5-mini"
        assert run.is_gone()


def test_live_needs_a_key(tmp_path: Path) -> None:
    nothing = dict.fromkeys(("RAPKIT_MODEL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"), "")
    outcome = rapkit("demo", "--live", folder=tmp_path, environment=nothing)
    assert outcome.code == 2
    assert outcome.err.startswith("rapkit: --live needs a model: set OPENAI_API_KEY or ANTHROPIC_API_KEY")


def test_live_is_not_for_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAPKIT_MODEL", "scripted:plan.yaml")
    with pytest.raises(ConfigError, match="--live is for a real model"):
        live_model()


def test_live_without_the_extra_says_what_to_install(tmp_path: Path) -> None:
    script = "import sys; sys.modules['pydantic_ai'] = None; sys.argv[1:] = ['demo', '--live']; from rapkit.cli import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=environment(tmp_path, {"OPENAI_API_KEY": "sk-none"}),
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 2
    assert how_to_install("agent") in " ".join(ended.stderr.split())
