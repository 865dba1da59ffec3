"""What stands before the endpoints: nothing, or a proxy with the configuration that the deploy guide shows.

Only ports, paths and names are replaced in it, and TLS is left out; what else the proxy needs to run as this user, in a folder of the
test's, is put around it.
"""

import os
import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.docs.blocks import ROOT, blocks_of
from tests.hardening.clients.clients import find
from tests.hardening.clients.endpoints import Endpoint
from tests.interop.http_peer import PATIENCE, eventually, get
from tests.interop.processes import free_port

GUIDE = ROOT / "docs" / "howto" / "deploy.md"
NAME = "agent.example.com"
UPSTREAM = "127.0.0.1:8700"


def shown(beginning: str) -> str:
    """The one block of the guide that begins so."""
    (block,) = [block for block in blocks_of(GUIDE) if block.text.startswith(beginning)]
    return block.text


def replaced(text: str, *changes: tuple[str, str]) -> str:
    """A configuration with other places in it, each of which has to be there."""
    for old, new in changes:
        assert old in text, f"the guide's configuration has no {old!r}"
        text = text.replace(old, new)
    return text


class Front:
    """A proxy before some endpoints."""

    def __init__(self, endpoints: Sequence[Endpoint], folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._ports = {endpoint.url: free_port() for endpoint in endpoints}
        words = self._configure(folder)
        with (folder / "log").open("ab") as log:
            environment = {
                **os.environ,
                "HOME": str(folder),
                "XDG_DATA_HOME": str(folder),
                "XDG_CONFIG_HOME": str(folder),
            }
            self._child = subprocess.Popen(words, stdout=log, stderr=log, env=environment, start_new_session=True)
        eventually(self._is_ready)

    def origin(self, url: str) -> str:
        """A URL of an endpoint as it is behind the proxy."""
        for inside, port in self._ports.items():
            if url.startswith(inside):
                return f"http://127.0.0.1:{port}{url.removeprefix(inside)}"
        raise AssertionError(f"{url} is behind no proxy")

    def end(self) -> None:
        """End it."""
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)
            self._child.wait(PATIENCE)

    def _configure(self, folder: Path) -> list[str]:
        raise NotImplementedError

    def _is_ready(self) -> bool:
        assert self._child.poll() is None, (self._folder / "log").read_text()
        try:
            return all(get(f"http://127.0.0.1:{port}/healthz")[0] == 200 for port in self._ports.values())
        except OSError:
            return False


class Nginx(Front):
    """nginx, with a server for each endpoint."""

    def _configure(self, folder: Path) -> list[str]:
        text = shown("# nginx\n")
        servers = [
            replaced(
                text,
                ("listen 443 ssl;", f"listen 127.0.0.1:{port};"),
                (UPSTREAM, url.removeprefix("http://")),
                (NAME, "127.0.0.1"),
            )
            for url, port in self._ports.items()
        ]
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        paths = "".join(f"{kind}_temp_path {folder / kind};\n" for kind in kinds)
        user = "user root;\n" if os.geteuid() == 0 else ""  # else its workers may not enter the folder
        (folder / "nginx.conf").write_text(
            f"{user}daemon off;\npid {folder / 'pid'};\nworker_processes 1;\nerror_log {folder / 'errors'};\n"
            f"events {{}}\nhttp {{\n{paths}{''.join(servers)}}}\n"
        )
        return [
            find("nginx") or "nginx",
            "-e",
            str(folder / "errors"),
            "-p",
            str(folder),
            "-c",
            str(folder / "nginx.conf"),
        ]


class Caddy(Front):
    """Caddy, with a site for each endpoint."""

    def _configure(self, folder: Path) -> list[str]:
        text = shown("# Caddy")
        beginning, site = re.split(rf"(?=^{re.escape(NAME)} )", text, maxsplit=1, flags=re.MULTILINE)
        sites = [
            replaced(site, (NAME, f"http://127.0.0.1:{port}"), (UPSTREAM, url.removeprefix("http://")))
            for url, port in self._ports.items()
        ]
        # Its port for administration is taken if another one runs.
        (folder / "Caddyfile").write_text("\n".join([replaced(beginning, ("\n{\n", "\n{\n    admin off\n")), *sites]))
        return [find("caddy") or "caddy", "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]
