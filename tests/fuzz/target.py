"""The server that is fuzzed: the real command in a process of its own, and whatever it says in its log."""

import itertools
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rapkit.cli.listener import Listener
from rapkit.protocol import Callback, ToolResult
from tests.crash.processes import Process, complaints_in, free_port
from tests.fuzz.wire import DEADLINE, Answer, ask, request

HERE = Path(__file__).parent


def fuzzed_server(folder: Path) -> Process:
    port = free_port()
    store = f"sqlite:///{folder / 'fuzzed.db'}"
    command = [sys.executable, "-m", "rapkit", "serve", str(HERE / "tools.py"), "--port", str(port), "--store", store]
    return Process("server", [*command, "--log-format", "json"], folder, port)


@dataclass
class Target:
    """The server, and a listener for what it calls back."""

    process: Process
    listener: Listener
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    _early: dict[tuple[str, str], ToolResult] = field(default_factory=dict)
    _pid: int = 0

    def __post_init__(self) -> None:
        self._pid = self.process.pid

    @property
    def port(self) -> int:
        return self.process.port

    def invocation(self, **changes: Any) -> dict[str, Any]:
        """A good one, with ids of its own unless they are given."""
        n = next(self._numbers)
        good = {
            "operation": "echo",
            "arguments": {"text": f"hello {n}"},
            "id": f"call_{n}",
            "group_id": f"thread_{n}",
            "callback_url": self.listener.url,
        }
        return {**good, **changes}

    def post(self, path: str, body: bytes, **headers: str | None) -> Answer:
        return ask(self.port, request("POST", path, body, {k.replace("_", "-"): v for k, v in headers.items()}))

    def result(self, group_id: str, id: str) -> ToolResult:
        """The result of a call, whenever it came."""
        while (group_id, id) not in self._early:
            message: Callback | None = self.listener.next(DEADLINE)
            assert message is not None, f"no result for {group_id}/{id}"
            if isinstance(message, ToolResult):
                self._early[message.group_id, message.id] = message
        return self._early[group_id, id]

    def check(self) -> None:
        """It is alive, has nothing to complain about, and serves a good call."""
        good = self.invocation()
        assert self.post("/invoke", json.dumps(good).encode()).status == 200
        assert self.result(good["group_id"], good["id"]).text == good["arguments"]["text"]
        assert ask(self.port, request("GET", "/readyz")).status == 200
        assert self.process.running
        assert self.process.pid == self._pid
        assert complaints_in(self.process.log()) == []
