"""The HTTP clients of the table: how each is started, and what it cannot do."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.docs.blocks import ROOT

DRIVERS = Path(__file__).parent / "drivers"
REQUIRED = "RAPKIT_REQUIRE_PEERS"
"""The environment variable that makes a missing program a failure instead of a skip."""

BUILD_TIME = 600.0
Fields = Mapping[str, str | Sequence[str]]
Answer = dict[str, Any]


@dataclass(frozen=True)
class Client:
    """One HTTP client. `programs` have to be installed; `command` gives its driver's command line, built in a folder of its own."""

    name: str
    programs: tuple[str, ...]
    command: Callable[[Path], list[str]]
    lacks: frozenset[str] = frozenset()

    def require(self) -> None:
        """Skip the test if the client is not installed."""
        require(*self.programs)


def require(*programs: str) -> None:
    """Skip the test if a program is missing; fail it where all have to be there, as they have to in continuous integration."""
    for program in programs:
        if find(program) is None:
            missing = f"{program} is not installed"
            if os.environ.get(REQUIRED):
                pytest.fail(f"{missing}, and {REQUIRED} is set")
            pytest.skip(missing)


def find(program: str) -> str | None:
    """Where a program is; Debian keeps daemons where users' PATH does not lead."""
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin:/usr/local/go/bin")


class Driver:
    """A client's driver at work."""

    def __init__(self, client: Client, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._errors = folder / "errors"
        with self._errors.open("ab") as errors:
            self._child = subprocess.Popen(
                client.command(folder),
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def send(self, fields: Fields) -> Answer:
        """Send a request, and wait for what the client makes of it."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(f"{urlencode(fields, doseq=True)}\n")
        self._child.stdin.flush()
        line = self._child.stdout.readline()
        assert line, f"the driver ended: {self._errors.read_text()}"
        answer: Answer = json.loads(line)
        return answer

    def end(self) -> None:
        """End it."""
        self._child.kill()
        self._child.communicate()


def _python(module: str, *words: str) -> Callable[[Path], list[str]]:
    return lambda _: [sys.executable, "-m", f"tests.hardening.clients.drivers.{module}", *words]


def _node(_: Path) -> list[str]:
    return ["node", str(DRIVERS / "fetch.mjs")]


def _go(folder: Path) -> list[str]:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", "GO111MODULE": "off"}
    program = find("go")
    assert program is not None
    _build([program, "build", "-o", str(folder / "client"), str(DRIVERS / "client.go")], environment)
    return [str(folder / "client")]


def _java(*words: str) -> Callable[[Path], list[str]]:
    def command(folder: Path) -> list[str]:
        _build(["javac", "-d", str(folder), str(DRIVERS / "Client.java")], os.environ)
        allow = "-Djdk.httpclient.allowRestrictedHeaders=connection"
        return ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", allow, "-cp", str(folder), "Client", *words]

    return command


def _build(words: Sequence[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=BUILD_TIME, check=False)
    assert done.returncode == 0, done.stderr


# Up to version 18 it waits for ever when `Expect: 100-continue` is answered with anything but 100 (JDK-8286171).
_JAVA_LACKS = frozenset({"http10", "refused expect"})

CLIENTS = [
    Client("curl", ("curl",), _python("curl_driver", "--http1.1"), frozenset({"declared pace"})),
    Client("curl-h2c", ("curl",), _python("curl_driver", "--http2"), frozenset({"declared pace", "http10"})),
    Client("urllib", (), _python("urllib_driver"), frozenset({"http10"})),
    Client("http.client", (), _python("http_client_driver")),
    Client("httpx", (), _python("httpx_driver", "httpx"), frozenset({"http10"})),
    Client("httpx2", (), _python("httpx_driver", "httpx2"), frozenset({"http10"})),
    Client("fetch", ("node",), _node, frozenset({"expect", "refused expect", "http10"})),
    Client("java", ("java", "javac"), _java(), _JAVA_LACKS),
    Client("java-http1", ("java", "javac"), _java("1.1"), _JAVA_LACKS),
    Client("go", ("go",), _go, frozenset({"http10"})),
]
