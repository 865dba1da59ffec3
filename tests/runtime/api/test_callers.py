"""Who may use the API."""

from collections.abc import AsyncIterator

import pytest

from tests.runtime.api.client import Api, Client, serving_api

ALICE, BOB = "a-token-of-alice-1", "a-token-of-bob-234"


@pytest.fixture
async def guarded(store: str) -> AsyncIterator[Api]:
    async with serving_api(store, tokens={"alice": ALICE, "bob": BOB}) as api:
        yield api


@pytest.mark.parametrize("token", [None, "not-a-token-of-anybody"])
async def test_strangers_are_refused_everywhere(guarded: Api, token: str | None) -> None:
    stranger = guarded.client(token)
    thread = await guarded.client(ALICE).begin()

    for method, path in [
        ("GET", "/v1/threads"),
        ("POST", "/v1/threads"),
        ("GET", thread),
        ("GET", f"{thread}/history"),
        ("GET", f"{thread}/events"),
        ("POST", f"{thread}/messages"),
        ("POST", f"{thread}/close"),
        ("POST", f"{thread}/calls/c/cancel"),
        ("POST", f"{thread}/calls/c/choice"),
    ]:
        reply = await stranger.request(method, path)
        assert reply.status == 401, path
        assert reply.headers["www-authenticate"] == "Bearer"
        assert "Bearer" in reply.detail


async def test_every_named_token_is_let_in(guarded: Api) -> None:
    for token in (ALICE, BOB):
        assert (await guarded.client(token).get("/v1/threads")).status == 200


async def test_without_tokens_only_this_machine_is_served_under_its_own_name(client: Client) -> None:
    """A web page that has its own name point to this machine gets nowhere."""
    reply = await client.request("GET", "/v1/threads", headers={"Host": "evil.example"})

    assert reply.status == 401
    assert "Configure tokens" in reply.detail


async def test_the_description_of_the_api_is_for_everybody(guarded: Api) -> None:
    assert (await guarded.client().get("/openapi.json")).status == 200


async def test_a_key_of_one_caller_is_not_a_key_of_another(guarded: Api) -> None:
    alice, bob = guarded.client(ALICE), guarded.client(BOB)

    made = [(await each.post("/v1/threads", {"text": "hi"}, key="1")).json["thread_id"] for each in (alice, bob)]
    sent = [
        (await each.post(f"/v1/threads/{made[0]}/messages", {"text": "hi"}, key="1")).json["message_id"]
        for each in (alice, bob)
    ]

    assert made[0] != made[1]
    assert sent[0] != sent[1]
