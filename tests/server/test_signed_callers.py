import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest
from starlette.types import Receive, Scope, Send

from rapkit import HttpLimits, Limits, Toolset
from rapkit.errors import ConfigError
from rapkit.http.authentication import Callers
from rapkit.http.body_limits import BodyLimits
from rapkit.http.requests import Refusal, Request, read_request, send_json, send_problem
from rapkit.server.endpoints.invocations import InvocationEndpoint
from rapkit.server.engine import ToolsetEngine
from rapkit.server.metrics import ToolsetMetrics
from tests.server.endpoint_server import EndpointServer, opened
from tests.server.served_toolset import Reply, invocation, serving
from tests.server.sink import Sink

NOW = 1_700_000_000.0
OLD, NEW, BERTS = ("whsec_" + base64.b64encode(new_mail * 24).decode() for new_mail in (b"o", b"n", b"b"))
TOKEN = "the-token-of-anna"
BODY = b'{"thread_id": "t"}'
BOTH_WAYS = (
    "Send Authorization: Bearer with a token this server knows, or sign the body as Standard Webhooks do "
    "(webhook-id, webhook-timestamp within 5 minutes, webhook-signature) with a secret this server knows."
)


def signed(body: bytes, *secrets: str, id: str = "msg_1", at: float = NOW) -> dict[str, str | None]:
    """The headers of Standard Webhooks, made from its specification alone."""
    found = []
    for secret in secrets:
        key = base64.b64decode(secret.removeprefix("whsec_"))
        mac = hmac.new(key, f"{id}.{at:.0f}.".encode() + body, hashlib.sha256)
        found.append("v1," + base64.b64encode(mac.digest()).decode())
    return {"Webhook-Id": id, "Webhook-Timestamp": f"{at:.0f}", "Webhook-Signature": " ".join(found)}


class Visitors:
    """A handler that notes who came, and what they brought."""

    def __init__(self, callers: Callers, largest: int = 1000) -> None:
        self.came: list[tuple[str, bytes]] = []
        self.endpoint = InvocationEndpoint(
            self._note, lambda: cast("ToolsetEngine", self), callers, Limits(body=largest)
        )
        self.metrics = ToolsetMetrics("tools", ())  # all that is asked of an engine here

    async def _note(self, _engine: ToolsetEngine, request: Request) -> None:
        self.came.append((request.caller, request.body))


def known(**more: Any) -> Callers:
    return Callers({"anna": TOKEN}, {"anna": [OLD, NEW], "bert": BERTS}, now=lambda: NOW, **more)


async def test_whoever_signed_the_body_is_known_by_the_name_of_the_secret() -> None:
    visitors = Visitors(known())
    async with opened({"/": visitors.endpoint}) as doors:
        for secret in (OLD, NEW, BERTS):
            assert (await doors.post("/", BODY, signed(BODY, secret))).status == 200

    assert visitors.came == [("anna", BODY), ("anna", BODY), ("bert", BODY)]


async def test_the_example_of_the_standard_is_recognised() -> None:
    body = b'{"test": 2432232314}'
    callers = Callers({}, {"svix": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, now=lambda: 1614265330.0)
    visitors = Visitors(callers)
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    async with opened({"/": visitors.endpoint}) as doors:
        assert (await doors.post("/", body, headers)).status == 200

    assert visitors.came == [("svix", body)]


async def test_a_token_and_a_secret_of_one_name_are_one_caller() -> None:
    visitors = Visitors(known())
    async with opened({"/": visitors.endpoint}) as doors:
        await doors.post("/", BODY, {"Authorization": f"Bearer {TOKEN}"})
        await doors.post("/", BODY, signed(BODY, OLD))
        await doors.post("/", BODY, {"Authorization": "Bearer of-another-server", **signed(BODY, NEW)})

    assert [name for name, _ in visitors.came] == ["anna", "anna", "anna"]


async def test_one_of_several_signatures_is_enough_while_secrets_are_rotated() -> None:
    visitors = Visitors(known())
    unknown = "whsec_" + base64.b64encode(b"u" * 32).decode()
    async with opened({"/": visitors.endpoint}) as doors:
        assert (await doors.post("/", BODY, signed(BODY, unknown, NEW))).status == 200
        assert (await doors.post("/", BODY, signed(BODY, OLD, unknown))).status == 200
        assert (await doors.post("/", BODY, signed(BODY, unknown))).status == 401


GOOD = signed(BODY, OLD)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {**GOOD, "Webhook-Id": None},
        {**GOOD, "Webhook-Timestamp": None},
        {**GOOD, "Webhook-Signature": None},
        {**GOOD, "Webhook-Id": "msg_2"},
        {**GOOD, "Webhook-Id": ""},
        {**GOOD, "Webhook-Id": "\xff"},
        {**GOOD, "Webhook-Timestamp": "1700000001"},
        {**GOOD, "Webhook-Timestamp": "soon"},
        {**GOOD, "Webhook-Timestamp": "9" * 30},
        {**GOOD, "Webhook-Signature": ""},
        {**GOOD, "Webhook-Signature": "v1,"},
        {**GOOD, "Webhook-Signature": "\xff\xfe"},
        {**GOOD, "Webhook-Signature": str(GOOD["Webhook-Signature"])[:-1]},
        {**GOOD, "Webhook-Signature": str(GOOD["Webhook-Signature"]).replace("v1,", "v2,")},
        signed(BODY + b" ", OLD),
        signed(b"", OLD),
        signed(BODY, OLD, at=NOW - 301),
        signed(BODY, OLD, at=NOW + 301),
        {"Authorization": f"Bearer {OLD}"},
    ],
)
async def test_what_is_not_signed_by_somebody_we_know_is_refused_and_not_handled(headers: Mapping[str, Any]) -> None:
    """CLO-6"""
    visitors = Visitors(known())
    async with opened({"/": visitors.endpoint}) as doors:
        reply = await doors.post("/", BODY, headers)

    assert (reply.status, reply.detail, reply.headers["www-authenticate"]) == (401, BOTH_WAYS, "Bearer")
    assert visitors.came == []


async def test_a_signature_is_good_for_five_minutes_in_both_directions() -> None:
    visitors = Visitors(known())
    async with opened({"/": visitors.endpoint}) as doors:
        for at in (NOW - 300, NOW + 300):
            assert (await doors.post("/", BODY, signed(BODY, OLD, at=at))).status == 200


async def test_every_door_takes_signatures_and_refuses_all_others(
    toolset: Callable[..., Toolset], sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CLO-6, CAN-2, INV-17"""
    monkeypatch.setenv("NEW_SECRET", NEW)
    secrets = {"anna": [OLD, "env:NEW_SECRET"], "bert": BERTS}
    tools = toolset(tokens={"anna": TOKEN}, caller_secrets=secrets, allow_callbacks=[sink.url])
    runs: list[str] = []
    tools.tool(name="note")(lambda: runs.append("run"))
    messages: dict[str, object] = {
        "/invoke": invocation(sink.url, "note", id="c1"),
        "/close_thread": {"thread_id": "t"},
        "/cancel_tool_call": {"thread_id": "t", "tool_call_id": "c"},
        "/metrics": None,
    }
    async with serving(tools) as server:
        for path, message in messages.items():
            body = b"" if message is None else json.dumps(message).encode()
            method = "GET" if message is None else "POST"
            now = time.time()
            for status, headers in (
                (200, signed(body, OLD, at=now)),
                (200, signed(body, NEW, at=now)),
                (200, {"Authorization": f"Bearer {TOKEN}"}),
                (401, signed(body + b" ", OLD, at=now)),
                (401, signed(body, OLD, at=now - 1000)),
                (401, {}),
            ):
                assert (await server.request(method, path, body, headers)).status == status, (path, headers)
        await server.quiet()
        assert runs == ["run"]  # it is one caller who repeats the call, whatever it shows

        body = json.dumps(messages["/invoke"]).encode()
        assert (await server.request("POST", "/invoke", body, signed(body, BERTS, at=time.time()))).status == 200
        await server.quiet()
        assert runs == ["run", "run"]  # another caller may use the same ids


async def test_whoever_shows_neither_token_nor_signature_is_refused_before_the_body_comes() -> None:
    visitors = Visitors(known())
    async with opened({"/": visitors.endpoint}) as doors:
        assert (await doors.post_no_body("/")).status == 401
        assert (await doors.post_no_body("/", {"Authorization": "Bearer of-another-server"})).status == 401


async def test_an_unproven_body_is_limited_in_size_and_time() -> None:
    visitors = Visitors(known(), largest=20)
    async with opened({"/": BodyLimits(visitors.endpoint, HttpLimits(body_pause_seconds=0.1))}) as doors:
        large = b" " * 21
        assert (await doors.post("/", large, signed(large, OLD))).status == 413
        assert (await doors.post("/", large, {**signed(large, OLD), "Content-Length": "9" * 18})).status == 413
        assert (await doors.post_no_body("/", signed(b"", OLD))).status == 503

    assert visitors.came == []


async def test_a_signed_body_need_not_be_declared_to_be_json() -> None:
    """TRA-1"""
    visitors = Visitors(known())
    async with opened({"/": visitors.endpoint}) as doors:
        reply = await doors.post("/", BODY, {**signed(BODY, OLD), "Content-Type": "text/plain"})

    assert reply.status == 200


async def test_a_request_without_a_body_is_signed_with_an_empty_one() -> None:
    callers = known()

    async def who(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            request = await read_request(scope, receive, callers, 1000, is_json=False)
        except Refusal as refusal:
            await send_problem(send, refusal)
        else:
            await send_json(send, request.caller)

    async def get(doors: EndpointServer, **headers: str | None) -> Reply:
        return await doors.request("GET", "/", headers={"Content-Type": None, "Content-Length": None, **headers})

    async with opened({"/": who_app(who)}) as doors:
        assert (await get(doors, **signed(b"", BERTS))).json == "bert"
        assert (await get(doors, Authorization=f"Bearer {TOKEN}")).json == "anna"
        assert (await get(doors, **signed(b"{}", BERTS))).status == 401
        assert (await get(doors)).status == 401


def who_app(function: Any) -> Any:
    class App:
        """Starlette takes a plain function for something else."""

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await function(scope, receive, send)

    return App()


async def test_with_secrets_alone_this_machine_is_no_exception() -> None:
    callers = Callers({}, {"anna": OLD}, now=lambda: NOW)
    visitors = Visitors(callers)
    async with opened({"/": visitors.endpoint}) as doors:
        refused = await doors.post("/", BODY)

        assert not callers.local_only
        assert (refused.status, "www-authenticate" in refused.headers) == (401, False)
        assert refused.detail.startswith("Sign the body as Standard Webhooks do (webhook-id, ")
        assert "Bearer" not in refused.detail
        assert (await doors.post("/", BODY, signed(BODY, OLD))).status == 200


async def test_with_tokens_alone_signatures_mean_nothing() -> None:
    callers = Callers({"anna": TOKEN}, now=lambda: NOW)
    visitors = Visitors(callers)
    async with opened({"/": visitors.endpoint}) as doors:
        refused = await doors.post_no_body("/", GOOD)

    assert refused.detail == "Send Authorization: Bearer with a token this server knows."
    assert not callers.may_be_signed({name.lower().encode(): b"x" for name in GOOD})


def test_without_tokens_and_secrets_only_this_machine_may_call() -> None:
    assert Callers({}, {}).local_only
    assert Callers({}, {}).identify(b"", "127.0.0.1", b"localhost") == "local"


@pytest.mark.parametrize(
    ("secrets", "told"),
    [
        (
            {"anna": "a-secret-of-no-kind"},
            "The secret 'anna' cannot be used. A webhook secret is 'whsec_' and 24 to 64",
        ),
        ({"anna": "whsec_c2hvcnQ="}, "The secret 'anna' cannot be used."),
        ({"anna": [OLD, ""]}, "The secret 'anna' cannot be used."),
        ({"a name": OLD}, "'a name' cannot name a secret: use 1 to 64 of A-Z a-z 0-9 _ . -"),
        ({"anna": []}, "'anna' has no secret. Give it one, or leave the name out."),
        ({"anna": OLD, "bert": [NEW, OLD]}, "'anna' and 'bert' have the same secret. Give each one of its own."),
    ],
    ids=str,
)
def test_a_secret_that_cannot_be_one_is_refused_in_words(secrets: Any, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Callers({}, secrets)

    assert str(refused.value).startswith(told)
    assert "a-secret-of-no-kind" not in str(refused.value)
    assert OLD not in str(refused.value)
