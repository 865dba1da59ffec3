"""Python's http.client: it sends everything before it reads, and keeps its connection."""

import http.client
from typing import Any
from urllib.parse import urlsplit

from tests.hardening.clients.drivers.wire import TIMEOUT, Request, answer, drive


class OldConnection(http.client.HTTPConnection):
    """One that says HTTP/1.0."""

    _http_vsn = 10
    _http_vsn_str = "HTTP/1.0"


_connections: dict[str, http.client.HTTPConnection] = {}


def send(request: Request) -> dict[str, Any]:
    parts = urlsplit(request.url)
    headers = dict(request.headers)
    if request.http10:
        headers["Host"] = parts.netloc  # which it leaves out then, unlike everything else that still speaks 1.0
    if request.close:
        headers["Connection"] = "close"
    if request.expect:
        headers["Expect"] = "100-continue"
    if request.body is not None and request.streamed and not request.chunked:
        headers["Content-Length"] = str(len(request.body))
    kind = OldConnection if request.http10 else http.client.HTTPConnection
    connection = _connections.get(request.session)
    if connection is None:
        for each in _connections.values():
            each.close()
        _connections.clear()
        connection = _connections[request.session] = kind(parts.hostname or "", parts.port, timeout=TIMEOUT)
    body: Any = request.parts() if request.streamed else request.body
    try:
        connection.request(request.method, parts.path, body, headers, encode_chunked=request.chunked)
        response = connection.getresponse()
        return answer(response.status, response.getheaders(), response.read())
    except (OSError, http.client.HTTPException):
        connection.close()  # it would be of no use for the next request
        raise


if __name__ == "__main__":
    drive(send)
