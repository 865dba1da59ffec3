"""`rapkit serve --reload`."""

import json
import signal
import socket
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from tests.cli.command import eventually, running

CODE = """
from rapkit import Toolset

tools = Toolset("weather", description="{description}")

@tools.tool
def ping() -> str:
    \"\"\"Answer.\"\"\"
    return "pong"
"""


def description(port: int) -> str | None:
    """What the server says of itself, or None while there is none."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/.well-known/rap-toolset") as answer:
            text: str = json.load(answer)["description"]
            return text
    except (URLError, ConnectionError):
        return None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_a_change_is_served_and_a_broken_file_waited_out(tmp_path: Path) -> None:
    port = free_port()
    file = tmp_path / "weather.py"
    file.write_text(CODE.format(description="first"))

    with running("serve", "weather.py", "--reload", "--port", str(port), folder=tmp_path) as server:
        eventually(lambda: description(port) == "first")

        file.write_text(CODE.format(description="second"))
        eventually(lambda: description(port) == "second")
        assert "weather.py changed; restarting" in server.err

        file.write_text("tools = (\n")
        eventually(lambda: "it is started again when a Python file changes" in server.err)
        assert (
            "rapkit: weather.py cannot be loaded. SyntaxError: '(' was never closed (weather.py, line 1)" in server.err
        )
        assert description(port) is None

        file.write_text(CODE.format(description="third"))
        eventually(lambda: description(port) == "third")

        server.send(signal.SIGTERM)
        assert server.ended() == 0
        assert description(port) is None  # the process that served it is gone too
        assert "Traceback" not in server.err
