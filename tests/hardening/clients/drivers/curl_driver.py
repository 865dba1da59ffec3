"""curl, one process for each request; with `--http2` as an argument it asks for an upgrade to HTTP/2 first.

A body at a pace of its own is piped in, so curl sends it in chunks: it declares a length only for what it can see the end of.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.hardening.clients.drivers.wire import TIMEOUT, Request, answer, drive

OPTIONS = sys.argv[1:]


def send(request: Request) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        words = [*_command(request), "--dump-header", f"{folder}/head", "--output", f"{folder}/body"]
        if request.body is not None:
            (Path(folder) / "sent").write_bytes(request.body)
            piped = request.streamed
            words += ["--header", "Transfer-Encoding: chunked"] * request.chunked
            words += ["--upload-file", "-" if piped else f"{folder}/sent"]
        with subprocess.Popen([*words, request.url], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as curl:
            assert curl.stdin is not None
            assert curl.stderr is not None
            try:
                for part in request.parts() if request.streamed else ():
                    curl.stdin.write(part)
                    curl.stdin.flush()
                curl.stdin.close()
            except BrokenPipeError:
                pass  # it has its answer
            problem = curl.stderr.read().decode(errors="replace").strip()
        if curl.returncode:
            raise OSError(f"curl ended with {curl.returncode}: {problem}")
        head = (Path(folder) / "head").read_bytes().decode("latin-1")
        body = Path(folder) / "body"
        status, headers = _last_answer(head)
        return answer(status, headers, body.read_bytes() if body.exists() else b"")


def _command(request: Request) -> list[str]:
    words = ["curl", "--silent", "--show-error", "--noproxy", "*", "--max-time", str(TIMEOUT), *OPTIONS]
    words += ["--request", request.method]
    words += ["--http1.0"] * request.http10
    for name, value in request.headers.items():
        words += ["--header", f"{name}: {value}"]
    words += ["--header", "Connection: close"] * request.close
    # Left to itself it sends this for bodies of more than 1 MB.
    words += ["--header", "Expect: 100-continue"] * request.expect
    return words


def _last_answer(head: str) -> tuple[int, Iterator[tuple[str, str]]]:
    *_, last = [block for block in head.split("\r\n\r\n") if block]  # a 100 Continue comes before it
    first, *lines = last.split("\r\n")
    return int(first.split()[1]), ((name, value) for name, _, value in (line.partition(": ") for line in lines))


if __name__ == "__main__":
    drive(send)
