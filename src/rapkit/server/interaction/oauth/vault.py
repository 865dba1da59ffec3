"""The token vault: users' tokens, encrypted in the store and refreshed when they expire.

Many providers give a new refresh token with every refresh, and revoke everything when an old one is used twice. So only one refreshes:
within a process the others wait for its task, among processes for its lease, a record that is written by compare-and-set. A refresher that
dies is replaced when its lease ends. If it died between the provider's answer and our commit, a rotated refresh token is lost with it: the
provider refuses the old one, and the user is asked again. No order of steps can avoid that.
"""

import asyncio
import contextlib
import json
import logging
from dataclasses import dataclass
from types import EllipsisType
from typing import Protocol

from rapkit.clock import Clock
from rapkit.errors import StoreError
from rapkit.ids import new_id
from rapkit.mailbox import Fact, NewBox, Store
from rapkit.server.interaction.oauth.errors import AuthorizationRefused, ProviderUnavailable
from rapkit.server.interaction.oauth.flow import Waiter, read_waiter, waiter_key, waiter_kind
from rapkit.server.interaction.oauth.provider import OAuthProvider
from rapkit.server.interaction.oauth.token import Token
from rapkit.server.interaction.user_box import user_kind

PATIENCE = 20.0
"""Seconds a provider has to answer."""
LEASE = 1.5 * PATIENCE
"""Seconds after which a refresher that did not report back is taken for dead. It gives up long before."""
_MARGIN = 60.0
_LOOK_AGAIN_EVERY = 0.1
_PAUSE_BEFORE_WRITING_AGAIN = 0.5
_WRITE_ATTEMPTS = 10

TOKEN = "token"  # noqa: S105 - a kind of record
REFRESHING = "refreshing"

log = logging.getLogger("rapkit.oauth")


class Refresher(Protocol):
    """Gets a new token for an old one; see `AuthlibClient`."""

    async def refresh(self, provider: OAuthProvider, token: Token) -> Token:
        """A new token for an old one."""


@dataclass(frozen=True, slots=True)
class _Kept:
    body: bytes
    token: Token


class Vault:
    """Tokens by user and provider. Any number of them, in any number of processes, may work on one store."""

    def __init__(self, store: Store, toolset: str, client: Refresher, clock: Clock) -> None:
        self._store = store
        self._kind = user_kind(toolset)
        self._client = client
        self._clock = clock
        self._flights: dict[tuple[str, str, bytes], asyncio.Task[Token | None]] = {}

    async def get(self, user: str, provider: str) -> Token | None:
        """What is stored, good or not."""
        kept = await self._look(user, provider)
        return None if kept is None else kept.token

    async def put(self, user: str, provider: str, token: Token) -> bool:
        """Store a token, whatever was there before. It tries for a while: the user would have to come again if it were lost.

        False if nothing can be stored for this user any more: a thread stood in for them, and was closed.
        """
        return await self._write_with_retry(user, provider, token.to_bytes(), ...)

    async def delete(self, user: str, provider: str) -> None:
        """Forget a token."""
        await self._note(user, TOKEN, provider, None, ...)

    async def usable(self, user: str, provider: OAuthProvider, *, refused: str | None = None) -> str | None:
        """An access token that should be accepted, refreshed if need be; None if the user has to authorise us, for the first time or again.

        `refused` is an access token that the API has turned down: if it is still the one we have, it is refreshed or forgotten.
        `ProviderUnavailable` if it has to be refreshed and cannot be just now.
        """
        kept = await self._look(user, provider.name)
        if kept is None or not set(provider.scopes) <= set(kept.token.asked):
            return None  # never authorised, or for less than is wanted by now
        token, now = kept.token, self._clock.now()
        dead = token.expired(now) or token.access_token == refused
        if not dead and (token.refresh_token is None or not token.expired(now, _MARGIN)):
            return token.access_token
        if token.refresh_token is None:
            await self._note(user, TOKEN, provider.name, None, kept.body)
            return None
        try:
            fresh = await self._refreshed(user, provider, kept.body)
        except ProviderUnavailable:
            if dead:
                raise
            return token.access_token  # it has some seconds left
        return None if fresh is None else fresh.access_token

    async def waiters(self, user: str, provider: str) -> list[Waiter]:
        """The calls that wait for this user to authorise us there."""
        return [read_waiter(record.key) for record in await self._store.records(user, waiter_kind(provider))]

    async def drop_waiter(self, user: str, provider: str, waiter: Waiter) -> None:
        """The call no longer waits, or knows."""
        await self._note(user, waiter_kind(provider), waiter_key(waiter), None, ...)

    async def aclose(self) -> None:
        """Let refreshes that are under way end: what the provider answers must be stored."""
        flights = list(self._flights.values())
        if flights:
            _, late = await asyncio.wait(flights, timeout=PATIENCE)
            for flight in late:  # it waits for another process, or for a store that does not write
                flight.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _refreshed(self, user: str, provider: OAuthProvider, stale: bytes) -> Token | None:
        key = (user, provider.name, stale)
        flight = self._flights.get(key)
        if flight is None:
            # A task of its own: the waiting caller may be cancelled, and the answer must be stored all the same.
            flight = asyncio.create_task(self._refresh(user, provider, stale))
            self._flights[key] = flight
            flight.add_done_callback(lambda done: self._landed(key, done))
        return await asyncio.shield(flight)

    def _landed(self, key: tuple[str, str, bytes], flight: "asyncio.Task[Token | None]") -> None:
        del self._flights[key]
        if not flight.cancelled():
            flight.exception()  # asyncio complains about unretrieved errors, even if no task waits any more

    async def _refresh(self, user: str, provider: OAuthProvider, stale: bytes) -> Token | None:
        lease = await self._lease(user, provider.name, stale)
        try:
            kept = await self._look(user, provider.name)
            if kept is None:
                return None
            if lease is None or kept.body != stale:
                return kept.token  # another process has done it
            try:
                fresh = await self._client.refresh(provider, kept.token)
            except AuthorizationRefused:
                log.info("the user has to authorise us again", extra={"provider": provider.name})
                await self._note(user, TOKEN, provider.name, None, stale)
                return await self.get(user, provider.name)
            if await self._write_with_retry(user, provider.name, fresh.to_bytes(), stale):
                return fresh
            return await self.get(
                user, provider.name
            )  # the user has authorised us anew in the meantime: that is the newer one
        finally:
            if lease is not None:
                with contextlib.suppress(StoreError):  # it ends by itself
                    await self._note(user, REFRESHING, provider.name, None, lease)

    async def _lease(self, user: str, provider: str, stale: bytes) -> bytes | None:
        """The right to refresh, as soon as no other process has it; None if the token has changed while we waited."""
        while await self._record(user, TOKEN, provider) == stale:
            current_lease = await self._record(user, REFRESHING, provider)
            now = self._clock.now()
            if current_lease is None or not _is_live(current_lease, now):
                lease = json.dumps({"by": new_id("refresh"), "until": now + LEASE}).encode()
                if await self._note(user, REFRESHING, provider, lease, current_lease):
                    return lease
            await self._clock.sleep(_LOOK_AGAIN_EVERY)
        return None

    async def _write_with_retry(self, user: str, provider: str, body: bytes, expect: bytes | EllipsisType) -> bool:
        for attempt in range(_WRITE_ATTEMPTS):
            try:
                if await self._note(user, TOKEN, provider, body, expect):
                    return True
                kept = await self._look(user, provider)
                return kept is not None and kept.body == body  # written by an attempt whose outcome was unknown
            except StoreError as error:
                if attempt == _WRITE_ATTEMPTS - 1:
                    raise
                log.error("cannot store a token: %s", error, extra={"provider": provider})
                await self._clock.sleep(_PAUSE_BEFORE_WRITING_AGAIN)
        raise AssertionError("unreachable")

    async def _look(self, user: str, provider: str) -> _Kept | None:
        body = await self._record(user, TOKEN, provider)
        return None if body is None else _Kept(body, Token.from_bytes(body))

    async def _record(self, user: str, kind: str, key: str) -> bytes | None:
        return next((record.body for record in await self._store.records(user, kind) if record.key == key), None)

    async def _note(
        self, user: str, kind: str, key: str, body: bytes | None, expect: bytes | EllipsisType | None
    ) -> bool:
        return await self._store.note(NewBox(user, self._kind), Fact(user, kind, key, body), expect)


def _is_live(lease: bytes, now: float) -> bool:
    until: float = json.loads(lease)["until"]
    # One that ends later than any could was made before the clock was set back.
    return now < until < now + 2 * LEASE
