"""Every snippet of the README and the guides is carried out, in the order in which a reader meets them.

A block is Python that runs, a configuration or a plan of the scripted model that loads, a message that parses, or commands for a shell.
"""

import json
import subprocess
import tomllib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from rapkit.models import open_model
from rapkit.protocol import parse_callback, parse_invocation, parse_toolset
from tests.docs.blocks import PAGES, ROOT, Block, blocks_of, name_of
from tests.docs.walk import GIVEN, is_walked, walk

RUN = {"python", "toml", "yaml", "json", "console", "sh"}
AT_ONCE = 3
SHOWN = {"", "text", "http", "dockerfile"}
"""Pictures, and what is written in languages that nothing here reads."""

WALKED_ELSEWHERE = {"docs/howto/http_api.md": "tests/runtime/api/test_docs.py"}
"""Pages whose commands need more around them than a shell."""

BLOCKS = [block for page in PAGES for block in blocks_of(page)]
WITH_PYTHON = [page for page in PAGES if any(block.language == "python" for block in blocks_of(page))]
WITH_COMMANDS = [page for page in PAGES if name_of(page) not in WALKED_ELSEWHERE and is_walked(page)]


def in_(*languages: str) -> list[Block]:
    return [block for block in BLOCKS if block.language in languages]


def place(block: Block) -> str:
    return block.place


def test_every_block_is_of_a_kind_that_is_carried_out() -> None:
    unknown = [f"{block.place}: {block.language}" for block in BLOCKS if block.language not in RUN | SHOWN]

    assert unknown == []
    assert [page for page, test in WALKED_ELSEWHERE.items() if Path(page).name not in (ROOT / test).read_text()] == []


def test_what_is_given_is_given_to_a_page() -> None:
    assert [each.name for each in GIVEN.iterdir() if each.name not in {page.stem for page in WITH_COMMANDS}] == []


def test_only_commands_may_be_left_out() -> None:
    assert [block.place for block in BLOCKS if block.not_run and block.language not in ("console", "sh")] == []


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name_of)
def test_the_python_of_a_page_runs(page: Path) -> None:
    blocks = [block for block in blocks_of(page) if block.language == "python"]
    names: dict[str, object] = {"__name__": "snippet"}
    while blocks:
        block = blocks.pop(0)
        code = compile("\n" * block.line + block.text, str(page), "exec")
        # A file is for the commands of its page; but where the text goes on in Python, it goes on from there.
        if block.title is None or any(other.title is None for other in blocks):
            exec(code, names)


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Path, "Future[None]"]]:
    """Every page on its way, some at the same time: mostly they wait for their programs."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        yield {page: threads.submit(walk, page, tmp_path_factory.mktemp(page.stem)) for page in WITH_COMMANDS}
        threads.shutdown(cancel_futures=True)  # those that nobody asks for


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=name_of)
def test_the_commands_of_a_page_do_what_it_shows(page: Path, walks: dict[Path, "Future[None]"]) -> None:
    walks[page].result()


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.title], ids=place)
def test_a_file_is_there_for_something(block: Block) -> None:
    assert block.title is not None
    others = [other for other in blocks_of(block.page) if other != block]
    module = Path(block.title).stem
    found_by_itself = {"rapkit": "rapkit ", f"test_{module[5:]}": "test"}.get(module, module)

    assert [other.place for other in others if module in other.text or found_by_itself in other.text]


@pytest.mark.parametrize("block", [block for block in in_("console", "sh") if block.not_run], ids=place)
def test_commands_that_are_not_run_are_commands(block: Block) -> None:
    lines = [line.removeprefix("$ ") for line in block.text.splitlines() if block.language == "sh" or line[:2] == "$ "]
    checked = subprocess.run(["bash", "-n"], input="\n".join(lines), text=True, capture_output=True)

    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("block", in_("yaml"), ids=place)
def test_a_script_of_the_model_can_be_loaded(block: Block, tmp_path: Path) -> None:
    assert yaml.safe_load(block.text)
    if block.title is None or "plan" in block.title:
        plan = tmp_path / "plan.yaml"
        plan.write_text(block.text)
        open_model(f"scripted:{plan}")


def test_another_file_in_toml_can_be_read() -> None:
    for block in in_("toml"):
        assert tomllib.loads(block.text), block.place


def test_a_message_is_one_of_the_protocol() -> None:
    for block in in_("json"):
        message = json.loads(block.text)
        if "type" in message:
            parse_callback(block.text.encode())
        elif "operation" in message:
            parse_invocation(block.text.encode())
        elif "tools" in message:
            parse_toolset(block.text.encode())
