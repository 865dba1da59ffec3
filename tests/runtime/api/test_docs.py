"""The commands of docs/howto/http_api.md work as they stand there."""

import asyncio
import json
import re
import shutil
from pathlib import Path

import pytest

from tests.runtime.agents import RunningAgent
from tests.runtime.api.client import Client

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "http_api.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
async def test_the_commands_of_the_page_work(agent: RunningAgent) -> None:
    first, *others = (block[1] for block in BLOCK.finditer(PAGE.read_text()))
    made = json.loads((await _run(first.replace("http://127.0.0.1:8700", agent.url))).splitlines()[-1])
    thread = made["thread_id"]

    output = await _run(f"AGENT={agent.url}\nTHREAD={thread}\n" + "\n".join(others))

    assert '"status":409' not in output
    assert "event: status" in output
    await agent.quiet()
    entries = await Client(agent.port).entries(f"/v1/threads/{thread}")
    said = [entry["text"] for entry in entries if entry["kind"] == "user"]
    assert said == ["Will it rain in Oslo?", "And tomorrow?", "Thank you."]


async def _run(script: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *("sh", "-e", "-c", script), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return out.decode()
