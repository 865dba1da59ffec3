"""An agent with a tool server and a scripted model, for tests of the commands that talk to agents; and those commands, in this process."""

import contextlib
import io
import json
import logging
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from rapkit.cli import main
from rapkit.cli.agent_api import AgentApi
from tests.cli.command import Outcome, Running, eventually, running
from tests.cli.foreign_server import ForeignServer, listening

PLAN = r"""
- user: {regex: "weather in (?P<city>.+)"}
  say: Let me look.
  calls: [watch: {what: "{match[city]}"}]
  usage: {input_tokens: 100, output_tokens: 20, cost: 0.0012}
- user: ask me
  calls: [ask_user: {question: "Where to?", choices: ["Oslo", "Rome"]}]
- user: in words
  calls: [ask_user: {question: "Why?"}]
- user: ask twice
  calls: [ask_user: {question: "Where to?", choices: ["Oslo", "Rome"]}, ask_user: {question: "Why?"}]
- user: break
  fail: It broke.
  retryable: false
- user: have a child
  calls: [spawn_thread: {task: "Find out about rain"}]
- user: think
  delay: 60
  say: At last.
- user: paint
  say: "\e[31mred"
- user: sleep
  calls: [sleep: {seconds: 90000}]
- task: rain
  say: It rains.
- answer: watch
  say: "I asked: {answer}"
- answer: ask_user
  say: "So it is {answer}"
- event: watch
  text: buy
  calls: [ask_user: {question: "Buy it?", choices: ["Yes", "No"]}]
- event: watch
  text: break
  fail: It broke.
  retryable: false
- event: watch
  say: "I heard: {text}"
- say: Hello.
"""
WATCH = {
    "name": "watch",
    "description": "Watch something.",
    "inputSchema": {"type": "object", "properties": {"what": {"type": "string"}}},
    "displayScript": '"Watch " + args.what',
}


class Home:
    """A folder with settings for an agent, and what runs there."""

    def __init__(self, folder: Path, tools: ForeignServer, port: int) -> None:
        self.folder = folder
        self.tools = tools
        self.url = f"http://127.0.0.1:{port}"
        self.api = AgentApi(self.url)
        (folder / "plan.yaml").write_text(PLAN)
        (folder / "rapkit.toml").write_text(
            f'[agent]\nmodel = "scripted:plan.yaml"\nport = {port}\n[[servers]]\nurl = "{tools.url}"\n'
        )

    @contextlib.contextmanager
    def up(self) -> Iterator[Running]:
        """The agent, in a process of its own."""
        with running("up", folder=self.folder) as up:
            eventually(lambda: "agent at" in up.err or not up.alive)
            assert up.alive, up.err
            yield up

    def run(self, *words: str, **options: Any) -> Outcome:
        """A command that finds the agent by its settings."""
        return command(*words, environment={"RAPKIT_CONFIG": str(self.folder / "rapkit.toml")}, **options)

    def ask(self, text: str, *, until: str = "idle") -> str:
        """Begin a thread, and wait until it is so far; its id."""
        made: str = self.api.post("threads", {"text": text})["thread_id"]
        self.wait(made, until)
        return made

    def wait(self, thread_id: str, status: str) -> Any:
        """The thread, once it has this status and something has happened in it."""

        def is_there() -> bool:
            thread = self.look(thread_id)
            return bool(thread["length"]) and thread["status"] == status

        eventually(is_there)
        return self.look(thread_id)

    def look(self, thread_id: str) -> Any:
        return self.api.get(f"threads/{thread_id}")

    def called(self, text: str) -> Any:
        """Begin a thread in which the tool is called, and does not answer: what the tool was sent, with the thread's id as `group_id`."""
        count = len(self.tools.received)
        thread_id = self.ask(text, until="waiting")
        eventually(lambda: len(self.tools.received) > count)
        invocation = self.tools.received[-1]
        assert invocation["group_id"] == thread_id
        return invocation

    def call_back(self, invocation: Any, **message: Any) -> None:
        """Let the tool say something about a call."""
        self.tools.callbacks = [message]
        self.tools.call_back(invocation)
        self.tools.callbacks = []


@contextlib.contextmanager
def agent_home(folder: Path) -> Iterator[Home]:
    """A home in which nothing runs yet but its tool server."""
    with listening() as tools:
        document = {"name": "strange", "endpoint": f"{tools.url}/invoke", "tools": [WATCH]}
        tools.document = json.dumps(document).encode()
        with contextlib.closing(_free_port()) as bound:
            port = bound.getsockname()[1]
        yield Home(folder, tools, port)


def _free_port() -> socket.socket:
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    return bound


def command(
    *words: str, environment: Mapping[str, str] | None = None, stdin: bytes = b"", columns: int = 100
) -> Outcome:
    """Run a command in this process, which is quicker than in one of its own; not on a terminal."""
    out, err = io.StringIO(), io.StringIO()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    said = {"COLUMNS": str(columns), **(environment or {})}
    with (
        mock.patch.dict(os.environ, said),
        mock.patch.object(sys, "argv", ["rapkit", *words]),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin))),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
            code: Any = 0
        except SystemExit as end:
            code = end.code
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
    return Outcome(code or 0, out.getvalue(), err.getvalue())
