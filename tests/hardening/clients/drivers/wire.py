"""How a driver is told what to send, and how it tells what came back.

Each line of standard input is one request, as a query string, because every language can read that without a library; each line of standard
output is its answer, as a JSON object. The fields of a request:

`session`   requests of the same session share a connection, as far as the client keeps one; another name is another client
`url`, `method`, `header`   `header` is repeated, each as `Name: value`
`head`, `fill`, `tail`   the body is `head`, `fill` times the letter x, and `tail`; no body if there is no `head`
`chunked`   1: the body is sent in chunks, without a declared length
`pieces`, `pause`   the body is sent in so many pieces, with so many seconds between them
`expect`    1: with `Expect: 100-continue`
`close`     1: with `Connection: close`
`http10`    1: as HTTP/1.0

The fields of an answer: `status`, `headers` (names in lower case), `body` (its beginning), and `error`: null if there is a status.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

TIMEOUT = 20.0
SHOWN = 4096
"""How much of an answer's body is told."""


@dataclass(frozen=True)
class Request:
    """One request to send."""

    session: str
    url: str
    method: str
    headers: dict[str, str]
    body: bytes | None
    chunked: bool
    pieces: int
    pause: float
    expect: bool
    close: bool
    http10: bool

    @property
    def streamed(self) -> bool:
        """Whether the body cannot be handed over as a whole."""
        return self.body is not None and (self.chunked or self.pieces > 1)

    def parts(self) -> Iterator[bytes]:
        """The body in its pieces, at its pace."""
        assert self.body is not None
        size = -(-len(self.body) // self.pieces)
        for at in range(0, len(self.body), size):
            if at:
                time.sleep(self.pause)
            yield self.body[at : at + size]


def read(line: str) -> Request:
    """A request from a line."""
    fields = parse_qs(line.strip(), keep_blank_values=True)

    def one(name: str, default: str = "") -> str:
        return fields.get(name, [default])[0]

    body = None
    if "head" in fields:
        body = one("head").encode() + b"x" * int(one("fill", "0")) + one("tail").encode()
    return Request(
        session=one("session"),
        url=one("url"),
        method=one("method", "POST"),
        headers=dict(each.split(": ", 1) for each in fields.get("header", [])),
        body=body,
        chunked=one("chunked") == "1",
        pieces=int(one("pieces", "1")),
        pause=float(one("pause", "0")),
        expect=one("expect") == "1",
        close=one("close") == "1",
        http10=one("http10") == "1",
    )


def answer(status: int, headers: Any, body: bytes) -> dict[str, Any]:
    """What came back."""
    return {
        "status": status,
        "headers": {name.lower(): value for name, value in headers},
        "body": body[:SHOWN].decode(errors="replace"),
        "error": None,
    }


def drive(send: Callable[[Request], dict[str, Any]]) -> None:
    """Send what standard input says until it ends."""
    for line in sys.stdin:
        try:
            told = send(read(line))
        except Exception as error:  # noqa: BLE001 - whatever the client raises is what it saw
            told = {"status": None, "headers": {}, "body": "", "error": f"{type(error).__name__}: {error}"}
        print(json.dumps(told), flush=True)
