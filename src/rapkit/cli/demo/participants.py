"""The participants of the demo: a runtime that only receives, two tool servers, and workers started on demand."""

import json
import re
import secrets
import shlex
import sys
from pathlib import Path
from typing import Any

from rapkit.cli.agent_api import AgentApi
from rapkit.cli.demo.audit import Audit
from rapkit.cli.demo.conversation import Conversation
from rapkit.cli.demo.demo_state import DemoState
from rapkit.cli.demo.process import DemoProcess, free_port
from rapkit.cli.demo.sandbox import Sandbox
from rapkit.cli.demo.workers import Workers

SCRIPT = "scripted:plan.yaml"

_DISCOVERY = "/.well-known/rap-toolset"
_BAR = 10
_HANDLERS = re.compile(r'^rapkit_handlers_running\{toolset="ops"\} (\S+)$', re.MULTILINE)
_INSTRUCTIONS = """\
You look after a shop's servers. Be brief: one sentence at a time.
Asked to load-test a build, call load_test and watch_alerts (service "shop") together, in one reply.
When load_test has answered, say what it found and call nothing: you will be told of the next alert.
In a thread made for an alert, call read_logs (service "shop") once, then report_to_parent with what it means and done=true.
When a child thread reports that an alert is harmless, call roll_out: it asks the user itself, so you need not.
"""


class Participants:
    """The processes, in the folder of a sandbox; nothing runs before it is started."""

    def __init__(self, sandbox: Sandbox, model: str = SCRIPT) -> None:
        self.model = model
        self.secret = secrets.token_hex(16)
        self._sandbox = sandbox
        self._progress: dict[str, float] = {}
        ports: list[int] = []
        for _ in range(3):
            ports.append(free_port(*ports))
        agent, lab, ops = ports
        (sandbox.folder / "rapkit.toml").write_text(_config(model, agent, {"lab": lab, "ops": ops}))
        wake = shlex.join([sys.executable, "-m", "rapkit", "wake", "--log-format", "json"])
        as_json = ("--log-format", "json")
        self.runtime = sandbox.add(
            "runtime", "up", "--no-worker", "--on-accept", wake, *as_json, port=agent, serves_at="/readyz"
        )
        self.runtime.purpose = "receives and keeps"
        self.runtime.command = 'rapkit up --no-worker --on-accept "rapkit wake"'
        self.lab, self.ops = (
            sandbox.add(name, "serve", f"{name}.py", "--port", str(port), *as_json, port=port, serves_at=_DISCOVERY)
            for name, port in (("lab", lab), ("ops", ops))
        )
        for server in (self.lab, self.ops):
            server.purpose = "has tools"
            server.command = f"rapkit serve {server.name}.py --port {server.port}"
        self.processes = (self.runtime, self.lab, self.ops)
        self.workers = Workers(lambda: self.runtime.pid if self.runtime.state in ("starting", "alive") else None)

    def start(self, process: DemoProcess) -> None:
        """Start one of them."""
        process.start(RAPKIT_DEMO_WEBHOOK_SECRET=self.secret)

    def conversation(self, demo_state: DemoState) -> Conversation:
        """A thread, not begun yet."""
        servers = {"load_test": "lab", "watch_alerts": "ops", "read_logs": "ops", "roll_out": "ops"}
        return Conversation(
            AgentApi(f"http://127.0.0.1:{self.runtime.port}"), Audit(self.runtime.log), demo_state, servers
        )

    def offered(self) -> dict[str, list[str]]:
        """What the servers offer, as they say."""
        return {
            server.name: [tool["name"] for tool in json.loads(server.get(_DISCOVERY)[1])["tools"]]
            for server in (self.lab, self.ops)
        }

    def workspaces(self) -> list[Path]:
        """What the lab keeps for threads."""
        return list((self._sandbox.folder / ".rapkit").glob("lab.db.workspaces/t_*"))

    def progress(self) -> dict[str, Any]:
        """How far the load test is, as far as it was ever known: it is noted in the thread's folder."""
        for workspace in self.workspaces():
            try:
                self._progress = json.loads((workspace / "load_test.json").read_text())
            except (OSError, ValueError):
                continue
        return self._progress or {"runs": 0, "seconds": 0.0, "from": 0.0, "of": 0.0}

    def doing(self) -> dict[str, str]:
        """What is going on in a process, in a few words."""
        progress = self.progress()
        if not self.workspaces() or progress["seconds"] >= progress["of"]:
            return {}
        done = round(_BAR * progress["seconds"] / progress["of"])
        return {"lab": f"load_test {'━' * done}{'─' * (_BAR - done)} {progress['seconds']:g}/{progress['of']:g} s"}

    def running_handlers(self) -> float:
        """How many tools run in the ops server, by its metrics."""
        found = _HANDLERS.search(self.ops.get("/metrics")[1].decode())
        assert found is not None
        return float(found[1])

    def ended_subscriptions(self) -> int:
        """How many subscriptions the ops server has ended, by its log."""
        return self.ops.log.read_text().count('"subscription ended')

    def stores(self) -> int:
        """How many there are: the agent's and one of each server."""
        return len(list((self._sandbox.folder / ".rapkit").glob("*.db")))

    def disk_use(self) -> int:
        """Bytes in all stores."""
        return self._sandbox.disk_use()

    def tails(self) -> str:
        """The ends of all logs."""
        return "\n\n".join(process.tail() for process in self.processes)


def _config(model: str, port: int, servers: dict[str, int]) -> str:
    """The file that `rapkit up` reads. JSON strings are TOML strings."""
    tables = (f'[[servers]]\nname = "{name}"\nurl = "http://127.0.0.1:{at}"\n' for name, at in servers.items())
    agent = f"[agent]\nmodel = {json.dumps(model)}\ninstructions = {json.dumps(_INSTRUCTIONS)}\nport = {port}\n"
    return "\n".join((agent, *tables))
