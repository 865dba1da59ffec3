"""Agents to be examined, by their settings."""

import socket
from pathlib import Path

from rapkit.cli.doctor.checked_agent import CheckedAgent
from rapkit.settings.settings import load_settings

PLAN = """
- user: fail
  fail: No credit.
  retryable: false
- say: Ready.
"""


def checked(
    folder: Path, agent: str = "", *servers: str, model: str = "scripted:plan.yaml", ask_model: bool = False
) -> CheckedAgent:
    """One whose settings are these, in a file of this folder."""
    (folder / "plan.yaml").write_text(PLAN)
    file = folder / "rapkit.toml"
    file.write_text(f'[agent]\nmodel = "{model}"\n{agent}\n' + "".join(f"[[servers]]\n{each}\n" for each in servers))
    return CheckedAgent(file, load_settings(file, environment={}), None, folder, ask_model)


def free_port() -> int:
    """A port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port
