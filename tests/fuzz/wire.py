"""HTTP by hand: any bytes there, whole answers back, and never longer than a deadline."""

import json
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass

DEADLINE = 10.0
NOT_HTTP = "This is not HTTP/1.1."
"""What the HTTP parser in front of the app says to what it cannot parse."""


class Hang(AssertionError):
    """The server neither answered nor hung up in time."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def detail(self) -> str:
        """What the problem document says."""
        return str(json.loads(self.body)["detail"])

    def check(self) -> "Answer":
        """Fine, or refused in words: a problem document that says why. Nothing else may ever be answered."""
        if self.status < 300:
            return self
        assert self.status < 500 or self.status == 503, self
        assert self.headers.get("content-type") == "application/problem+json", self
        if self.status == 503:
            assert int(self.headers["retry-after"]) >= 1, self
        if not self.body and self.headers.get("content-length") != "0":
            return self  # the answer to HEAD
        problem = json.loads(self.body)
        assert problem["status"] == self.status, self
        assert problem["title"], self
        assert len(problem["detail"]) > 10, self
        return self

    def check_page(self) -> "Answer":
        """A page for people, or refused as anything else is. It loads nothing, is kept nowhere, and nobody hears where it was."""
        if self.headers.get("content-type") != "text/html; charset=utf-8":
            assert self.status >= 400, self
            return self.check()
        assert self.status in (200, 400, 410, 503), self
        assert self.body.startswith(b"<!doctype html>"), self
        assert b"<script" not in self.body.lower(), self
        assert self.headers["content-security-policy"].startswith("default-src 'none';"), self
        assert self.headers["cache-control"] == "no-store", self
        assert self.headers["referrer-policy"] == "no-referrer", self
        if self.status == 503:
            assert int(self.headers["retry-after"]) >= 1, self
        return self


def request(
    method: str = "POST",
    path: str = "/invoke",
    body: bytes = b"",
    headers: Mapping[str, str | None] | None = None,
) -> bytes:
    """A request as it goes over the wire; a header that is None is left out."""
    lines: dict[str, str | None] = {
        "Host": "127.0.0.1",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        **(headers or {}),
    }
    head = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in lines.items() if value is not None)]
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body


def ask(port: int, raw: bytes, *, heads: bool = False) -> Answer:
    """The answer to one request, checked."""
    answers = talk(port, raw, expect=1, heads=heads)
    assert len(answers) == 1, f"no answer to {raw[:500]!r}"
    return answers[0].check()


def visit(port: int, path: str, headers: Mapping[str, str | None] | None = None) -> Answer:
    """The page at a path, checked."""
    raw = request("GET", path, headers={"Content-Type": None, "Content-Length": None, **(headers or {})})
    answers = talk(port, raw, expect=1)
    assert len(answers) == 1, f"no answer to {raw[:500]!r}"
    return answers[0].check_page()


def talk(port: int, raw: bytes, *, expect: int | None = None, heads: bool = False) -> list[Answer]:
    """Send, then read so many answers; without `expect` say that nothing more will come and read until the server hangs up.

    `heads` if answers may have no bodies, as those to HEAD.
    """
    heads = heads or b"HEAD " in raw
    deadline = time.monotonic() + DEADLINE
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE) as connection:
        connection.settimeout(DEADLINE)
        try:
            connection.sendall(raw)
            if expect is None:
                connection.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError, OSError):
            pass  # it hung up before it had heard everything; what it said may still be there
        while expect is None or len(parse(received, heads)[0]) < expect:
            connection.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                chunk = connection.recv(65536)
            except TimeoutError:
                raise Hang(f"{raw[:300]!r} got {received!r} and then nothing for {DEADLINE:g} s") from None
            except ConnectionResetError:
                break
            if not chunk:
                break
            received += chunk
    answers, rest = parse(received, heads)
    assert not rest, f"half an answer: {rest!r}"
    return answers


def parse(stream: bytes, heads: bool = False) -> tuple[list[Answer], bytes]:
    """Whole answers at the beginning of a stream, and what is left of it."""
    answers: list[Answer] = []
    while True:
        head, blank, rest = stream.partition(b"\r\n\r\n")
        if not blank:
            return answers, stream
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        status = int(first.split()[1])
        if status == 100:
            stream = rest
            continue
        length = 0 if heads and (not rest or rest.startswith(b"HTTP/1.1 ")) else _length(headers, rest)
        if len(rest) < length:
            return answers, stream
        answers.append(Answer(status, headers, rest[:length]))
        stream = rest[length:]


def _length(headers: Mapping[str, str], rest: bytes) -> int:
    if "content-length" in headers:
        return int(headers["content-length"])
    return len(rest)  # until the connection ends
