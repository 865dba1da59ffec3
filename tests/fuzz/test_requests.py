"""Every path with every method and odd headers."""

import itertools
import json
from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from rapkit.protocol import OAuthRequest, UserChoice
from tests.fuzz.garbage import header_values, readable
from tests.fuzz.hunt import few_calls_or_many, few_or_many, hunt
from tests.fuzz.target import Sent, Target
from tests.fuzz.wire import Answer, ask, request, talk

DISCOVERY = "/.well-known/rap-toolset"
ALLOWED = {
    **dict.fromkeys((DISCOVERY, "/healthz", "/readyz"), ("GET", "HEAD")),
    **dict.fromkeys(("/metrics", "/oauth/callback"), ("GET",)),
    **dict.fromkeys(("/invoke", "/cancel_tool_call", "/close_thread", "/answer/token"), ("POST",)),
    **dict.fromkeys(("/hooks/github", "/hooks/stripe", "/hooks/standard", "/hooks/own"), ("POST",)),
}
OPERATIONS = (
    *("echo", "total", "picky", "plain", "wait", "ask", "act", "remind", "keep"),
    *("count", "wait_for_ever", "news"),
)
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
    "/answer",
    "/answer/",
    "/answer//",
    "/answer/a/b",
    "/answer/..",
    "/answer/%2e%2e%2finvoke",
    "/answer/" + "x" * 5000,
    "/oauth",
    "/oauth/",
    "/oauth/callback/",
    "/oauth/callback%00",
    "/metrics/",
    "/metrics?name[]=x",
    "/hooks",
    "/hooks/",
    "/hooks/github/",
    "/hooks/../invoke",
)


def knock(
    target: Target, method: str, path: str, body: bytes = b"", headers: Mapping[str, str | None] | None = None
) -> Answer:
    """The answer to any request, a page for people included."""
    raw = request(method, path, body, headers)
    answers = talk(target.port, raw, expect=1, heads=method == "HEAD")
    assert len(answers) == 1, f"no answer to {raw[:500]!r}"
    return answers[0].check_page() if path.startswith("/oauth/callback") else answers[0].check()


@pytest.mark.parametrize("path", [*ALLOWED, *ODD_PATHS])
def test_every_method_on_every_path(target: Target, path: str) -> None:
    for method in METHODS:
        answer = knock(target, method, path)
        allowed = ALLOWED.get(path, METHODS)
        if method not in allowed:
            assert answer.status == 405, method
            assert set(answer.headers["allow"].split(", ")) == set(allowed)
        elif path in ALLOWED and "GET" in allowed and path != "/oauth/callback":
            assert answer.status == 200, method


CONTENT_TYPES = {
    "application/json": 200,
    "application/json; charset=utf-8": 200,
    "APPLICATION/JSON;charset=UTF-8": 200,
    " application/json ": 200,
    "application/json;;;": 200,
    "text/plain": 200,
    "application/jsonx": 200,
    "application/x-www-form-urlencoded": 200,
    "multipart/form-data; boundary=x": 200,
    "": 200,
    ";": 200,
    "\xff\xfe": 200,
    None: 200,
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
    "localhost:a b",
    "localhost:80/path?query",
    "localhost:@evil.example",
    "localhost:80\\x",
    "localhost:" + "9" * 5000,
    "[::1]x y",
    "user@localhost",
    "evil.example",
    "127.0.0.1.evil.example",
    "x" * 5000,
    "<script>",
    '"',
    "%00",
    "{}",
)


@pytest.mark.parametrize("host", [*HOSTS, None])
def test_hosts(target: Target, host: str | None) -> None:
    for path, allowed in ALLOWED.items():
        answer = knock(target, allowed[0], path, b"{}" if "POST" in allowed else b"", {"Host": host})
        if path == DISCOVERY and answer.status == 200:
            assert json.loads(answer.body)["endpoint"].endswith("/invoke")


def test_hosts_that_become_part_of_links(target: Target) -> None:
    """Where answers and users are to come to is taken from there. What is no host is refused, and fails no tool."""
    for host, operation in itertools.product(HOSTS, ("ask", "act")):
        message = target.invocation(operation=operation, arguments={})
        if target.post("/invoke", json.dumps(message).encode(), {"Host": host}).status != 200:
            continue
        first = target.first(Sent.of(message))
        assert isinstance(first, UserChoice | OAuthRequest), first
        link = first.response_url if isinstance(first, UserChoice) else first.auth_url
        address = (
            urlsplit(link)
            if isinstance(first, UserChoice)
            else urlsplit(parse_qs(urlsplit(link).query)["redirect_uri"][0])
        )
        assert address.netloc in (host, "127.0.0.1")
        target.close(message["group_id"])


@few_calls_or_many
def test_strangers_words_are_no_labels(target: Target, examples: int) -> None:
    """However many operations and outcomes strangers make up, the metrics stay as few as they are."""

    def check(operation: str) -> None:
        target.post("/invoke", json.dumps(target.invocation(operation=operation)).encode())

    hunt(examples, readable, check)
    answer = ask(target.port, request("GET", "/metrics"))
    families = list(text_string_to_metric_families(answer.body.decode()))
    labels = {sample.labels.get("operation") for family in families for sample in family.samples}
    assert labels <= {None, "unknown", *OPERATIONS}


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
        knock(target, method, path, b"{}", fields)

    paths = st.sampled_from((*ALLOWED, "/nothing"))
    hunt(examples, st.tuples(st.sampled_from(METHODS), paths, headers), check)


@few_or_many
def test_any_path(target: Target, examples: int) -> None:
    new_mails = st.characters(min_codepoint=33, max_codepoint=255, exclude_characters="\x7f")
    paths = st.text(new_mails | st.sampled_from("/%.?#"), max_size=40).map("/{}".format)

    def check(given: tuple[str, str]) -> None:
        method, path = given
        knock(target, method, path, b"{}")

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
def test_requests_to_speak_otherwise(target: Target, headers: dict[str, str]) -> None:
    for method, path in (("GET", "/healthz"), ("GET", "/nothing"), ("GET", "/metrics"), ("GET", "/oauth/callback")):
        assert knock(target, method, path, headers=headers).status in (200, 400, 404)
    assert knock(target, "POST", "/close_thread", b'{"thread_id": "t"}', headers).status in (200, 400)
    assert knock(target, "POST", "/answer/x", b'{"id": "x", "selected": 0}', headers).status in (400, 404)
    assert knock(target, "POST", "/hooks/github", b"{}", headers).status in (400, 401)
