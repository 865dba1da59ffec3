"""Python's urllib: it sends everything before it reads, and has a new connection for each request."""

import urllib.error
import urllib.request
from typing import Any

from tests.hardening.clients.drivers.wire import TIMEOUT, Request, answer, drive


def send(request: Request) -> dict[str, Any]:
    body: Any = request.parts() if request.streamed else request.body
    headers = dict(request.headers)
    if request.body is not None and request.streamed and not request.chunked:
        headers["Content-Length"] = str(len(request.body))
    if request.expect:
        headers["Expect"] = "100-continue"
    asked = urllib.request.Request(request.url, body, headers, method=request.method)
    try:
        with urllib.request.urlopen(asked, timeout=TIMEOUT) as response:
            return answer(response.status, response.headers.items(), response.read())
    except urllib.error.HTTPError as error:
        with error:
            return answer(error.code, error.headers.items(), error.read())


if __name__ == "__main__":
    drive(send)
