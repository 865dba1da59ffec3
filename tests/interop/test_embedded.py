"""A tool server that another program starts, as the public daemon does: with RAP_EMBEDDED=1 it says on which port it listens."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.conftest import Join
from tests.interop.foreign_runtime import ForeignRuntime
from tests.interop.http_peer import PATIENCE

TOOLS = """
    import subprocess

    from rapkit import Toolset

    tools = Toolset("desk")
    if __name__ != "__main__":
        print("loaded")
        subprocess.run(["echo", "loaded by a program"], check=True)

    @tools.tool
    def greet() -> str:
        print("greeting")
        return "Hello."

    if __name__ == "__main__":
        tools.run(host="0.0.0.0", port=1)
"""


@pytest.fixture(params=["rapkit serve", "tools.run"])
def embedded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    (tmp_path / "tools.py").write_text(textwrap.dedent(TOOLS))
    words = ["-m", "rapkit", "serve", "tools.py", "--port", "1"] if request.param == "rapkit serve" else ["tools.py"]
    with (tmp_path / "stderr").open("wb") as stderr:
        child = subprocess.Popen(
            [sys.executable, *words],
            cwd=tmp_path,
            env={**os.environ, "RAP_EMBEDDED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    yield child
    if child.poll() is None:
        child.kill()
        child.wait(PATIENCE)
    assert child.stdout is not None
    child.stdout.close()


def test_the_port_is_the_only_line_on_standard_output(
    embedded: "subprocess.Popen[str]", join: Join, tmp_path: Path
) -> None:
    """Item 16: one line `{"port": N}`, once it listens; prints of the file and of tools go to standard error."""
    assert embedded.stdout is not None
    first = embedded.stdout.readline()
    assert first, (tmp_path / "stderr").read_text()
    said = json.loads(first)
    assert list(said) == ["port"]
    runtime = join(ForeignRuntime(f"http://127.0.0.1:{said['port']}"))

    assert runtime.result_of(runtime.call("greet"))["text"] == "Hello."
    embedded.terminate()

    assert embedded.stdout.read() == ""
    assert embedded.wait(PATIENCE) == 0
    assert "greeting" in (tmp_path / "stderr").read_text()
