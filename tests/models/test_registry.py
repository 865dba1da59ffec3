import subprocess
import sys
from pathlib import Path

import pytest

from rapkit.errors import ConfigError
from rapkit.extras import how_to_install
from rapkit.models import Model, kept_open, open_model
from rapkit.models.scripted import Scripted
from tests.models.conversations import ask, question


def refusal(name: object) -> str:
    with pytest.raises(ConfigError) as caught:
        open_model(name)  # type: ignore[arg-type]
    return str(caught.value)


@pytest.fixture(autouse=True)
def without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "DEEPSEEK_API_KEY"):
        monkeypatch.delenv(variable, raising=False)


def test_a_model_of_ours_is_itself() -> None:
    model = Scripted(lambda question: "Yes")
    assert open_model(model) is model


async def test_a_script_is_opened_by_its_file(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("- user: hello\n  say: Hello!\n")
    model = open_model(f"scripted:{plan}")
    assert model.name == f"scripted:{plan}"
    assert (await ask(model, question("hello"))).reply.text == "Hello!"


async def test_pydantic_ais_own_test_model() -> None:
    model = open_model("test")
    assert model.name == "test"
    assert [wanted.name for wanted in (await ask(model, question("Hi"))).reply.calls] == ["forecast"]


async def test_a_pydantic_ai_model_object_is_wrapped() -> None:
    from pydantic_ai.models.test import TestModel

    model = open_model(TestModel(call_tools=[], custom_output_text="Hello"))
    assert isinstance(model, Model)
    assert model.name == "test:test"
    async with kept_open(model):
        assert (await ask(model, question("Hi"))).reply.text == "Hello"


async def test_a_model_without_connections_can_be_kept_open_too() -> None:
    async with kept_open(Scripted(lambda question: "Yes")):
        pass


def test_a_missing_key_is_named_before_the_first_question() -> None:
    assert refusal("openai:gpt-5-mini") == (
        "The model 'openai:gpt-5-mini' cannot be used: set OPENAI_API_KEY. "
        'To try things without a key, use a script, like "scripted:plan.yaml", or see `rapkit demo`.'
    )
    assert "'openai-chat:gpt-4o' cannot be used: set OPENAI_API_KEY." in refusal("openai-chat:gpt-4o")
    assert "cannot be used: set ANTHROPIC_API_KEY." in refusal("anthropic:claude-haiku-5-5")
    assert "cannot be used: set DEEPSEEK_API_KEY." in refusal("deepseek:deepseek-chat")


def test_a_misspelt_provider_is_met_with_what_is_possible() -> None:
    text = refusal("opena:gpt-5-mini")
    assert text.startswith("There is no model 'opena:gpt-5-mini'. Did you mean 'openai:gpt-5-mini'?")
    assert '"scripted:plan.yaml"' in text


@pytest.mark.parametrize("name", ["", "gpt-5", "openai:", ":gpt-5"])
def test_a_name_without_provider_or_model_is_met_with_what_is_possible(name: str) -> None:
    text = refusal(name)
    assert text.startswith(f"{name!r} is no model.")
    assert '"openai:gpt-5-mini"' in text


def test_a_provider_whose_package_is_missing_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "groq", None)
    assert refusal("groq:llama") == (
        "The model 'groq:llama' cannot be used: its package is not installed. "
        'Run: pip install "pydantic-ai-slim[groq]"'
    )


def test_without_pydantic_ai_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [module for module in sys.modules if module.partition(".")[0] == "pydantic_ai"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    assert how_to_install("agent") in refusal("openai:gpt-5-mini")


def test_something_else_is_no_model() -> None:
    assert refusal(42).startswith("int is no model.")


def test_a_script_needs_a_file() -> None:
    assert refusal("scripted:") == "'scripted:' names no file. Use \"scripted:plan.yaml\"."


def test_a_script_loads_no_provider() -> None:
    program = (
        "import sys, rapkit.models, rapkit.models.scripted; "
        "print([name for name in ('pydantic_ai', 'openai', 'anthropic') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
