"""Users' tokens: kept, refreshed once, and forgotten when they are worth nothing any more."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast
from urllib.parse import parse_qs, urlsplit

import pytest

from rapkit.mailbox import Commit, NewBox, Store
from rapkit.server.interaction.oauth.client import AuthlibClient
from rapkit.server.interaction.oauth.errors import ProviderUnavailable
from rapkit.server.interaction.oauth.flow import new_verifier
from rapkit.server.interaction.oauth.provider import OAuthProvider
from rapkit.server.interaction.oauth.token import Token
from rapkit.server.interaction.oauth.vault import LEASE, TOKEN, Refresher, Vault
from tests.server.interaction.oauth.browser import Browser
from tests.server.interaction.oauth.conftest import Interrupted, ManualClock, until
from tests.server.interaction.oauth.provider_server import ProviderServer, answers, waits_for

ANN = "u_ann"
BACK = "http://127.0.0.1:1/oauth/callback"


@pytest.fixture
async def client(provider: ProviderServer, clock: ManualClock) -> AsyncIterator[AuthlibClient]:
    client = AuthlibClient([provider.declare()], clock, patience=10)
    yield client
    await client.aclose()


@pytest.fixture
def github(provider: ProviderServer) -> OAuthProvider:
    return provider.declare()


@pytest.fixture
def vault(store: Store, client: AuthlibClient, clock: ManualClock) -> Vault:
    return Vault(store, "tools", client, clock)


@pytest.fixture
async def token(client: AuthlibClient, github: OAuthProvider) -> Token:
    """Given by Ann at the provider; good for an hour."""
    return await authorise(client, github)


async def authorise(client: AuthlibClient, github: OAuthProvider) -> Token:
    verifier = new_verifier()
    location = await Browser("ann").decide(client.begin(github, BACK, "state", verifier))
    return await client.exchange(github, parse_qs(urlsplit(location).query)["code"][0], verifier, BACK)


async def test_a_stored_token_is_used_as_long_as_it_is_good(
    vault: Vault, token: Token, github: OAuthProvider, provider: ProviderServer, clock: ManualClock
) -> None:
    """OAU-2"""
    assert await vault.usable(ANN, github) is None
    await vault.put(ANN, "github", token)
    clock.time += 3600 - 61

    assert await vault.usable(ANN, github) == token.access_token
    assert provider.refreshes == 0


async def test_tokens_of_different_users_and_providers_are_apart(vault: Vault, token: Token) -> None:
    """OAU-2"""
    await vault.put(ANN, "github", token)

    assert await vault.get("u_bob", "github") is None
    assert await vault.get(ANN, "google") is None
    await vault.delete(ANN, "github")
    assert await vault.get(ANN, "github") is None


async def test_a_token_is_encrypted_at_rest(vault: Vault, token: Token, tmp_path: Path) -> None:
    """OAU-2"""
    await vault.put(ANN, "github", token)

    files = b"".join(file.read_bytes() for file in tmp_path.glob("tools.db*"))
    assert ANN.encode() in files, "this is the file it is in"
    assert token.refresh_token is not None
    assert token.access_token.encode() not in files
    assert token.refresh_token.encode() not in files


@pytest.mark.parametrize("left", [60, 0, -100_000])
async def test_a_token_that_is_over_or_soon_will_be_is_refreshed(
    vault: Vault, token: Token, github: OAuthProvider, provider: ProviderServer, clock: ManualClock, left: int
) -> None:
    """OAU-2"""
    await vault.put(ANN, "github", token)
    clock.time += 3600 - left

    fresh = await vault.usable(ANN, github)

    assert fresh is not None
    assert provider.owner_of(fresh) == "ann"
    assert fresh == await vault.usable(ANN, github) != token.access_token
    assert provider.refreshes == 1


async def test_twenty_calls_in_two_processes_refresh_once(
    another_store: Callable[[], Store],
    client: AuthlibClient,
    token: Token,
    github: OAuthProvider,
    provider: ProviderServer,
    clock: ManualClock,
) -> None:
    """OAU-2: the provider would revoke everything if a refresh token were used twice."""
    vaults = [Vault(another_store(), "tools", client, clock) for _ in range(2)]
    await vaults[0].put(ANN, "github", token)
    clock.time += 4000
    go_on = asyncio.Event()
    provider.trouble = waits_for(go_on)

    calls = [asyncio.create_task(vaults[n % 2].usable(ANN, github)) for n in range(20)]
    await until(lambda: provider.refreshes > 0 and clock.sleeps > 5)  # one asks, the other process has looked often
    go_on.set()
    tokens = await asyncio.gather(*calls)

    assert provider.refreshes == 1
    assert len(set(tokens)) == 1
    assert provider.owner_of(cast("str", tokens[0])) == "ann"


async def test_a_token_that_lives_shorter_than_our_margin_is_still_refreshed_once_for_all_who_wait(
    another_store: Callable[[], Store],
    client: AuthlibClient,
    github: OAuthProvider,
    provider: ProviderServer,
    clock: ManualClock,
) -> None:
    provider.expires_in = 30
    token = await authorise(client, github)
    vaults = [Vault(another_store(), "tools", client, clock) for _ in range(2)]
    await vaults[0].put(ANN, "github", token)
    go_on = asyncio.Event()
    provider.trouble = waits_for(go_on)

    calls = [asyncio.create_task(vaults[n % 2].usable(ANN, github)) for n in range(6)]
    await until(lambda: provider.refreshes > 0 and clock.sleeps > 5)
    go_on.set()
    await asyncio.gather(*calls)

    assert provider.refreshes == 1


async def test_a_user_who_took_everything_back_is_asked_again(
    vault: Vault, token: Token, github: OAuthProvider, provider: ProviderServer, clock: ManualClock
) -> None:
    """OAU-2"""
    await vault.put(ANN, "github", token)
    provider.revoke_all()
    clock.time += 4000

    assert await vault.usable(ANN, github) is None
    assert await vault.get(ANN, "github") is None, "it is worth nothing"


async def test_a_token_the_api_turned_down_is_refreshed_once_however_many_noticed(
    vault: Vault, token: Token, github: OAuthProvider, provider: ProviderServer
) -> None:
    """OAU-2"""
    await vault.put(ANN, "github", token)

    first = await vault.usable(ANN, github, refused=token.access_token)
    late = await vault.usable(ANN, github, refused=token.access_token)

    assert first == late != token.access_token
    assert provider.refreshes == 1


async def test_a_token_that_cannot_be_refreshed_is_used_to_its_end_and_then_asked_for_again(
    vault: Vault, client: AuthlibClient, github: OAuthProvider, provider: ProviderServer, clock: ManualClock
) -> None:
    """OAU-2"""
    provider.gives_refresh_tokens = False
    token = await authorise(client, github)
    await vault.put(ANN, "github", token)

    clock.time += 3599
    assert await vault.usable(ANN, github) == token.access_token
    clock.time += 1
    assert await vault.usable(ANN, github) is None
    assert await vault.get(ANN, "github") is None


async def test_a_token_that_cannot_be_refreshed_and_was_turned_down_is_forgotten(
    vault: Vault, client: AuthlibClient, github: OAuthProvider, provider: ProviderServer
) -> None:
    provider.gives_refresh_tokens = False
    token = await authorise(client, github)
    await vault.put(ANN, "github", token)

    assert await vault.usable(ANN, github, refused="another one") == token.access_token
    assert await vault.usable(ANN, github, refused=token.access_token) is None
    assert await vault.get(ANN, "github") is None


async def test_a_token_for_less_than_is_wanted_by_now_is_not_used(
    vault: Vault, token: Token, provider: ProviderServer
) -> None:
    await vault.put(ANN, "github", token)

    assert await vault.usable(ANN, provider.declare(scopes=["read", "write"])) is None
    assert await vault.usable(ANN, provider.declare(scopes=[])) == token.access_token


async def test_a_provider_in_trouble_costs_nobody_their_authorisation(
    vault: Vault, token: Token, github: OAuthProvider, provider: ProviderServer, clock: ManualClock
) -> None:
    """OAU-2"""
    await vault.put(ANN, "github", token)
    provider.trouble = answers(503)

    clock.time += 3600 - 30
    assert await vault.usable(ANN, github) == token.access_token, "it is good for half a minute"
    with pytest.raises(ProviderUnavailable, match="status 503"):
        await vault.usable(ANN, github, refused=token.access_token)
    clock.time += 30
    with pytest.raises(ProviderUnavailable, match="status 503"):
        await vault.usable(ANN, github)

    provider.trouble = None
    fresh = await vault.usable(ANN, github)
    assert fresh is not None
    assert provider.owner_of(fresh) == "ann"


async def test_whoever_waits_may_be_cancelled_and_the_new_token_is_stored_all_the_same(
    vault: Vault, token: Token, github: OAuthProvider, provider: ProviderServer, clock: ManualClock
) -> None:
    """OAU-2: the provider has rotated the refresh token; losing the new one would cost the user's authorisation."""
    await vault.put(ANN, "github", token)
    clock.time += 4000
    go_on = asyncio.Event()
    provider.trouble = waits_for(go_on)
    call = asyncio.create_task(vault.usable(ANN, github))
    await until(lambda: provider.refreshes == 1)

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    go_on.set()
    await vault.aclose()

    stored = await vault.get(ANN, "github")
    assert stored is not None
    assert provider.owner_of(stored.access_token) == "ann"


async def test_an_authorisation_given_during_a_refresh_wins(
    vault: Vault,
    client: AuthlibClient,
    token: Token,
    github: OAuthProvider,
    provider: ProviderServer,
    clock: ManualClock,
) -> None:
    await vault.put(ANN, "github", token)
    newer = await authorise(client, github)
    clock.time += 3600 - 30
    go_on = asyncio.Event()
    provider.trouble = waits_for(go_on)
    call = asyncio.create_task(vault.usable(ANN, github))
    await until(lambda: provider.refreshes == 1)

    await vault.put(ANN, "github", newer)
    go_on.set()

    assert await call == newer.access_token
    assert await vault.get(ANN, "github") == newer


async def test_a_refresher_that_dies_before_it_asked_is_replaced_when_its_lease_ends(
    another_store: Callable[[], Store],
    client: AuthlibClient,
    token: Token,
    github: OAuthProvider,
    provider: ProviderServer,
    clock: ManualClock,
) -> None:
    """OAU-2"""
    doomed = Interrupted(another_store())
    stuck = Stuck()
    first, second = _vault(doomed, stuck, clock), Vault(another_store(), "tools", client, clock)
    await second.put(ANN, "github", token)
    clock.time += 4000
    dying = asyncio.create_task(first.usable(ANN, github))
    await stuck.begun.wait()
    doomed.lost = True

    call = asyncio.create_task(second.usable(ANN, github))
    await until(lambda: clock.sleeps > 20)
    assert provider.refreshes == 0, "the lease of the dead one still holds"
    clock.time += LEASE
    fresh = await call

    assert provider.owner_of(cast("str", fresh)) == "ann"
    stuck.end.set()
    await asyncio.gather(dying, return_exceptions=True)


async def test_a_clock_that_was_set_back_does_not_make_a_dead_refreshers_lease_last(
    another_store: Callable[[], Store], client: AuthlibClient, token: Token, github: OAuthProvider, clock: ManualClock
) -> None:
    doomed, stuck = Interrupted(another_store()), Stuck()
    first, second = _vault(doomed, stuck, clock), Vault(another_store(), "tools", client, clock)
    await second.put(ANN, "github", token)
    dying = asyncio.create_task(first.usable(ANN, github, refused=token.access_token))
    await stuck.begun.wait()
    doomed.lost = True

    clock.time -= 100_000

    assert await second.usable(ANN, github, refused=token.access_token) not in (None, token.access_token)
    stuck.end.set()
    await asyncio.gather(dying, return_exceptions=True)


async def test_a_refresher_that_dies_with_the_answer_costs_the_authorisation_and_no_more(
    another_store: Callable[[], Store],
    client: AuthlibClient,
    token: Token,
    github: OAuthProvider,
    provider: ProviderServer,
    clock: ManualClock,
) -> None:
    """OAU-2: a rotated refresh token that was never stored is lost; the user is asked again."""
    doomed = Interrupted(another_store())
    doomed.loses_before = lambda fact: fact.kind == TOKEN
    first, second = _vault(doomed, client, clock), Vault(another_store(), "tools", client, clock)
    await second.put(ANN, "github", token)
    clock.time += 4000

    dying = asyncio.create_task(first.usable(ANN, github))
    await until(lambda: doomed.lost)
    clock.time += LEASE

    assert await second.usable(ANN, github) is None
    assert provider.refreshes == 2
    await asyncio.gather(dying, return_exceptions=True)


async def test_a_store_that_fails_for_a_moment_does_not_cost_the_new_token(
    another_store: Callable[[], Store],
    client: AuthlibClient,
    token: Token,
    github: OAuthProvider,
    provider: ProviderServer,
    clock: ManualClock,
) -> None:
    store = Interrupted(another_store())
    vault = _vault(store, client, clock)
    await vault.put(ANN, "github", token)
    clock.time += 4000
    store.loses_before = lambda fact: fact.kind == TOKEN and not clock.sleeps

    call = asyncio.create_task(vault.usable(ANN, github))
    await until(lambda: clock.sleeps == 3)
    store.lost = False

    assert provider.owner_of(cast("str", await call)) == "ann"


async def test_nothing_is_kept_for_a_thread_that_was_closed(
    store: Store, vault: Vault, token: Token, github: OAuthProvider
) -> None:
    """CLO-4"""
    await store.renew("w")
    await store.create(NewBox("r_thread", "user/tools"))
    (claim,) = await store.claim("w", "user/tools", 1)
    await store.commit(claim, Commit(forget_for=60))

    assert await vault.put("r_thread", "github", token) is False
    assert await vault.usable("r_thread", github) is None


class Stuck:
    """A refresher that has not asked yet, and never will."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.end = asyncio.Event()

    async def refresh(self, provider: OAuthProvider, _token: Token) -> Token:
        self.begun.set()
        await self.end.wait()
        raise ProviderUnavailable(provider.name, "it was never asked")


def _vault(store: Interrupted, client: Refresher, clock: ManualClock) -> Vault:
    return Vault(cast("Store", store), "tools", client, clock)
