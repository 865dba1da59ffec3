"""httpx, and httpx2, its successor: the argument says which."""

import importlib
import sys
from typing import Any

from tests.hardening.clients.drivers.wire import TIMEOUT, Request, answer, drive

httpx: Any = importlib.import_module(sys.argv[1] if len(sys.argv) > 1 else "httpx")
_clients: dict[str, Any] = {}


def send(request: Request) -> dict[str, Any]:
    headers = dict(request.headers)
    if request.close:
        headers["Connection"] = "close"
    if request.expect:
        headers["Expect"] = "100-continue"
    if request.body is not None and request.streamed and not request.chunked:
        headers["Content-Length"] = str(len(request.body))
    client = _clients.get(request.session)
    if client is None:
        for each in _clients.values():
            each.close()
        _clients.clear()
        client = _clients[request.session] = httpx.Client(timeout=TIMEOUT, trust_env=False)
    content: Any = request.parts() if request.streamed else request.body
    response = client.request(request.method, request.url, content=content, headers=headers)
    return answer(response.status_code, response.headers.items(), response.content)


if __name__ == "__main__":
    drive(send)
