"""Every rapkit.toml in the README and the guides is one that an agent starts with, and the reference leaves no key out."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from rapkit.settings import settings
from rapkit.settings.keys import key_names
from rapkit.settings.settings import load_settings
from tests.certificates import Authority
from tests.docs.blocks import PAGES, ROOT, Block, blocks_of

GUIDE = ROOT / "docs" / "howto" / "build_an_agent.md"
SECURITY = ROOT / "docs" / "howto" / "secure.md"


def configurations(page: Path) -> list[Block]:
    blocks = [block for block in blocks_of(page) if block.language == "toml"]
    return [block for block in blocks if block.title in (None, "rapkit.toml")]


BLOCKS = [pytest.param(block.text, id=block.place) for page in PAGES for block in configurations(page)]


@pytest.mark.parametrize("text", BLOCKS)
def test_a_configuration_can_be_loaded(text: str, tmp_path: Path) -> None:
    (tmp_path / "instructions.md").write_text("Be brief.")
    Authority(tmp_path).sign("agent", "agent")
    file = tmp_path / "rapkit.toml"
    file.write_text(text)
    if "model" not in tomllib.loads(text).get("agent", {}):  # a part of one
        loaded = load_settings(file, environment={"RAPKIT_MODEL": "scripted:plan.yaml"})
    else:
        loaded = load_settings(file, environment={})

    assert loaded.model


def test_the_reference_has_every_key() -> None:
    reference = max((block.text for block in configurations(GUIDE)), key=len)
    document = tomllib.loads(re.sub(r"^# (\w+ = )", r"\1", reference, flags=re.MULTILINE))

    agent: dict[str, Any] = document["agent"]
    assert set(agent) == set(key_names("agent"))
    assert set(agent["budget"]) == set(key_names("agent.budget"))
    assert set(document["schedule"][0]) == set(key_names("schedule"))
    assert {key for server in document["servers"] for key in server} == set(key_names("servers"))


def test_the_reference_has_every_limit() -> None:
    text = GUIDE.read_text()
    limits = text[text.index("## Limits") :]

    assert [key for key in settings._LIMITS if f"`{key}`" not in limits] == []
    security = SECURITY.read_text()
    assert [
        key
        for key in (*key_names("agent.capacity"), *key_names("agent.capacity.http"))
        if f"`{key}`" not in security[security.index("## Limits") :]
    ] == []
