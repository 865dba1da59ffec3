"""Requests that callers sign as AWS wants it: the test suite of AWS itself, and all the ways in which they are not good."""

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.auth import SigV4Auth  # type: ignore[import-untyped]
from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
from botocore.credentials import Credentials  # type: ignore[import-untyped]

from rapkit import SigV4
from rapkit.errors import ConfigError
from rapkit.http.authentication import Callers
from rapkit.http.sigv4 import NotAuthentic, SigV4Keys

SUITE: dict[str, str] = json.loads((Path(__file__).parent / "aws4_testsuite" / "signed_requests.json").read_text())
ID = "AKIDEXAMPLE"
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
SUITE_TIME = datetime(2015, 8, 30, 12, 36, tzinfo=UTC).timestamp()
URL = "https://tools.example.com/weather/invoke"
BODY = b'{"operation":"forecast"}'


def read(text: str) -> tuple[dict[str, Any], bytes]:
    """A request as text, as an ASGI server hands it on."""
    head, _, body = text.partition("\n\n")
    first, *lines = head.split("\n")
    method, _, rest = first.partition(" ")
    path, _, query = rest.removesuffix(" HTTP/1.1").partition("?")
    headers: list[tuple[bytes, bytes]] = []
    for line in lines:
        if line.startswith(" "):
            name, value = headers.pop()
            headers.append((name, value + line.encode()))
        else:
            name_text, _, value_text = line.partition(":")
            headers.append((name_text.lower().encode(), value_text.strip().encode()))
    scope = {
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": headers,
    }
    return scope, body.encode()


@pytest.mark.parametrize("name", SUITE)
def test_the_suite_of_aws_is_accepted(name: str) -> None:
    scope, body = read(SUITE[name])
    keys = SigV4Keys({"anna": {ID: SECRET}}, now=lambda: SUITE_TIME)

    assert keys.identify(scope, body) == "anna"


@pytest.mark.parametrize("name", SUITE)
def test_nothing_of_the_suite_is_accepted_if_it_was_changed(name: str) -> None:
    keys = SigV4Keys({"anna": {ID: SECRET}}, now=lambda: SUITE_TIME)
    scope, body = read(SUITE[name])
    host = [(key, b"other.example.com" if key == b"host" else value) for key, value in scope["headers"]]

    for changed, sent in (
        ({**scope, "method": "PUT"}, body),
        ({**scope, "raw_path": scope["raw_path"] + b"x"}, body),
        ({**scope, "query_string": b"a=b"}, body),
        ({**scope, "headers": host}, body),
        (scope, body + b" "),
    ):
        with pytest.raises(NotAuthentic, match="its AWS signature is not good"):
            keys.identify(changed, sent)


def signed(
    url: str = URL,
    body: bytes = BODY,
    headers: Mapping[str, str] | None = None,
    secret: str = SECRET,
    method: str = "POST",
) -> dict[str, Any]:
    """A request that plain botocore has signed now, as an ASGI server hands it on."""
    request = AWSRequest(method, url, data=body, headers={"Content-Type": "application/json", **(headers or {})})
    SigV4Auth(Credentials(ID, secret), "execute-api", "eu-central-1").add_auth(request)
    parts = urlsplit(url)
    sent = {"Host": parts.netloc, **dict(request.headers.items())}
    return {
        "type": "http",
        "method": method,
        "path": parts.path,
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "headers": [(key.lower().encode(), value.encode()) for key, value in sent.items()],
    }


def changed(scope: dict[str, Any], **headers: str | None) -> dict[str, Any]:
    given = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    kept = [(name, value) for name, value in scope["headers"] if name not in given]
    return {**scope, "headers": kept + [(name, value.encode()) for name, value in given.items() if value is not None]}


def authorization(scope: dict[str, Any]) -> str:
    found: bytes = dict(scope["headers"])[b"authorization"]
    return found.decode()


def keys(now: float | None = None, **more: Any) -> SigV4Keys:
    return SigV4Keys({"anna": {ID: SECRET}, "bert": {"AKIDBERT": "a-secret-of-berts-own"}}, **more)


def test_what_plain_botocore_signs_is_accepted() -> None:
    assert keys().identify(signed(), BODY) == "anna"
    assert keys().identify(signed(body=b"", method="GET"), b"") == "anna"
    hashed = hashlib.sha256(BODY).hexdigest()
    assert keys().identify(signed(headers={"X-Amz-Content-SHA256": hashed}), BODY) == "anna"


@pytest.mark.parametrize(
    "url",
    [URL, "https://a.example.com:8443/x%20y/invoke?b=2&a=%C3%A9&a=1", "http://[::1]:8001/", "http://h.example.com"],
)
async def test_what_we_sign_is_what_we_accept(url: str) -> None:
    """Item 18: one signer for both directions."""
    for method, body in (("POST", BODY), ("GET", b"")):
        sent = await SigV4("eu-central-1", "lambda", ID, SECRET).headers(method, url, body)
        parts = urlsplit(url)
        scope = {
            "method": method,
            "path": parts.path or "/",
            "raw_path": (parts.path or "/").encode(),
            "query_string": parts.query.encode(),
            "headers": [
                (b"host", parts.netloc.encode()),
                (b"content-type", b"application/json"),
                (b"user-agent", b"rapkit"),
                *((name.encode(), value.encode()) for name, value in sent.items()),
            ],
        }

        assert keys().identify(scope, body) == "anna"


def test_a_proxy_may_take_the_path_of_the_public_url_off() -> None:
    stripped = {**signed(), "path": "/invoke", "raw_path": b"/invoke"}

    assert keys(base_path="/weather/").identify(stripped, BODY) == "anna"
    assert keys(base_path="/weather/").identify(signed(), BODY) == "anna"
    with pytest.raises(NotAuthentic):
        keys().identify(stripped, BODY)


@pytest.mark.parametrize(
    ("scope", "body", "why"),
    [
        (signed(secret="another-secret-altogether"), BODY, "its AWS signature is not good"),
        (signed(), BODY + b" ", "its AWS signature is not good"),
        (signed(headers={"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"}), BODY, "unsigned bodies are not accepted"),
        (signed(headers={"X-Amz-Content-SHA256": hashlib.sha256(b"").hexdigest()}), BODY, "is not the hash of its body"),
        (changed(signed(), authorization=authorization(signed()).replace(ID, "AKIDOTHER")), BODY, "key is not known here"),
        (changed(signed(), authorization=authorization(signed()).replace(ID, "AKIDBERT")), BODY, "signature is not good"),
        (changed(signed(), authorization=authorization(signed()).replace("host;", "")), BODY, "does not cover host"),
        (changed(signed(), authorization=authorization(signed()).replace(";x-amz-date", "")), BODY, "does not cover host"),
        (changed(signed(), content_type=None), BODY, "headers that are not there"),
        (changed(signed(), content_type="text/plain"), BODY, "its AWS signature is not good"),
        (changed(signed(), authorization="AWS4-HMAC-SHA256 Credential=x"), BODY, "cannot be read"),
        (changed(signed(), authorization="AWS4-HMAC-SHA256 " + "a" * 60_000), BODY, "cannot be read"),
        (changed(signed(), x_amz_date="yesterday"), BODY, "is not a time"),
        (changed(signed(), x_amz_date="20150830T123600Z"), BODY, "more than 5 minutes old"),
        ({**signed(), "raw_path": b"/close_thread"}, BODY, "its AWS signature is not good"),
        ({**signed(), "raw_path": b"/\xff"}, BODY, "its AWS signature is not good"),
    ],
    ids=[
        "another secret", "another body", "a body that is not signed", "the hash of another body", "an unknown key", "another's key",
        "no host", "no time", "a header that is missing", "a header that was changed", "not a signature", "a long nothing",
        "no time at all",
        "long ago", "another path", "a path that is no text",
    ],
)  # fmt: skip
def test_a_request_that_no_caller_signed_is_refused(scope: dict[str, Any], body: bytes, why: str) -> None:
    with pytest.raises(NotAuthentic, match=why):
        keys().identify(scope, body)


@pytest.mark.parametrize(("seconds", "good"), [(-301, False), (-299, True), (299, True), (301, False)])
def test_a_signature_is_good_for_five_minutes(seconds: float, good: bool) -> None:
    scope, body = read(SUITE["post-vanilla"])
    late = SigV4Keys({"anna": {ID: SECRET}}, now=lambda: SUITE_TIME + seconds)

    if good:
        assert late.identify(scope, body) == "anna"
        return
    with pytest.raises(NotAuthentic, match="more than 5 minutes old"):
        late.identify(scope, body)


def test_a_key_can_be_rotated() -> None:
    both = SigV4Keys({"anna": {"AKIDNEW": "the-new-secret-of-anna", ID: SECRET}})

    assert both.identify(signed(), BODY) == "anna"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"anna": {}}, "'anna' has no AWS key"),
        ({"anna": {"not an id": SECRET}}, "cannot be used"),
        ({"anna": {ID: "short"}}, "too easy to guess"),
        ({"anna": {ID: SECRET}, "bert": {ID: SECRET}}, "'anna' and 'bert' have the same access key"),
    ],
)
def test_keys_that_cannot_be_used_are_found_at_the_start(given: dict[str, dict[str, str]], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as error:
        SigV4Keys(given)
    assert SECRET not in str(error.value)


def test_with_keys_this_machine_alone_is_not_enough() -> None:
    callers = Callers({}, aws_keys=keys())

    assert not callers.local_only
    assert callers.identify(b"", "127.0.0.1", b"localhost") is None
    assert callers.may_be_signed({b"authorization": b"AWS4-HMAC-SHA256 Credential=x"})
    assert not callers.may_be_signed({b"authorization": b"Bearer x"})
