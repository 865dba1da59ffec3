"""Handle the redirect from the provider, with a code or an error.

The order is: believe the state, find the flow, claim it, exchange the code, store the token, wake the call, tell that it is done. A code is
exchanged by the holder of the claim, so never twice at once; a stored token knows the flow it comes from, so not again after a crash
either. If the server dies on the way the user's browser has no answer yet: loading the page again takes up where it stopped, as soon as
the dead server's claim has ended.
"""

import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol
from urllib.parse import parse_qs

from rapkit.clock import Clock
from rapkit.errors import StoreError
from rapkit.ids import new_id
from rapkit.mailbox import Fact, NewBox, Store
from rapkit.server.interaction.oauth.errors import AuthorizationRefused, ProviderUnavailable
from rapkit.server.interaction.oauth.flow import FLOW, PendingFlow, Waiter, state_purpose, waiter_key
from rapkit.server.interaction.oauth.page import BrowserPage
from rapkit.server.interaction.oauth.provider import OAuthProvider
from rapkit.server.interaction.oauth.token import Token
from rapkit.server.interaction.oauth.vault import LEASE, Vault
from rapkit.server.invocation import call_kind
from rapkit.signer import Signer

Wake = Callable[[str, str, str | None], Awaitable[bool]]
"""Tells a call (its box, the flow's key) that its flow has ended, with the reason if it failed. False if it does not wait for that."""

CLAIM = "oauth-used"
"""Records of flows whose redirect has arrived, beside the call."""
_LONGEST_QUERY = 16 * 1024
_MOST_FIELDS = 32
_LOOK_AGAIN_AFTER = 3
_DENIED = "access_denied"
_CLOSE = "You can close this window."

log = logging.getLogger("rapkit.oauth")

NOT_OURS = BrowserPage(400, "This link does not work", f"It is damaged, or was not made by this server. {_CLOSE}")
GONE = BrowserPage(
    410,
    "Already done, or expired",
    f"This authorisation was completed before, or nobody waits for it any more. {_CLOSE}",
)
BUSY = BrowserPage(
    503, "One moment", "This authorisation is being completed. The page looks again by itself.", _LOOK_AGAIN_AFTER
)
TROUBLE = BrowserPage(
    503, "One moment", "The server cannot store anything right now. The page tries again by itself.", _LOOK_AGAIN_AFTER
)


class Exchanger(Protocol):
    """Gets a token for a code; see `AuthlibClient`."""

    async def exchange(self, provider: OAuthProvider, code: str, verifier: str, redirect_uri: str) -> Token:
        """The token for a code."""


@dataclass(frozen=True, slots=True)
class _Return:
    """The query of a redirect from the provider."""

    state: str = field(repr=False)
    code: str | None = field(repr=False)
    error: str | None = field(repr=False)

    @classmethod
    def parse(cls, query: bytes) -> "_Return | None":
        if len(query) > _LONGEST_QUERY:
            return None
        try:
            fields = parse_qs(query.decode("ascii"), max_num_fields=_MOST_FIELDS, errors="strict")
        except ValueError:
            return None
        values = [fields.get(name, []) for name in ("state", "code", "error")]
        if any(len(value) > 1 for value in values):
            return None  # RFC 6749 3.1: none may occur twice
        state, code, error = (value[0] if value else None for value in values)
        return None if state is None or (code is None and error is None) else cls(state, code, error)


class Redirects:
    """Completes the flows of one toolset."""

    def __init__(
        self,
        store: Store,
        toolset: str,
        providers: Mapping[str, OAuthProvider],
        client: Exchanger,
        vault: Vault,
        signer: Signer,
        clock: Clock,
        wake: Wake,
    ) -> None:
        self._store = store
        self._call_kind = call_kind(toolset)
        self._providers = providers
        self._client = client
        self._vault = vault
        self._signer = signer
        self._purpose = state_purpose(toolset)
        self._clock = clock
        self._wake = wake

    async def answer(self, query: bytes) -> BrowserPage:
        """Do what follows from a redirect, and say what the user is to be told. `StoreError` if it has to come again."""
        back = _Return.parse(query)
        if back is None:
            return NOT_OURS
        signed = self._signer.read(self._purpose, back.state)
        if signed is None or len(signed) != 2:
            return NOT_OURS
        box, key = signed
        body = await self._record(box, FLOW, key)
        if body is None:
            return GONE
        stored_claim = await self._record(box, CLAIM, key)
        claim = _Claim.read(stored_claim)
        if claim.done:
            return GONE
        now = self._clock.now()
        if claim.is_live(now):
            return BUSY
        mine = _Claim(new_id("claim"), now + LEASE)
        if not await self._note(box, key, mine.to_bytes(), stored_claim):
            return BUSY  # another request was faster, or the call has just ended: it will be known when the page looks again
        try:
            page = await self._complete(Waiter(box, key), PendingFlow.from_bytes(body), back)
        except BaseException:
            with contextlib.suppress(StoreError):  # it ends by itself, only later
                await self._note(box, key, None, mine.to_bytes())
            raise
        with contextlib.suppress(StoreError):  # doing it all again would change nothing
            await self._note(box, key, replace(mine, done=True).to_bytes(), mine.to_bytes())
        return page

    async def _complete(self, waiter: Waiter, flow: PendingFlow, back: _Return) -> BrowserPage:
        name = flow.provider
        problem = await self._obtain(waiter, flow, back)
        waits = await self._wake(waiter.box, waiter.flow, problem)
        await self._vault.drop_waiter(flow.user, name, waiter)
        log.info("authorisation ended", extra={"provider": name, "outcome": problem or "granted"})
        if problem is not None:
            what = f"You declined access to {name}." if back.error == _DENIED else f"No access to {name} was obtained."
            return BrowserPage(200, "No access", f"{what} The request that asked for it has been told. {_CLOSE}")
        await self._wake_others(flow)
        after = "Your request goes on." if waits else "The request that asked for it has ended in the meantime."
        return BrowserPage(200, "Done", f"Access to {name} was given. {after} {_CLOSE}")

    async def _obtain(self, waiter: Waiter, flow: PendingFlow, back: _Return) -> str | None:
        """Get and store the token; says why there is none."""
        provider = self._providers.get(flow.provider)
        if provider is None:
            return "this server no longer offers that provider."
        origin = waiter_key(waiter)
        stored = await self._vault.get(flow.user, provider.name)
        if stored is not None and stored.flow == origin:
            return None  # by a server that died before it could wake the call; a code used twice would revoke the token
        if flow.expires_at <= self._clock.now():
            return "the user did not authorise us in time. Call again to ask them anew."
        if back.code is None or back.error is not None:
            return _REASONS.get(back.error or "", "the provider refused. Call again to ask the user anew.")
        try:
            token = await self._client.exchange(provider, back.code, flow.verifier, flow.redirect_uri)
        except AuthorizationRefused as error:
            log.warning("%s", error, extra={"provider": provider.name})
            return "the provider did not accept the user's authorisation. Call again to ask them anew."
        except ProviderUnavailable as error:
            log.warning("%s", error, extra={"provider": provider.name})
            return f"no token was given: {error.reason}. Try again later."
        if not await self._vault.put(flow.user, provider.name, replace(token, flow=origin)):
            return "the conversation was closed in the meantime."
        return None

    async def _wake_others(self, flow: PendingFlow) -> None:
        for other in await self._vault.waiters(flow.user, flow.provider):
            await self._wake(other.box, other.flow, None)
            await self._vault.drop_waiter(flow.user, flow.provider, other)

    async def _record(self, box: str, kind: str, key: str) -> bytes | None:
        return next((record.body for record in await self._store.records(box, kind) if record.key == key), None)

    async def _note(self, box: str, key: str, claim: bytes | None, expect: bytes | None) -> bool:
        return await self._store.note(NewBox(box, self._call_kind), Fact(box, CLAIM, key, claim), expect)


@dataclass(frozen=True, slots=True)
class _Claim:
    """Who completes a flow, until when; `done` when it is completed."""

    by: str = ""
    until: float = 0.0
    done: bool = False

    def is_live(self, now: float) -> bool:
        # One that ends later than any could was made before the clock was set back.
        return now < self.until < now + 2 * LEASE

    def to_bytes(self) -> bytes:
        return json.dumps([self.by, self.until, self.done]).encode()

    @classmethod
    def read(cls, body: bytes | None) -> "_Claim":
        return cls() if body is None else cls(*json.loads(body))


# What RFC 6749 4.1.2.1 lets a provider say. Its own descriptions are not passed on.
_REASONS = {
    _DENIED: "the user declined.",
    "temporarily_unavailable": "the provider is not available right now. Try again later.",
    "server_error": "the provider had an error of its own. Try again later.",
    "invalid_scope": "the provider does not know the scopes this server asks for. Whoever runs it has to mend that.",
    "unauthorized_client": "the provider does not let this server ask. Whoever runs it has to mend that.",
    "invalid_request": "the provider did not accept this server's request. Whoever runs it has to mend that.",
    "unsupported_response_type": "the provider did not accept this server's request. Whoever runs it has to mend that.",
}
