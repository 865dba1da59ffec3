"""The client against a real provider, and against one in trouble."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.responses import Response, StreamingResponse

from rapkit.server.interaction.oauth.client import AuthlibClient
from rapkit.server.interaction.oauth.errors import AuthorizationRefused, ProviderUnavailable
from rapkit.server.interaction.oauth.flow import new_verifier
from rapkit.server.interaction.oauth.provider import OAuthProvider
from rapkit.server.interaction.oauth.token import Token
from tests.server.interaction.oauth.browser import Browser
from tests.server.interaction.oauth.conftest import ManualClock
from tests.server.interaction.oauth.provider_server import ProviderServer, answers, waits_for

BACK = "http://127.0.0.1:1/oauth/callback"
PATIENCE = 10.0


class Client:
    """The client of one provider, with what most tests do."""

    def __init__(self, provider: ProviderServer, declared: OAuthProvider, clock: ManualClock, patience: float) -> None:
        self.declared = declared
        self.client = AuthlibClient([declared], clock, patience)
        self._provider = provider

    async def code(self, verifier: str) -> str:
        url = self.client.begin(self.declared, BACK, "state", verifier)
        query = parse_qs(urlsplit(await Browser().decide(url)).query)
        assert query["state"] == ["state"]
        return query["code"][0]

    async def token(self) -> Token:
        verifier = new_verifier()
        return await self.client.exchange(self.declared, await self.code(verifier), verifier, BACK)


@pytest.fixture
async def client(provider: ProviderServer, clock: ManualClock) -> AsyncIterator[Client]:
    client = Client(provider, provider.declare(), clock, PATIENCE)
    yield client
    await client.client.aclose()


def test_the_link_asks_for_a_code_with_pkce_and_keeps_what_the_author_added(clock: ManualClock) -> None:
    """OAU-2"""
    declared = OAuthProvider(
        "x",
        authorize_url="https://x.example/authorize?tenant=a",
        token_url="https://x.example/token",
        client_id="id",
        client_secret="hidden-secret",
        scopes=["read", "write"],
        authorize_params={"prompt": "consent"},
    )
    verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"

    url = AuthlibClient([declared], clock, 1.0).begin(declared, BACK, "st.ate", verifier)

    assert parse_qs(urlsplit(url).query) == {
        "tenant": ["a"],
        "response_type": ["code"],
        "client_id": ["id"],
        "redirect_uri": [BACK],
        "scope": ["read write"],
        "state": ["st.ate"],
        "prompt": ["consent"],
        "code_challenge": ["E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"],  # RFC 7636, appendix B
        "code_challenge_method": ["S256"],
    }
    assert verifier not in url
    assert "hidden-secret" not in url


async def test_a_code_is_exchanged_for_a_token_the_api_accepts(provider: ProviderServer, client: Client) -> None:
    """OAU-2"""
    token = await client.token()

    assert provider.owner_of(token.access_token) == "ann"
    assert token.refresh_token is not None
    assert (token.expires_at, token.scopes, token.asked) == (provider.now() + 3600, ("read",), ("read",))


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post", "none"])
async def test_every_way_to_authenticate_the_client_works(
    provider: ProviderServer, clock: ManualClock, method: str
) -> None:
    provider.token_auth = method
    client = Client(provider, provider.declare(), clock, PATIENCE)

    token = await client.token()
    fresh = await client.client.refresh(client.declared, token)

    assert provider.owner_of(fresh.access_token) == "ann"
    await client.client.aclose()


async def test_a_code_without_its_verifier_is_worth_nothing(client: Client) -> None:
    """OAU-2"""
    code = await client.code(new_verifier())

    with pytest.raises(AuthorizationRefused):
        await client.client.exchange(client.declared, code, new_verifier(), BACK)


async def test_a_code_works_once(client: Client) -> None:
    """OAU-2"""
    verifier = new_verifier()
    code = await client.code(verifier)
    await client.client.exchange(client.declared, code, verifier, BACK)

    with pytest.raises(AuthorizationRefused):
        await client.client.exchange(client.declared, code, verifier, BACK)


@pytest.mark.parametrize("code", ["4/0Ab&c=d+%20é\u2028\x00", "x" * 8000])
async def test_a_code_may_be_any_text(client: Client, code: str) -> None:
    with pytest.raises(AuthorizationRefused):
        await client.client.exchange(client.declared, code, new_verifier(), BACK)


async def test_a_refresh_gives_a_new_token_and_keeps_where_it_comes_from(
    provider: ProviderServer, client: Client, clock: ManualClock
) -> None:
    """OAU-2"""
    token = replace(await client.token(), flow="c_call/q_1", asked=("read", "more"))
    clock.time += 4000

    fresh = await client.client.refresh(client.declared, token)

    assert provider.owner_of(token.access_token) is None
    assert provider.owner_of(fresh.access_token) == "ann"
    assert fresh.refresh_token not in (None, token.refresh_token)
    assert (fresh.expires_at, fresh.asked, fresh.flow) == (clock.time + 3600, token.asked, token.flow)


async def test_a_provider_that_does_not_rotate_leaves_us_the_old_refresh_token(
    provider: ProviderServer, client: Client
) -> None:
    provider.rotates = False
    token = await client.token()

    fresh = await client.client.refresh(client.declared, await client.client.refresh(client.declared, token))

    assert fresh.refresh_token == token.refresh_token
    assert provider.owner_of(fresh.access_token) == "ann"


@pytest.mark.parametrize("nothing", ["null", '""', "7"])
async def test_a_refresh_token_that_is_none_does_not_replace_the_old_one(
    provider: ProviderServer, client: Client, nothing: str
) -> None:
    provider.trouble = answers(200, f'{{"access_token": "new", "refresh_token": {nothing}}}')

    assert await client.client.refresh(client.declared, Token("old", "good")) == Token("new", "good", scopes=("read",))


async def test_a_refresh_token_used_twice_is_refused_and_so_is_its_successor(client: Client) -> None:
    token = await client.token()
    fresh = await client.client.refresh(client.declared, token)

    for each in (token, fresh):
        with pytest.raises(AuthorizationRefused):
            await client.client.refresh(client.declared, each)


async def test_a_wrong_client_secret_is_our_fault_not_the_users(provider: ProviderServer, client: Client) -> None:
    token = await client.token()
    provider.client_secret = "changed"

    with pytest.raises(ProviderUnavailable, match=r"^github gave no token: it refused \(invalid_client\)"):
        await client.client.refresh(client.declared, token)


SECRET = "tok-en-in-an-answer"
TELLING = json.dumps({"access_token": SECRET, "note": SECRET})


@pytest.mark.parametrize(
    ("status", "body", "headers", "told"),
    [
        (503, TELLING, {}, "it answered with status 503"),
        (500, "<html>" + SECRET, {}, "it answered with status 500"),
        (429, "slow down, " + SECRET, {}, "it answered with status 429"),
        (302, TELLING, {"location": f"http://127.0.0.1:1/?code={SECRET}"}, "it answered with status 302"),
        (200, "<html>" + SECRET, {}, "cannot be understood"),
        (200, f'["{SECRET}"]', {}, "cannot be understood"),
        (200, "", {}, "cannot be understood"),
        (200, b"\xff\xfe" + SECRET.encode(), {}, "cannot be understood"),
        (200, "[" * 60_000, {}, "cannot be understood"),
        (200, "{}", {}, "cannot be understood"),
        (200, '{"access_token": "two\\r\\nlines"}', {}, "cannot be understood"),
        (200, '{"access_token": {"is": "none"}}', {}, "cannot be understood"),
        (200, f'{{"access_token": "{SECRET}", "expires_in": "soon"}}', {}, "cannot be understood"),
        (200, f'{{"access_token": "{SECRET}", "expires_in": 1e999}}', {}, "cannot be understood"),
        (200, f'{{"error": ["{SECRET}"]}}', {}, "cannot be understood"),
        (200, f'{{"error": "{SECRET}", "error_description": "{SECRET}"}}', {}, "a reason of its own"),
        (400, f'{{"error": "invalid_request", "error_description": "{SECRET}"}}', {}, r"\(invalid_request\)"),
        (403, "{}", {}, "cannot be understood"),
        (200, TELLING + " " * 70_000, {}, "the connection to it broke"),
        (200, gzip.compress(TELLING.encode(), mtime=0), {"content-encoding": "gzip"}, "the connection to it broke"),
    ],
)
async def test_an_answer_one_cannot_use_is_told_without_a_word_of_it(
    provider: ProviderServer, client: Client, status: int, body: str | bytes, headers: dict[str, str], told: str
) -> None:
    """OAU-2"""
    provider.trouble = answers(status, body, headers)

    with pytest.raises(ProviderUnavailable, match=told) as failed:
        await client.client.exchange(client.declared, "code-of-the-user", new_verifier(), BACK)

    assert SECRET not in str(failed.value)
    assert failed.value.__context__ is None, "what caused it holds the request, with its secrets"
    assert failed.value.__cause__ is None
    assert provider.token_requests == ["authorization_code"], "nothing is sent twice, and no redirect followed"


@pytest.mark.parametrize("code", ["bad_refresh_token", "bad_verification_code", "invalid_grant"])
async def test_what_says_that_the_user_must_come_again_is_understood(
    provider: ProviderServer, client: Client, code: str
) -> None:
    provider.trouble = answers(200, json.dumps({"error": code, "error_description": "x"}))

    with pytest.raises(AuthorizationRefused) as refused:
        await client.client.refresh(client.declared, Token("access", "refresh"))

    assert refused.value.__context__ is None


async def test_github_separates_scopes_by_commas_and_its_tokens_do_not_expire(
    provider: ProviderServer, client: Client
) -> None:
    provider.trouble = answers(200, '{"access_token": "t", "scope": "repo,gist", "token_type": "bearer"}')

    token = await client.client.exchange(client.declared, "code", new_verifier(), BACK)

    assert (token.scopes, token.asked, token.expires_at) == (("repo", "gist"), ("read",), None)


async def test_a_provider_that_does_not_answer_is_given_up(provider: ProviderServer, clock: ManualClock) -> None:
    end = asyncio.Event()
    provider.trouble = waits_for(end)
    client = Client(provider, provider.declare(), clock, patience=0.1)

    with pytest.raises(ProviderUnavailable, match=r"did not answer within 0\.1 s"):
        await client.client.exchange(client.declared, "code", new_verifier(), BACK)
    await client.client.aclose()
    end.set()


async def test_a_provider_that_answers_forever_is_given_up(provider: ProviderServer, clock: ManualClock) -> None:
    async def drip() -> AsyncIterator[bytes]:
        while not given_up:
            yield b" "
            await asyncio.sleep(0.02)

    async def trouble() -> Response:
        return StreamingResponse(drip())

    given_up = False
    provider.trouble = trouble
    client = Client(provider, provider.declare(), clock, patience=0.2)

    with pytest.raises(ProviderUnavailable, match=r"did not answer within 0\.2 s"):
        await client.client.exchange(client.declared, "code", new_verifier(), BACK)
    given_up = True
    await client.client.aclose()


async def test_a_provider_that_is_not_there_is_told_apart(provider: ProviderServer, clock: ManualClock) -> None:
    nowhere = provider.declare(token_url="http://127.0.0.1:1/token")
    client = AuthlibClient([nowhere], clock, PATIENCE)

    with pytest.raises(ProviderUnavailable, match="no connection to it is possible") as failed:
        await client.exchange(nowhere, "code", new_verifier(), BACK)

    assert failed.value.__context__ is None
    await client.aclose()


def test_a_token_shows_none_of_its_secrets_and_survives_the_store() -> None:
    """OAU-2"""
    token = Token("acc-secret", "ref-secret", 12.5, ("a",), "bearer", ("a", "b"), "c_box/flow")

    assert "secret" not in repr(token)
    assert Token.from_bytes(token.to_bytes()) == token
