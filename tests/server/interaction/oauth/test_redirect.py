"""The user comes back: with a code, with a refusal, twice, late, with something else, and while the server dies."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import cast
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from rapkit.errors import StoreError
from rapkit.mailbox import Commit, Fact, NewBox, Record, Store
from rapkit.server.interaction.oauth import OAuth, OAuthProvider, RedirectEndpoint
from rapkit.server.interaction.oauth.flow import Flow, Waiter
from rapkit.server.interaction.oauth.page import BrowserPage
from rapkit.server.interaction.oauth.redirect import CLAIM
from rapkit.server.interaction.oauth.vault import LEASE, TOKEN
from rapkit.signer import Signer
from tests.server.interaction.oauth.browser import Browser
from tests.server.interaction.oauth.conftest import Interrupted, ManualClock, until
from tests.server.interaction.oauth.provider_server import ProviderServer, answers, waits_for

ANN = "u_ann"
CALL = "c_call"
KEY = "q_oauth/1"
LIFETIME = 3600.0
KEYS = [b"k" * 32]


class Desk:
    """One process of a server: what it was told to wake, and the redirects it is sent."""

    def __init__(
        self, store: Store | Interrupted, providers: list[OAuthProvider], clock: ManualClock, toolset: str = "tools"
    ) -> None:
        self.store = cast("Store", store)
        self.woken: list[tuple[str, str, str | None]] = []
        self.waits = True
        self.wakes = True
        self.oauth = OAuth(providers, self.store, toolset, Signer(KEYS), clock, self._wake, LIFETIME)

    async def _wake(self, box: str, key: str, error: str | None) -> bool:
        if not self.wakes:
            raise StoreError("the disk is full")
        await self.store.records(box, "oauth")  # a letter would be written: a process that is lost cannot
        self.woken.append((box, key, error))
        return self.waits

    async def suspend(self, call: str = CALL, key: str = KEY, user: str = ANN) -> Flow:
        """What a suspended handler leaves behind."""
        flow = self.oauth.begin("github", user, "http://127.0.0.1:1", call, key)
        await self.store.note(NewBox(call, "call/tools"), Fact(call, flow.record.kind, key, flow.record.body))
        await self.store.note(NewBox(user, "user/tools"), flow.waiter)
        return flow

    async def back(self, location: str) -> BrowserPage:
        """The browser follows the provider's redirect to us."""
        return await self.oauth.redirected(urlsplit(location).query.encode())

    async def token(self) -> str | None:
        stored = await self.oauth.vault.get(ANN, "github")
        return None if stored is None else stored.access_token


@pytest.fixture
async def desk(store: Store, provider: ProviderServer, clock: ManualClock) -> AsyncIterator[Desk]:
    desk = Desk(store, [provider.declare()], clock)
    yield desk
    await desk.oauth.aclose()


@pytest.fixture
async def desks(
    another_store: Callable[[], Store], provider: ProviderServer, clock: ManualClock
) -> AsyncIterator[tuple[Desk, Desk, Interrupted]]:
    """A process that will be lost, the one that comes after it, and the first one's hold on the database."""
    doomed = Interrupted(another_store())
    pair = Desk(doomed, [provider.declare()], clock), Desk(another_store(), [provider.declare()], clock)
    yield *pair, doomed
    for desk in pair:
        await desk.oauth.aclose()


async def test_an_authorisation_stores_the_token_and_wakes_the_call(desk: Desk, provider: ProviderServer) -> None:
    """OAU-2"""
    flow = await desk.suspend()

    page = await desk.back(await Browser("ann").decide(flow.auth_url))

    assert provider.owner_of(cast("str", await desk.token())) == "ann"
    assert desk.woken == [(CALL, KEY, None)]
    assert (page.status, page.title) == (200, "Done")
    assert "You can close this window." in page.text


async def test_a_refusal_wakes_the_call_with_an_error(desk: Desk) -> None:
    """OAU-2"""
    flow = await desk.suspend()

    page = await desk.back(await Browser().decide(flow.auth_url, allow=False))

    assert desk.woken == [(CALL, KEY, "the user declined.")]
    assert await desk.token() is None
    assert "You declined access to github." in page.text


async def test_a_state_works_once(desk: Desk, provider: ProviderServer) -> None:
    """OAU-2"""
    flow = await desk.suspend()
    location = await Browser().decide(flow.auth_url)
    await desk.back(location)
    token = await desk.token()

    again = await desk.back(location)
    denied = await desk.back(location.replace("code=", "error=access_denied&x="))

    assert again.status == denied.status == 410
    assert len(desk.woken) == len(provider.token_requests) == 1
    assert provider.owner_of(cast("str", token)) == "ann", "a code that is used twice would have cost the token"


async def test_a_state_for_a_call_that_has_ended_is_too_late(desk: Desk, provider: ProviderServer) -> None:
    flow = await desk.suspend()
    location = await Browser().decide(flow.auth_url)
    store = desk.store
    await store.note(NewBox(CALL, "call/tools"), Fact(CALL, "oauth", KEY, None))

    page = await desk.back(location)

    assert page.status == 410
    assert provider.token_requests == []


async def test_a_state_we_did_not_sign_does_not_even_reach_the_store(
    another_store: Callable[[], Store], provider: ProviderServer, clock: ManualClock
) -> None:
    """OAU-2"""
    store = Interrupted(another_store())
    desk = Desk(store, [provider.declare()], clock)
    flow = await desk.suspend()
    location = await Browser().decide(flow.auth_url)
    state = parse_qs(urlsplit(location).query)["state"][0]
    others = Signer([b"o" * 32]).sign("oauth/tools", CALL, KEY), Signer(KEYS).sign("answer", CALL, KEY)
    short, toolset = Signer(KEYS).sign("oauth/tools", CALL), Signer(KEYS).sign("oauth/another", CALL, KEY)
    store.asked = 0

    for forged in ("", "x", state[:-1], state + "A", "." + state, *others, short, toolset):
        page = await desk.oauth.redirected(urlencode({"code": "c", "state": forged}).encode())
        assert page.status == 400

    assert store.asked == 0
    assert (desk.woken, provider.token_requests) == ([], [])
    await desk.oauth.aclose()


@pytest.mark.parametrize(
    "query",
    [
        b"",
        b"code=c",
        b"state={state}",
        b"state={state}&code=",
        b"state={state}&state={state}&code=c",
        b"state={state}&code=c&code=d",
        b"state={state}&error=access_denied&error=x",
        b"state={state}&code=%ff",
        b"state={state}&code=\xc3\xa4",
        b"state={state}&code=" + b"x" * 20_000,
        b"state={state}&code=c" + b"&x=y" * 50,
    ],
)
async def test_a_query_no_provider_sends_is_refused(desk: Desk, query: bytes) -> None:
    flow = await desk.suspend()
    state = parse_qs(urlsplit(flow.auth_url).query)["state"][0]

    page = await desk.oauth.redirected(query.replace(b"{state}", state.encode()))

    assert page.status == 400
    assert desk.woken == []


async def test_toolsets_on_one_store_do_not_complete_each_others_flows(
    desk: Desk, store: Store, provider: ProviderServer, clock: ManualClock
) -> None:
    other = Desk(store, [provider.declare()], clock, toolset="other")
    location = await Browser().decide((await desk.suspend()).auth_url)

    assert (await other.back(location)).status == 400
    assert (await desk.back(location)).status == 200
    await other.oauth.aclose()


async def test_an_error_counts_even_if_there_is_a_code(desk: Desk, provider: ProviderServer) -> None:
    location = await Browser().decide((await desk.suspend()).auth_url)

    await desk.back(f"{location}&error=access_denied")

    assert desk.woken == [(CALL, KEY, "the user declined.")]
    assert provider.token_requests == []


async def test_a_code_of_another_flow_is_worth_nothing(desk: Desk) -> None:
    """OAU-2: whoever slips a user a code of their own would have them work in a stranger's account."""
    mine = await desk.suspend()
    theirs = await desk.suspend("c_theirs", KEY, "u_mallory")
    state = parse_qs(urlsplit(mine.auth_url).query)["state"][0]
    code = parse_qs(urlsplit(await Browser("mallory").decide(theirs.auth_url)).query)["code"][0]

    await desk.oauth.redirected(urlencode({"code": code, "state": state}).encode())

    ((box, _, error),) = desk.woken
    assert (box, error) == (
        CALL,
        "the provider did not accept the user's authorisation. Call again to ask them anew.",
    )
    assert await desk.token() is None


async def test_who_comes_back_too_late_is_not_let_in(desk: Desk, provider: ProviderServer, clock: ManualClock) -> None:
    """OAU-2"""
    flow = await desk.suspend()
    location = await Browser().decide(flow.auth_url)
    clock.time += LIFETIME

    await desk.back(location)

    assert desk.woken == [(CALL, KEY, "the user did not authorise us in time. Call again to ask them anew.")]
    assert provider.token_requests == []


async def test_a_provider_that_gives_no_token_is_an_error(desk: Desk, provider: ProviderServer) -> None:
    """OAU-2"""
    flow = await desk.suspend()
    provider.trouble = answers(502, "<html>secret details")

    page = await desk.back(await Browser().decide(flow.auth_url))

    assert desk.woken == [(CALL, KEY, "no token was given: it answered with status 502. Try again later.")]
    assert "No access to github was obtained." in page.text


async def test_a_provider_that_is_no_longer_declared_is_an_error(
    desk: Desk, another_store: Callable[[], Store], clock: ManualClock
) -> None:
    flow = await desk.suspend()
    later = Desk(another_store(), [], clock)

    await later.back(await Browser().decide(flow.auth_url))

    assert later.woken == [(CALL, KEY, "this server no longer offers that provider.")]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("temporarily_unavailable", "not available right now"),
        ("invalid_scope", "Whoever runs it"),
        ("<script>alert('x')</script>", "the provider refused"),
    ],
)
async def test_what_else_a_provider_may_say_is_told_in_our_words(desk: Desk, code: str, told: str) -> None:
    flow = await desk.suspend()
    state = parse_qs(urlsplit(flow.auth_url).query)["state"][0]
    query = urlencode({"error": code, "error_description": "<b>their words</b>", "state": state})

    page = await desk.oauth.redirected(query.encode())

    ((_, _, error),) = desk.woken
    assert error is not None
    assert told in error
    for words in ("script", "their words"):
        assert words not in error + page.html


async def test_of_two_redirects_at_once_one_exchanges_the_code(
    desks: tuple[Desk, Desk, Interrupted], provider: ProviderServer
) -> None:
    """OAU-2"""
    first, second, _ = desks
    location = await Browser().decide((await first.suspend()).auth_url)
    go_on = asyncio.Event()
    provider.trouble = waits_for(go_on)

    exchanging = asyncio.create_task(first.back(location))
    await until(lambda: bool(provider.token_requests))
    busy = [await desk.back(location) for desk in (first, second)]
    go_on.set()
    done = await exchanging

    assert [(page.status, page.title, page.again) for page in busy] == [(503, "One moment", 3)] * 2
    assert done.title == "Done"
    assert len(provider.token_requests) == 1
    assert (await second.back(location)).status == 410


async def test_a_crowd_of_redirects_exchanges_the_code_once(
    desks: tuple[Desk, Desk, Interrupted], provider: ProviderServer
) -> None:
    """OAU-2"""
    first, second, _ = desks
    location = await Browser("ann").decide((await first.suspend()).auth_url)

    pages = await asyncio.gather(*(desk.back(location) for desk in (first, second) * 10))

    assert sorted({page.status for page in pages} | {503, 410}) == [200, 410, 503]
    assert [page.title for page in pages].count("Done") == 1
    assert len(provider.token_requests) == len(first.woken + second.woken) == 1
    assert provider.owner_of(cast("str", await second.token())) == "ann"


async def test_a_call_that_could_not_be_woken_is_woken_when_the_page_is_loaded_again(
    desk: Desk, provider: ProviderServer
) -> None:
    """OAU-2"""
    location = await Browser("ann").decide((await desk.suspend()).auth_url)
    desk.wakes = False
    with pytest.raises(StoreError):
        await desk.back(location)

    desk.wakes = True
    page = await desk.back(location)

    assert page.title == "Done"
    assert desk.woken == [(CALL, KEY, None)]
    assert len(provider.token_requests) == 1, "the code was not used twice"
    assert provider.owner_of(cast("str", await desk.token())) == "ann"


async def test_a_server_killed_between_token_and_wake_is_made_good_by_the_next(
    desks: tuple[Desk, Desk, Interrupted], provider: ProviderServer, clock: ManualClock
) -> None:
    """OAU-2"""
    first, second, doomed = desks
    location = await Browser("ann").decide((await first.suspend()).auth_url)
    doomed.loses_after = lambda fact: fact.kind == TOKEN
    with pytest.raises(StoreError):
        await first.back(location)

    assert (await second.back(location)).title == "One moment", "the dead one's claim still holds"
    clock.time += LEASE
    page = await second.back(location)

    assert page.title == "Done"
    assert second.woken == [(CALL, KEY, None)]
    assert len(provider.token_requests) == 1
    assert provider.owner_of(cast("str", await second.token())) == "ann"
    assert (await second.back(location)).status == 410


async def test_a_server_killed_between_claim_and_exchange_is_made_good_by_the_next(
    desks: tuple[Desk, Desk, Interrupted], provider: ProviderServer, clock: ManualClock
) -> None:
    """OAU-2"""
    first, second, doomed = desks
    location = await Browser("ann").decide((await first.suspend()).auth_url)
    doomed.loses_after = lambda fact: fact.kind == CLAIM
    with pytest.raises(StoreError):
        await first.back(location)

    clock.time += LEASE
    page = await second.back(location)

    assert page.title == "Done"
    assert (first.woken, second.woken) == ([], [(CALL, KEY, None)])
    assert len(provider.token_requests) == 1


async def test_a_server_killed_between_exchange_and_token_costs_the_authorisation_and_no_more(
    desks: tuple[Desk, Desk, Interrupted], provider: ProviderServer, clock: ManualClock
) -> None:
    """OAU-2: the code is used, the token was never stored. The call ends in an error, and the next one asks again."""
    first, second, doomed = desks
    location = await Browser("ann").decide((await first.suspend()).auth_url)
    doomed.loses_before = lambda fact: fact.kind == TOKEN
    with pytest.raises(StoreError):
        await first.back(location)

    clock.time += LEASE
    await second.back(location)

    ((_, _, error),) = second.woken
    assert error is not None
    assert "Call again" in error
    assert await second.token() is None


async def test_other_calls_that_wait_for_the_same_user_go_on_too(desk: Desk) -> None:
    """OAU-2"""
    flow = await desk.suspend()
    await desk.suspend("c_other", "q_x/2")
    await desk.suspend("c_bobs", KEY, "u_bob")

    await desk.back(await Browser().decide(flow.auth_url))

    assert desk.woken == [(CALL, KEY, None), ("c_other", "q_x/2", None)]
    assert await desk.oauth.vault.waiters(ANN, "github") == []
    assert await desk.oauth.vault.waiters("u_bob", "github") == [Waiter("c_bobs", KEY)]


async def test_a_refusal_concerns_no_other_call(desk: Desk) -> None:
    flow = await desk.suspend()
    await desk.suspend("c_other", "q_x/2")

    await desk.back(await Browser().decide(flow.auth_url, allow=False))

    assert [box for box, _, _ in desk.woken] == [CALL]
    assert await desk.oauth.vault.waiters(ANN, "github") == [Waiter("c_other", "q_x/2")]


async def test_an_authorisation_is_kept_although_the_call_has_gone(desk: Desk, provider: ProviderServer) -> None:
    flow = await desk.suspend()
    desk.waits = False

    page = await desk.back(await Browser("ann").decide(flow.auth_url))

    assert "has ended in the meantime" in page.text
    assert provider.owner_of(cast("str", await desk.token())) == "ann"


async def test_an_authorisation_for_a_closed_thread_is_an_error(desk: Desk) -> None:
    """CLO-4"""
    store = desk.store
    flow = desk.oauth.begin("github", "r_thread", "http://127.0.0.1:1", CALL, KEY)
    await store.note(NewBox(CALL, "call/tools"), Fact(CALL, "oauth", KEY, flow.record.body))
    await store.renew("w")
    await store.create(NewBox("r_thread", "user/tools"))
    (claim,) = await store.claim("w", "user/tools", 1)
    await store.commit(claim, Commit(forget_for=60))

    await desk.back(await Browser().decide(flow.auth_url))

    assert desk.woken == [(CALL, KEY, "the conversation was closed in the meantime.")]


async def test_what_is_committed_and_sent_tells_nothing_secret(desk: Desk, store: Store) -> None:
    """OAU-2"""
    flow = await desk.suspend()
    (record,) = await store.records(CALL, "oauth")
    verifier = record.body.split(b'"verifier": "')[1].split(b'"')[0].decode()

    assert len(verifier) == 43
    assert verifier not in flow.auth_url + repr(flow)
    assert isinstance(flow.record, Record)


# The endpoint


async def ask(endpoint: RedirectEndpoint, query: bytes) -> tuple[int, dict[str, str], str, dict[str, object]]:
    scope: dict[str, object] = {"type": "http", "method": "GET", "path": "/oauth/callback", "query_string": query}
    sent: list[dict[str, object]] = []

    async def send(message: object) -> None:
        sent.append(cast("dict[str, object]", message))

    async def receive() -> dict[str, object]:
        return {"type": "http.request"}

    await endpoint(scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in cast("list[tuple[bytes, bytes]]", sent[0]["headers"])}
    return cast("int", sent[0]["status"]), headers, cast("bytes", sent[1]["body"]).decode(), scope


async def test_the_page_can_do_nothing_and_goes_nowhere(desk: Desk) -> None:
    location = await Browser().decide((await desk.suspend()).auth_url)

    status, headers, body, _ = await ask(RedirectEndpoint(lambda: desk.oauth), urlsplit(location).query.encode())

    assert status == 200
    assert headers["content-security-policy"].startswith("default-src 'none'; style-src 'sha256-")
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-content-type-options"] == "nosniff"
    assert int(headers["content-length"]) == len(body.encode())
    assert "<script" not in body
    assert "http" not in body


async def test_code_and_state_are_kept_from_the_access_log_and_from_the_page(desk: Desk) -> None:
    """OAU-2: servers write their access log from the scope."""
    query = urlsplit(await Browser().decide((await desk.suspend()).auth_url)).query

    _, headers, body, scope = await ask(RedirectEndpoint(lambda: desk.oauth), query.encode())

    assert scope["query_string"] == b""
    for (value,) in parse_qs(query).values():
        assert value not in body + str(headers)


async def test_a_store_in_trouble_has_the_page_try_again_by_itself(desk: Desk) -> None:
    location = await Browser().decide((await desk.suspend()).auth_url)
    desk.wakes = False

    status, headers, _, _ = await ask(RedirectEndpoint(lambda: desk.oauth), urlsplit(location).query.encode())

    assert (status, headers["refresh"]) == (503, "3")


def test_whatever_stands_on_a_page_is_escaped() -> None:
    page = BrowserPage(200, "<Done>", 'a "quoted" & <b>bold</b> text')

    assert "<b>" not in page.html
    assert "&lt;b&gt;bold&lt;/b&gt;" in page.html
    assert "&lt;Done&gt;" in page.html
