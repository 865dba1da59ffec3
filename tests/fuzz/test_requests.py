"""Every path with every method and odd headers."""

import json

import pytest
from hypothesis import strategies as st

from tests.fuzz.garbage import header_values
from tests.fuzz.hunt import few_or_many, hunt
from tests.fuzz.target import Target
from tests.fuzz.wire import ask, request, talk

DISCOVERY = "/.well-known/rap-toolset"
GETS = (DISCOVERY, "/healthz", "/readyz")
POSTS = ("/invoke", "/cancel_tool_call", "/close_thread")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")
ODD_PATHS = (
    "/",
    "/nothing",
    "/invoke/",
    "/invoke/x",
    "//invoke",
    "/INVOKE",
    "/invoke%00",
    "/%69nvoke",
    "/invoke?x=" + "y" * 5000,
    "/../../etc/passwd",
    "/.well-known/",
    "/.well-known/rap-toolset/",
    "/" + "a/" * 2000,
    "/%ff%fe",
    "/%",
    "/;x",
    "*",
    "http://127.0.0.1/invoke",
)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("path", [*GETS, *POSTS, *ODD_PATHS])
def test_every_method_on_every_path(target: Target, method: str, path: str) -> None:
    answer = ask(target.port, request(method, path), heads=method == "HEAD")
    allowed = ("GET", "HEAD") if path in GETS else ("POST",)
    if path in (*GETS, *POSTS) and method not in allowed:
        assert answer.status == 405
        assert set(answer.headers["allow"].split(", ")) == set(allowed)
    elif path in GETS:
        assert answer.status == 200


CONTENT_TYPES = {
    "application/json": 200,
    "application/json; charset=utf-8": 200,
    "APPLICATION/JSON;charset=UTF-8": 200,
    " application/json ": 200,
    "application/json;;;": 200,
    "text/plain": 415,
    "application/jsonx": 415,
    "application/x-www-form-urlencoded": 415,
    "multipart/form-data; boundary=x": 415,
    "": 415,
    ";": 415,
    "\xff\xfe": 415,
    None: 415,
}


@pytest.mark.parametrize(("content_type", "status"), CONTENT_TYPES.items())
def test_content_types(target: Target, content_type: str | None, status: int) -> None:
    body = json.dumps(target.invocation()).encode()
    assert ask(target.port, request(body=body, headers={"Content-Type": content_type})).status == status


HOSTS = (
    "localhost",
    "127.0.0.1:1234",
    "[::1]:8000",
    "",
    " ",
    "a b",
    "\xff",
    "[",
    "[::1",
    "]",
    ":",
    ":80",
    "localhost:port",
    "localhost:99999999",
    "localhost/path",
    "localhost?query",
    "localhost#fragment",
    "user@localhost",
    "evil.example",
    "127.0.0.1.evil.example",
    "x" * 5000,
    "<script>",
    '"',
    "%00",
    "{}",
)


@pytest.mark.parametrize("path", [*GETS, *POSTS])
@pytest.mark.parametrize("host", [*HOSTS, None])
def test_hosts(target: Target, path: str, host: str | None) -> None:
    method = "GET" if path in GETS else "POST"
    (answer,) = talk(target.port, request(method, path, b"{}", {"Host": host}), expect=1)
    answer.check()
    if path == DISCOVERY and answer.status == 200:
        assert json.loads(answer.body)["endpoint"].endswith("/invoke")


headers = st.dictionaries(
    st.sampled_from(
        (
            "Host",
            "Content-Type",
            "Authorization",
            "Accept",
            "Accept-Encoding",
            "Content-Encoding",
            "Cookie",
            "Origin",
            "Forwarded",
            "X-Forwarded-For",
            "X-Forwarded-Proto",
            "X-Forwarded-Host",
            "Range",
            "If-None-Match",
            "TE",
            "Trailer",
            "Via",
        )
    )
    | st.text("abcXYZ019-_!#$%&'*+.^`|~", min_size=1, max_size=20).filter(
        lambda name: name.lower() not in ("content-length", "transfer-encoding", "connection", "upgrade", "expect")
    ),
    header_values,
    max_size=6,
)


@few_or_many
def test_any_headers(target: Target, examples: int) -> None:
    def check(given: tuple[str, str, dict[str, str]]) -> None:
        method, path, fields = given
        ask(target.port, request(method, path, b"{}", fields), heads=method == "HEAD")

    paths = st.sampled_from((*GETS, *POSTS, "/nothing"))
    hunt(examples, st.tuples(st.sampled_from(METHODS), paths, headers), check)


@few_or_many
def test_any_path(target: Target, examples: int) -> None:
    letters = st.characters(min_codepoint=33, max_codepoint=255, exclude_characters="\x7f")
    paths = st.text(letters | st.sampled_from("/%.?#"), max_size=40).map("/{}".format)

    def check(given: tuple[str, str]) -> None:
        method, path = given
        ask(target.port, request(method, path, b"{}"), heads=method == "HEAD")

    hunt(examples, st.tuples(st.sampled_from(METHODS), paths), check)


@pytest.mark.parametrize(
    "headers",
    [
        {"Connection": "Upgrade", "Upgrade": "websocket"},
        {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
            "Sec-WebSocket-Version": "13",
        },
        {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABk"},
        {"Connection": "close"},
        {"Connection": "keep-alive, Host"},
        {"Expect": "100-continue"},
        {"Expect": "the unexpected"},
    ],
    ids=lambda headers: " ".join(headers.values()),
)
@pytest.mark.parametrize(("method", "path"), [("GET", "/healthz"), ("POST", "/close_thread"), ("GET", "/nothing")])
def test_requests_to_speak_otherwise(target: Target, method: str, path: str, headers: dict[str, str]) -> None:
    answer = ask(target.port, request(method, path, b'{"thread_id": "t"}' if method == "POST" else b"", headers))
    assert answer.status in (200, 400, 404)
