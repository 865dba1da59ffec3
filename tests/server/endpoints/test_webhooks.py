import asyncio
import base64
import functools
import hashlib
import hmac
import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rapkit import Limits, Toolset
from rapkit.errors import ConfigError, StoreBusy, ToolError
from rapkit.http.allowed_methods import AllowedMethods
from rapkit.http.rate_limit import RateLimit
from rapkit.server.endpoints.webhook_delivery import Delivery
from rapkit.server.endpoints.webhooks import Webhook, WebhookEndpoint
from rapkit.server.engine import TooBusy
from tests.log_records import ours
from tests.server.endpoint_server import opened
from tests.server.served_toolset import serving

NOW = 1_700_000_000
SECRET, NEXT = "the secret of the source", "its next secret"
STANDARD = "whsec_" + base64.b64encode(b"s" * 24).decode()
BODY = b'{"id": "evt_1", "type": "invoice.paid", "repository": {"full_name": "acme/api"}}'
NOT_AUTHENTIC = "This delivery is not authentic."

Headers = dict[str, str | None]


def github(body: bytes, secret: str = SECRET, **more: str | None) -> Headers:
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {"X-Hub-Signature-256": f"sha256={digest}", "X-GitHub-Delivery": "d1", "X-GitHub-Event": "push", **more}


def v1(body: bytes, secret: str = SECRET, at: int = NOW) -> str:
    return "v1=" + hmac.new(secret.encode(), str(at).encode() + b"." + body, hashlib.sha256).hexdigest()


def stripe(body: bytes, secret: str = SECRET, at: int = NOW) -> Headers:
    return {"Stripe-Signature": f"t={at},{v1(body, secret, at)}"}


def standard(body: bytes, secret: str = STANDARD, at: int = NOW) -> Headers:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    mac = hmac.new(key, f"msg_1.{at}.".encode() + body, hashlib.sha256).digest()
    return {
        "Webhook-Id": "msg_1",
        "Webhook-Timestamp": str(at),
        "Webhook-Signature": "v1," + base64.b64encode(mac).decode(),
    }


def running() -> None:
    """What says that the toolset runs, by not saying otherwise."""


class Source:
    """A webhook, and what its handler got."""

    def __init__(self, *, handler: Any = None, rate: float | None = None, now: float = NOW, **options: Any) -> None:
        self.got: list[Delivery] = []

        async def note(delivery: Delivery) -> None:
            self.got.append(delivery)

        self.webhook = Webhook("/hooks/source", handler or note, **options)
        self.webhook.open()
        self.endpoint = WebhookEndpoint(self.webhook, running, RateLimit(rate, lambda: 0.0), 200_000, now=lambda: now)

    async def send(self, body: bytes, *headers: Mapping[str, str | None]) -> list[int]:
        """The body once with each of these headers; the statuses."""
        async with opened({"/hooks/source": self.endpoint}) as doors:
            replies = [await doors.post("/hooks/source", body, each) for each in headers]
        for reply in replies:
            assert reply.status != 401 or reply.detail == NOT_AUTHENTIC
        return [reply.status for reply in replies]


async def test_a_delivery_of_github_arrives_with_its_id_and_event() -> None:
    """SUB-7"""
    source = Source(style="github", secret=SECRET)
    assert await source.send(BODY, github(BODY)) == [200]

    (delivery,) = source.got
    assert (delivery.id, delivery.event, delivery.body) == ("d1", "push", BODY)
    assert delivery.json["repository"]["full_name"] == "acme/api"
    assert delivery.headers["x-github-event"] == "push"
    assert all(name == name.lower() for name in delivery.headers)


async def test_github_s_published_example_is_authentic() -> None:
    source = Source(style="github", secret="It's a Secret to Everybody")
    signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"

    assert await source.send(b"Hello, World!", {"X-Hub-Signature-256": signature}) == [200]
    assert (source.got[0].id, source.got[0].event) == (None, None)


async def test_the_published_example_of_standard_webhooks_is_authentic() -> None:
    source = Source(style="standard", secret="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", now=1614265330)
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }

    assert await source.send(b'{"test": 2432232314}', headers) == [200]
    assert (source.got[0].id, source.got[0].event) == ("msg_p5jXN8AQM9LWM0D4loKWxJek", None)


async def test_a_delivery_of_stripe_is_named_by_its_body() -> None:
    """SUB-7"""
    source = Source(style="stripe", secret=SECRET)
    assert await source.send(BODY, stripe(BODY)) == [200]

    assert (source.got[0].id, source.got[0].event) == ("evt_1", "invoice.paid")


async def test_a_delivery_of_standard_webhooks_has_its_id_in_a_header_and_its_event_in_the_body() -> None:
    """SUB-7"""
    source = Source(style="standard", secret=STANDARD)
    assert await source.send(BODY, standard(BODY)) == [200]

    assert (source.got[0].id, source.got[0].event) == ("msg_1", "invoice.paid")


@pytest.mark.parametrize("style", ["stripe", "standard"])
@pytest.mark.parametrize("body", [b"[]", b"7", b"no JSON", b'{"id": 7, "type": null}', b""], ids=repr)
async def test_an_authentic_body_that_names_nothing_is_left_to_the_handler(style: str, body: bytes) -> None:
    source = Source(style=style, secret=STANDARD)
    sign = stripe if style == "stripe" else standard

    assert await source.send(body, sign(body, STANDARD)) == [200]
    assert (source.got[0].event, source.got[0].body) == (None, body)


GITHUB = github(BODY)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {**GITHUB, "X-Hub-Signature-256": None},
        {**GITHUB, "X-Hub-Signature-256": ""},
        {**GITHUB, "X-Hub-Signature-256": "sha256="},
        {**GITHUB, "X-Hub-Signature-256": "\xff"},
        {**GITHUB, "X-Hub-Signature-256": str(GITHUB["X-Hub-Signature-256"]).removeprefix("sha256=")},
        {**GITHUB, "X-Hub-Signature-256": str(GITHUB["X-Hub-Signature-256"])[:-1]},
        {"X-Hub-Signature": "sha1=" + hmac.new(SECRET.encode(), BODY, hashlib.sha1).hexdigest()},
        github(BODY, "another secret"),
        github(BODY + b" "),
        github(b""),
        stripe(BODY),
        standard(BODY),
        {"Authorization": f"Bearer {SECRET}"},
    ],
    ids=repr,
)
async def test_what_github_did_not_sign_is_refused_and_not_handled(headers: Headers) -> None:
    """SUB-7"""
    source = Source(style="github", secret=SECRET)

    assert await source.send(BODY, headers) == [401]
    assert source.got == []


@pytest.mark.parametrize(
    "signature",
    [
        None,
        "",
        "=,=,,",
        f"t={NOW}",
        v1(BODY),
        f"t={NOW},v1=",
        f"t={NOW},{v1(BODY)[:-1]}",
        f"t={NOW},{v1(BODY).replace('v1', 'v0')}",
        f"t={NOW},{v1(BODY, 'another secret')}",
        f"t={NOW},{v1(BODY + b' ')}",
        f"t={NOW + 1},{v1(BODY)}",
        f"t={NOW},t={NOW},{v1(BODY)}",
        f"t=soon,{v1(BODY)}",
        f"t={'9' * 5000},{v1(BODY)}",
        f"t={NOW - 301},{v1(BODY, at=NOW - 301)}",
        f"t={NOW + 301},{v1(BODY, at=NOW + 301)}",
        f"t=\xb9,{v1(BODY)}",
    ],
    ids=lambda value: repr(value)[:30],
)
async def test_what_stripe_did_not_sign_just_now_is_refused_and_not_handled(signature: str | None) -> None:
    """SUB-7"""
    source = Source(style="stripe", secret=SECRET)

    assert await source.send(BODY, {"Stripe-Signature": signature}) == [401]
    assert source.got == []


async def test_what_is_not_signed_as_standard_webhooks_do_is_refused_and_not_handled() -> None:
    """SUB-7"""
    source = Source(style="standard", secret=STANDARD)
    other = "whsec_" + base64.b64encode(b"o" * 24).decode()
    wrong: list[Headers] = [
        {},
        {**standard(BODY), "Webhook-Id": "msg_2"},
        standard(BODY + b" "),
        standard(BODY, other),
        standard(BODY, at=NOW - 301),
        standard(BODY, at=NOW + 301),
    ]

    assert await source.send(BODY, *wrong) == [401] * len(wrong)
    assert source.got == []


async def test_stripe_s_signatures_may_be_several_and_a_few_minutes_old() -> None:
    source = Source(style="stripe", secret=SECRET)
    several = f"t={NOW},v1={'0' * 64},{v1(BODY)},v0={'0' * 64}"
    spaced = f"t={NOW}, {v1(BODY)}"

    headers: list[Headers] = [{"Stripe-Signature": several}, {"Stripe-Signature": spaced}]
    assert await source.send(BODY, *headers, stripe(BODY, at=NOW - 300), stripe(BODY, at=NOW + 300)) == [200] * 4


async def test_while_secrets_are_rotated_each_of_them_is_good() -> None:
    source = Source(style="github", secret=[SECRET, NEXT])
    assert await source.send(BODY, github(BODY), github(BODY, NEXT), github(BODY, "a third")) == [200, 200, 401]

    source = Source(style="stripe", secret=[SECRET, NEXT])
    assert await source.send(BODY, stripe(BODY), stripe(BODY, NEXT), stripe(BODY, "a third")) == [200, 200, 401]


async def test_bytes_that_are_no_text_can_be_signed_and_received() -> None:
    body = bytes(range(256))
    source = Source(style="github", secret=SECRET)

    assert await source.send(body, github(body)) == [200]
    assert source.got[0].body == body


async def test_secrets_are_read_at_the_start_and_again_at_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "secret"
    webhook = Webhook("/hooks/source", print, style="github", secret=["env:HOOK_SECRET", f"file:{file}"])
    with pytest.raises(ConfigError, match=r"^The webhook '/hooks/source' has a secret that cannot be used. The env"):
        webhook.open()

    monkeypatch.setenv("HOOK_SECRET", SECRET)
    file.write_text("\n")
    with pytest.raises(ConfigError, match="It is empty"):
        webhook.open()

    file.write_text(NEXT + "\n")
    source = Source(style="github", secret=["env:HOOK_SECRET", f"file:{file}"])
    assert await source.send(BODY, github(BODY), github(BODY, NEXT)) == [200, 200]

    file.write_text("one after that")
    assert await source.send(BODY, github(BODY, NEXT)) == [200]
    source.webhook.open()
    assert await source.send(BODY, github(BODY, NEXT), github(BODY, "one after that")) == [401, 200]


async def test_a_webhook_that_was_never_opened_believes_nobody() -> None:
    webhook = Webhook("/hooks/source", print, style="github", secret=SECRET)
    endpoint = WebhookEndpoint(webhook, running, RateLimit(None), 1000)
    async with opened({"/": endpoint}) as doors:
        for secret in (SECRET, ""):
            assert (await doors.post("/", BODY, github(BODY, secret))).status == 401


@pytest.mark.parametrize("secret", ["whsec_tooshort", "no base64 at all", ["plain"]])
def test_a_secret_no_standard_webhook_could_be_signed_with_is_refused_at_the_start(secret: Any) -> None:
    webhook = Webhook("/hooks/source", print, style="standard", secret=secret)

    with pytest.raises(ConfigError, match="A webhook secret is 'whsec_' and 24 to 64 random bytes") as refused:
        webhook.open()
    assert "tooshort" not in str(refused.value)


async def _async_verify(delivery: Delivery) -> bool:
    return delivery.headers["x-token"] == "open sesame"


def _plain_verify(delivery: Delivery) -> bool:
    assert threading.current_thread() is not threading.main_thread()  # it may block
    return delivery.headers["x-token"] == "open sesame"


class _Verifier:
    async def __call__(self, delivery: Delivery) -> bool:
        return await _async_verify(delivery)


@pytest.mark.parametrize(
    "verify",
    [_async_verify, _plain_verify, _Verifier(), functools.partial(_plain_verify), lambda it: _async_verify(it)],
    ids=["async", "plain", "object", "partial", "lambda"],
)
async def test_a_function_may_verify_what_no_style_can(verify: Any) -> None:
    """SUB-7"""
    source = Source(verify=verify)

    statuses = await source.send(BODY, {"X-Token": "open sesame"}, {"X-Token": "open"}, {}, github(BODY))
    assert statuses == [200, 401, 401, 401]  # that a header is missing makes it raise, and is a no too
    assert [(each.id, each.event, each.body) for each in source.got] == [(None, None, BODY)]


@pytest.mark.parametrize("verdict", [None, 1, "yes", [], object()], ids=lambda verdict: type(verdict).__name__)
async def test_only_true_is_a_yes(verdict: object, caplog: pytest.LogCaptureFixture) -> None:
    source = Source(verify=lambda _: verdict)

    assert await source.send(BODY, {}) == [401]
    assert f"gave a {type(verdict).__name__} instead of True or False" in caplog.text


async def test_a_verifying_function_that_fails_lets_nothing_through(caplog: pytest.LogCaptureFixture) -> None:
    def verify(_: Delivery) -> bool:
        raise OSError("cannot reach 10.0.0.7 with password hunter2")

    source = Source(verify=verify)
    assert await source.send(BODY, {}) == [500]
    assert source.got == []
    assert "hunter2" in caplog.text


async def test_a_repeated_header_is_one_with_commas() -> None:
    source = Source(verify=lambda delivery: delivery.headers["x-token"] == "a, b")

    assert await source.send(BODY, {"X-Token": "a", "x-token": "b"}) == [200]


async def test_the_source_hears_200_only_after_the_handler_has_returned() -> None:
    """SUB-7: by then what it emitted is durable."""
    entered, release = asyncio.Event(), asyncio.Event()

    async def handle(_: Delivery) -> None:
        entered.set()
        await release.wait()

    source = Source(handler=handle, style="github", secret=SECRET)
    sending = asyncio.create_task(source.send(BODY, github(BODY)))
    await entered.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not sending.done()

    release.set()
    assert await sending == [200]


async def test_a_plain_handler_runs_in_a_thread_and_does_not_hold_up_others() -> None:
    release = threading.Event()

    def handle(delivery: Delivery) -> None:
        if delivery.id == "last":
            release.set()
        assert release.wait(60)

    source = Source(handler=handle, style="github", secret=SECRET)
    async with opened({"/hook": source.endpoint}) as doors:
        crowd = [doors.post("/hook", BODY, github(BODY, **{"X-GitHub-Delivery": id})) for id in ("1", "2", "last")]

        assert [reply.status for reply in await asyncio.gather(*crowd)] == [200, 200, 200]


@pytest.mark.parametrize(
    ("error", "status", "detail"),
    [
        (ToolError("There is no repository here."), 400, "There is no repository here."),
        (StoreBusy("the database is locked"), 503, "The delivery could not be stored. Send it again in 5 s."),
        (TooBusy(2.5), 503, "Too much to do right now. Send it again in 3 s."),
    ],
    ids=repr,
)
@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_what_the_handler_says_reaches_the_source(
    error: Exception, status: int, detail: str, plain: bool
) -> None:
    source = Source(handler=raising(error, plain), style="github", secret=SECRET)
    async with opened({"/hook": source.endpoint}) as doors:
        reply = await doors.post("/hook", BODY, github(BODY))

    assert (reply.status, reply.detail) == (status, detail)
    assert ("retry-after" in reply.headers) == (status == 503)


@pytest.mark.parametrize(
    "error",
    [
        KeyError("hunter2"),
        RuntimeError("cannot reach 10.0.0.7 with password hunter2"),
        ConfigError("the password is hunter2"),
        SystemExit("hunter2"),
        asyncio.CancelledError("hunter2"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_of_any_other_failure_the_source_hears_a_reference_and_the_log_the_rest(
    error: BaseException, plain: bool, caplog: pytest.LogCaptureFixture
) -> None:
    source = Source(handler=raising(error, plain), style="github", secret=SECRET)
    async with opened({"/hook": source.endpoint}) as doors:
        reply = await doors.post("/hook", BODY, github(BODY))

    assert reply.status == 500
    (record,) = [record for record in ours(caplog) if record.levelno >= logging.ERROR]
    about = vars(record)
    assert reply.detail == f"The delivery could not be handled (reference {about['reference']}). Send it again."
    assert (about["path"], about["delivery_id"], about["event"]) == ("/hooks/source", "d1", "push")
    assert "hunter2" in caplog.text
    assert "Traceback" in caplog.text


async def test_a_server_that_is_stopped_while_a_handler_runs_answers_nothing() -> None:
    """The source sends it again, to whoever is started next."""
    entered = asyncio.Event()
    sent: list[Message] = []

    async def handle(_: Delivery) -> None:
        entered.set()
        await asyncio.Event().wait()

    async def receive() -> Message:
        return {"type": "http.request", "body": BODY}

    async def send(message: Message) -> None:
        sent.append(message)

    source = Source(handler=handle, style="github", secret=SECRET)
    headers = [(name.lower().encode(), str(value).encode()) for name, value in github(BODY).items()]
    answering = asyncio.create_task(_answer(source.endpoint, {"headers": headers}, receive, send))
    await entered.wait()
    answering.cancel()

    with pytest.raises(asyncio.CancelledError):
        await answering
    assert sent == []


async def _answer(endpoint: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    await endpoint(scope, receive, send)


def raising(error: BaseException, plain: bool) -> Any:
    async def async_handler(_: Delivery) -> None:
        raise error

    def plain_handler(_: Delivery) -> None:
        raise error

    return plain_handler if plain else async_handler


@pytest.mark.parametrize(
    ("body", "kind", "told"),
    [
        (b"", "application/json", "The body is not JSON in UTF-8: EOF while parsing a value at line 1 column 0."),
        (b"{", "", "The body is not JSON in UTF-8: EOF while parsing an object at line 1 column 1."),
        (b'"\xff"', "application/json; charset=utf-8", "The body is not JSON in UTF-8: "),
        (
            b"[" * 100_000 + b"]" * 100_000,
            "application/json",
            "The body is not JSON in UTF-8: recursion limit exceeded",
        ),
        (b"[" * 65 + b"]" * 65, "application/json", "The body is nested deeper than 64 levels."),
        (b'{"n": 1e999}', "application/json", "The body holds a number that is not finite, which is not JSON."),
        (
            b"payload=%7B%7D",
            "application/x-www-form-urlencoded",
            "The body is application/x-www-form-urlencoded, and JSON is wanted. Choose application/json where the webhook is set up.",
        ),
    ],
    ids=lambda value: repr(value)[:30],
)
async def test_a_body_the_handler_cannot_read_is_refused_in_words(body: bytes, kind: str, told: str) -> None:
    async def handle(delivery: Delivery) -> None:
        delivery.json["repository"]

    source = Source(handler=handle, style="github", secret=SECRET)
    async with opened({"/hook": source.endpoint}) as doors:
        reply = await doors.post("/hook", body, {**github(body), "Content-Type": kind or None})

    assert reply.status == 400
    assert reply.detail.startswith(told)


@pytest.mark.parametrize("depth", [64, 65])
@pytest.mark.parametrize("style", ["stripe", "standard"])
async def test_hostile_nesting_costs_a_style_that_reads_the_body_nothing(style: str, depth: int) -> None:
    body = b'{"type": "x", "deep": ' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"
    source = Source(style=style, secret=STANDARD)
    sign = stripe if style == "stripe" else standard

    assert await source.send(body, sign(body, STANDARD)) == [200]
    assert source.got[0].event == ("x" if depth <= 64 else None)


async def test_json_is_parsed_once() -> None:
    source = Source(style="stripe", secret=SECRET)
    await source.send(BODY, stripe(BODY))
    (delivery,) = source.got

    assert "json" in vars(delivery)  # the style has read it already
    assert delivery.json is delivery.json


def test_a_delivery_shows_neither_its_headers_nor_its_body() -> None:
    delivery = Delivery("d1", "push", {"authorization": "Bearer secret"}, b"secret")

    assert repr(delivery) == "Delivery(id='d1', event='push')"
    with pytest.raises(AttributeError):
        delivery.id = "d2"  # type: ignore[misc]


async def test_a_stranger_hears_nothing_of_why_and_nothing_is_parsed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "rapkit")
    deep = b"[" * 100_000
    source = Source(style="stripe", secret=SECRET)

    assert await source.send(deep, {}, stripe(deep, "another"), stripe(deep, at=0)) == [401] * 3
    assert SECRET not in caplog.text


async def test_only_what_is_not_authentic_counts_against_the_rate_of_strangers() -> None:
    source = Source(style="github", secret=SECRET, rate=3)
    good, bad = github(BODY), github(BODY, "guess")

    assert await source.send(BODY, *[good] * 20) == [200] * 20
    assert await source.send(BODY, bad, good, bad, good, bad) == [401, 200, 401, 200, 401]
    assert await source.send(BODY, bad, good, bad, good) == [503, 200, 503, 200]
    assert len(source.got) == 24


async def test_a_handler_that_fails_is_no_reason_to_take_its_source_for_a_stranger() -> None:
    source = Source(handler=raising(ToolError("no"), plain=False), style="github", secret=SECRET, rate=2)

    assert await source.send(BODY, *[github(BODY)] * 5) == [400] * 5


async def test_a_delivery_that_is_too_large_is_refused_unread() -> None:
    body = b"x" * 200_001
    source = Source(style="github", secret=SECRET)

    assert await source.send(body, github(body)) == [413]
    assert source.got == []


async def test_as_long_as_the_toolset_does_not_run_nothing_is_taken() -> None:
    def stopped() -> None:
        raise ConfigError("The toolset 'ci' is mounted but not started.")

    webhook = Webhook("/hooks/source", print, style="github", secret=SECRET)
    webhook.open()
    async with opened({"/hook": WebhookEndpoint(webhook, stopped, RateLimit(None), 1000)}) as doors:
        reply = await doors.post("/hook", BODY, github(BODY))

    assert (reply.status, reply.detail) == (503, "The toolset 'ci' is mounted but not started.")


async def test_a_webhook_is_posted_to() -> None:
    source = Source(style="github", secret=SECRET)
    async with opened({"/hook": AllowedMethods(source.endpoint, "POST")}) as doors:
        for method in ("GET", "PUT", "DELETE"):
            assert (await doors.request(method, "/hook", BODY, github(BODY))).status == 405

    assert source.got == []


async def test_a_webhook_of_a_toolset_is_served_with_it(
    toolset: Callable[..., Toolset], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SUB-7"""
    tools = toolset(tokens="a-token-sources-do-not-have", limits=Limits(body=1000, strangers=3))
    tools.tool(name="echo")(lambda: "x")
    got: list[tuple[str | None, str]] = []

    @tools.webhook("/hooks/github", style="github", secret=["env:HOOK_SECRET", NEXT])
    async def hook(delivery: Delivery) -> None:
        got.append((delivery.id, delivery.json["repository"]["full_name"]))

    with pytest.raises(ConfigError, match="HOOK_SECRET is not set"):
        async with tools.lifespan():
            pass
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    async with serving(tools) as server:

        async def send(headers: Headers, body: bytes = BODY, method: str = "POST") -> int:
            return (await server.request(method, "/hooks/github", body, headers)).status

        assert [await send(github(BODY)), await send(github(BODY, NEXT))] == [200, 200]
        large = b" " * 1001
        assert [await send({}), await send(github(large), large), await send(github(BODY), method="GET")] == [
            401,
            413,
            405,
        ]
        assert [await send({}), await send({}), await send({})] == [401, 401, 503]
        assert (await server.request("POST", "/answer/junk", b"{}", {})).status == 503
        assert await send(github(BODY)) == 200, "whatever others at its address have sent"

    assert got == [("d1", "acme/api")] * 3


def test_two_webhooks_at_one_path_are_refused(toolset: Callable[..., Toolset]) -> None:
    tools = toolset()
    tools.webhook("/hooks/github", style="github", secret=SECRET)(print)

    with pytest.raises(ConfigError, match="two webhooks at '/hooks/github'"):
        tools.webhook("/hooks/github", style="github", secret=SECRET)(print)


def _yields(_: Delivery) -> Any:
    yield


async def _async_yields(_: Delivery) -> Any:
    yield


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "would believe anybody. Say how the source signs: style= and secret=, or verify="),
        ({"secret": SECRET}, "would believe anybody"),
        ({"style": "github"}, 'needs the secret that the source signs with, like secret="env:GITHUB_WEBHOOK_SECRET"'),
        ({"style": "github", "secret": ""}, "needs the secret"),
        ({"style": "github", "secret": []}, "needs the secret"),
        ({"style": "github", "secret": [SECRET, ""]}, "needs the secret"),
        ({"style": "gitlab", "secret": SECRET}, "has no style 'gitlab'. There are: github, stripe, standard."),
        ({"style": "github", "secret": SECRET, "verify": print}, "either by style= and secret=, or by verify="),
        ({"style": "github", "verify": print}, "either by style= and secret=, or by verify="),
        ({"secret": SECRET, "verify": print}, "either by style= and secret=, or by verify="),
        ({"verify": "yes"}, "needs a function, and 'yes' is none"),
        ({"verify": print, "handler": None}, "needs a function, and None is none"),
        ({"verify": print, "handler": Delivery}, "needs a function"),
        ({"verify": print, "handler": _yields}, "yields, and nobody would listen"),
        ({"verify": print, "handler": _async_yields}, "yields, and nobody would listen"),
        ({"verify": _yields}, "yields, and nobody would listen"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else value[:40],
)
def test_a_webhook_that_cannot_work_is_refused_where_it_is_written(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Webhook("/hooks/source", **{"handler": print, **options})

    assert told in str(refused.value)
    assert "'/hooks/source'" in str(refused.value)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "path", ["", "hooks", "/", "/hooks/", "//hooks", "/hooks/{id}", "/hooks?a=b", "/hö", "/a b", "/a\n"]
)
def test_a_path_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot be the path of a webhook. Write it like /hooks/github"):
        Webhook(path, print, style="github", secret=SECRET)


@pytest.mark.parametrize(
    "path",
    [
        "/invoke",
        "/close_thread",
        "/cancel_tool_call",
        "/healthz",
        "/readyz",
        "/metrics",
        "/migrate",
        "/.well-known/rap-toolset",
        "/.well-known/anything",
        "/answer/x",
        "/oauth/callback",
        "/oauth",
    ],
)
def test_a_path_of_our_own_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match=r"is a path of rapkit's own. Put the webhook elsewhere"):
        Webhook(path, print, style="github", secret=SECRET)
    Webhook(f"/hooks{path}", print, style="github", secret=SECRET)


def test_a_webhook_that_comes_too_late_to_be_routed_is_refused() -> None:
    tools = Toolset("late")
    assert tools.app is not None

    with pytest.raises(ConfigError, match=r"The webhook '/hooks/late' comes too late"):
        tools.webhook("/hooks/late", style="github", secret=SECRET)(print)
