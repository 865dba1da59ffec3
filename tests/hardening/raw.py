"""Requests written byte by byte, as no HTTP library would write them."""

import json
import socket
from pathlib import Path
from typing import Any, NamedTuple

from tests.interop.http_peer import PATIENCE


def connect(url: str) -> socket.socket:
    """A connection to the server of a URL."""
    host, _, port = url.removeprefix("http://").partition("/")[0].partition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


def head(method: str, url: str, *lines: str) -> bytes:
    """The head of a request, with these header lines besides `Host`."""
    host, _, path = url.removeprefix("http://").partition("/")
    return "\r\n".join([f"{method} /{path} HTTP/1.1", f"Host: {host}", *lines, "", ""]).encode()


class Reply:
    """One answer as it was read from a connection: its status, its headers in lower case, its body."""

    def __init__(self, connection: socket.socket) -> None:
        with connection.makefile("rb", buffering=0) as reader:  # so that what follows is left on the connection
            first = reader.readline()
            assert first.startswith(b"HTTP/1.1 "), f"no answer: {first!r}"
            self.status = int(first.split()[1])
            self.headers: dict[str, str] = {}
            while line := reader.readline().strip():
                name, _, value = line.decode().partition(":")
                self.headers[name.lower()] = value.strip()
            left = int(self.headers.get("content-length", 0))
            self.body = b""
            while len(self.body) < left:
                part = reader.read(left - len(self.body))
                assert part, "the answer ended early"
                self.body += part

    @property
    def detail(self) -> str:
        """What a problem document says."""
        document: Any = json.loads(self.body)
        assert document["status"] == self.status
        return str(document["detail"])


def is_closed(connection: socket.socket) -> bool:
    """Wait until the server has closed the connection; whatever it still says is read over."""
    try:
        while connection.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


ESTABLISHED = "01"


class Seen(NamedTuple):
    """A connection as the kernel shows it: its state, and how many bytes of it wait to be read by the process."""

    state: str
    unread: int


def seen_from(pid: int, port: int) -> Seen:
    """The connection from a port of this machine, as it is on the side of a process that listens."""
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        row = line.split()
        if int(row[2].partition(":")[2], 16) == port:
            return Seen(row[3], int(row[4].partition(":")[2], 16))
    return Seen("gone", 0)
