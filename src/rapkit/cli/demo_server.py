"""The server process of `rapkit demo`, to be killed and started again."""

import http.client
import json
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rapkit.cli import demo_tools

_PATIENCE = 15.0


class DemoFailed(Exception):
    """A step of the demo did not go as it should."""


@dataclass(frozen=True, slots=True)
class Call:
    """An invocation, and when it was first sent."""

    operation: str
    arguments: Mapping[str, Any]
    callback_url: str
    id: str
    group_id: str
    made_at: float = field(default_factory=time.monotonic)

    @classmethod
    def make(cls, operation: str, arguments: Mapping[str, Any], callback_url: str) -> "Call":
        """A new call with ids of its own."""
        return cls(operation, arguments, callback_url, f"call_{secrets.token_hex(4)}", f"demo_{secrets.token_hex(4)}")

    @property
    def age(self) -> float:
        """Seconds since it was made."""
        return time.monotonic() - self.made_at

    @property
    def in_words(self) -> str:
        """`forecast(city="Oslo")`."""
        return f"{self.operation}({', '.join(f'{key}={json.dumps(value)}' for key, value in self.arguments.items())})"

    def body(self) -> bytes:
        """The call as it is POSTed."""
        return json.dumps(
            {
                "operation": self.operation,
                "arguments": self.arguments,
                "id": self.id,
                "group_id": self.group_id,
                "callback_url": self.callback_url,
            }
        ).encode()


class DemoServer:
    """`rapkit serve` on a free port of this machine, with its store in a folder. It does not outlive its context."""

    target = f"{demo_tools.__name__}:tools"
    store = "sqlite:///demo.db"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._child: subprocess.Popen[bytes] | None = None
        self.port = _free_port()

    def __enter__(self) -> Self:
        """Nothing runs before `start`."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Whatever happened, the process ends."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    @property
    def pid(self) -> int:
        """The process."""
        assert self._child is not None
        return self._child.pid

    def start(self) -> list[str]:
        """Start it and wait until it serves; says what it offers."""
        command = [
            sys.executable,
            "-m",
            "rapkit",
            "serve",
            self.target,
            "--port",
            str(self.port),
            "--store",
            self.store,
        ]
        with (self._folder / "server.log").open("wb") as log:
            self._child = subprocess.Popen(  # noqa: S603 - our own command line
                command, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline and self._child.poll() is None:
            try:
                status, body = self._ask("GET", "/.well-known/rap-toolset")
            except OSError:
                time.sleep(0.02)
                continue
            if status == 200:
                return [tool["name"] for tool in json.loads(body)["tools"]]
        said = (self._folder / "server.log").read_text(errors="replace").strip()
        raise DemoFailed(f"the server did not start. It said: {said or 'nothing'}")

    def send(self, call: Call) -> float:
        """POST a call; the seconds until it was acknowledged."""
        started = time.monotonic()
        try:
            status, body = self._ask("POST", "/invoke", call.body())
        except OSError as error:
            raise DemoFailed(f"{call.operation} could not be sent: {error}") from None
        if status != 200:
            raise DemoFailed(f"{call.operation} was answered {status}: {body.decode(errors='replace')}")
        return time.monotonic() - started

    def kill(self) -> None:
        """SIGKILL; afterwards nobody listens."""
        assert self._child is not None
        self._child.kill()
        self._child.wait()
        try:
            self._ask("GET", "/healthz")
        except OSError:
            return
        raise DemoFailed(f"something still listens on port {self.port}.")

    def _ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        # By hand rather than with our client: no proxy of the environment may come between.
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()
        except http.client.HTTPException as error:
            raise ConnectionError(str(error)) from None
        finally:
            connection.close()


def _free_port() -> int:
    # Below the ports that connections are given, or one of them could take ours while the server is dead.
    for _ in range(100):
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise DemoFailed("there is no free port.")
