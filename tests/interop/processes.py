"""Our own side of an interoperability test: `rapkit serve` and `rapkit up` as real processes that can be killed and started again."""

import json
import os
import resource
import signal
import socket
import ssl
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.interop.http_peer import PATIENCE, Json, eventually, get, post


def free_port() -> int:
    """A free loopback port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process:
    """A rapkit command that serves on a port, in a folder of its own."""

    def __init__(
        self,
        folder: Path,
        port: int,
        words: Sequence[str],
        environment: Mapping[str, str],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.folder = folder
        self.port = port
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{port}"
        self._tls = tls
        self._words = words
        self._environment = environment
        self._child: subprocess.Popen[bytes] | None = None

    def start(self, *options: str, address_space: int | None = None) -> None:
        """Start it, with more options and no more memory than this, and return once it is ready."""

        def confine() -> None:
            if address_space is not None:
                resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))

        with (self.folder / "log").open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "rapkit", *self._words, *options],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self._environment},
                preexec_fn=confine,
            )
        eventually(self._is_ready)

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, and wait for the end."""
        self._end(signal.SIGTERM)

    @property
    def pid(self) -> int:
        """The id of the process."""
        assert self._child is not None
        return self._child.pid

    def log(self) -> str:
        """All it has printed so far."""
        return (self.folder / "log").read_text(errors="replace")

    def _is_ready(self) -> bool:
        assert self._child is not None
        assert self._child.poll() is None, f"it ended by itself: {self.log()}"
        try:
            return get(f"{self.url}/readyz", tls=self._tls)[0] == 200
        except OSError:
            return False

    def _end(self, number: signal.Signals) -> None:
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(number)
            self._child.wait(PATIENCE)


class OurServer(Process):
    """`rapkit serve` with the toolset of a source text."""

    def __init__(
        self,
        folder: Path,
        source: str,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        files: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        port = free_port()
        for name, text in (files or {}).items():
            (folder / name).write_text(text)
        (folder / "tools.py").write_text(textwrap.dedent(source))
        super().__init__(folder, port, ["serve", "tools.py", "--port", str(port), *options], environment or {}, tls)


class OurRuntime(Process):
    """`rapkit up` with a scripted model: `plan` is the script in YAML; `servers` are URLs, or tables of `rapkit.toml`."""

    def __init__(
        self,
        folder: Path,
        plan: str,
        servers: Sequence[str | Mapping[str, Any]],
        settings: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        tables: Mapping[str, Mapping[str, Any]] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        port = free_port()
        (folder / "plan.yaml").write_text(textwrap.dedent(plan))
        lines = ["[agent]", 'model = "scripted:plan.yaml"', f"port = {port}"]
        lines += [f"{name} = {json.dumps(value)}" for name, value in (settings or {}).items()]
        for server in servers:
            table = {"url": server} if isinstance(server, str) else server
            lines += ["[[servers]]", *(f"{name} = {json.dumps(value)}" for name, value in table.items())]
        for title, entries in (tables or {}).items():  # the last, so that they may be those of the last server
            lines += [f"[{title}]", *(f"{name} = {json.dumps(value)}" for name, value in entries.items())]
        (folder / "rapkit.toml").write_text("\n".join(lines) + "\n")
        super().__init__(folder, port, ["up", *options], environment or {})

    def thread(self, text: str) -> str:
        """Begin a thread with a message; its id."""
        status, body = post(f"{self.url}/v1/threads", {"text": text})
        assert status == 201, (status, body)
        return str(json.loads(body)["thread_id"])

    def say(self, thread: str, text: str) -> None:
        """Send a message to a thread."""
        status, body = post(f"{self.url}/v1/threads/{thread}/messages", {"text": text})
        assert status == 202, (status, body)

    def close(self, thread: str) -> None:
        """Close a thread."""
        status, body = post(f"{self.url}/v1/threads/{thread}/close", {})
        assert status < 300, (status, body)

    def look(self, thread: str) -> Json:
        """A thread as the API shows it."""
        seen: Json = self._get(f"/v1/threads/{thread}")
        return seen

    def history(self, thread: str) -> list[Json]:
        """The whole journal of a thread as the API shows it."""
        entries: list[Json] = []
        cursor = ""
        while True:
            page = self._get(f"/v1/threads/{thread}/history{f'?cursor={cursor}' if cursor else ''}")
            entries += page["entries"]
            if not (cursor := page.get("next_cursor")):
                return entries

    def until(self, thread: str, text: str) -> list[Json]:
        """Wait until a text stands somewhere in the thread's journal; the journal then."""

        def look() -> list[Json]:
            entries = self.history(thread)
            return entries if text in json.dumps(entries, ensure_ascii=False) else []

        return eventually(look)

    def _get(self, path: str) -> Any:
        status, body = get(f"{self.url}{path}")
        assert status == 200, (status, body)
        return json.loads(body)
