"""OAuth for one running toolset: begin a flow, complete it, store the tokens."""

from collections.abc import Callable, Iterable
from typing import NoReturn, Protocol

from starlette.types import Receive, Scope, Send

from rapkit.clock import Clock
from rapkit.errors import ConfigError, StoreError
from rapkit.extras import how_to_install
from rapkit.mailbox import Fact, Record, Store
from rapkit.server.interaction.oauth.flow import (
    FLOW,
    REDIRECT_PATH,
    Flow,
    PendingFlow,
    Waiter,
    new_verifier,
    state_purpose,
    waiter_key,
    waiter_kind,
)
from rapkit.server.interaction.oauth.page import BrowserPage
from rapkit.server.interaction.oauth.provider import OAuthProvider
from rapkit.server.interaction.oauth.redirect import TROUBLE, Exchanger, Redirects, Wake, log
from rapkit.server.interaction.oauth.vault import PATIENCE, Refresher, Vault
from rapkit.signer import Signer


class OAuthClient(Exchanger, Refresher, Protocol):
    """The interface of a client for providers: `AuthlibClient`, unless a test brings its own."""

    def begin(self, provider: OAuthProvider, redirect_uri: str, state: str, verifier: str) -> str:
        """The URL at which the user gives their consent."""

    async def aclose(self) -> None:
        """Close all connections."""


class OAuth:
    """The providers of a toolset, and what their users have authorised us to.

    `lifetime` is how many seconds a user has to come back. Secrets are read here: `ConfigError` if one is missing, or the extra is.
    """

    def __init__(
        self,
        providers: Iterable[OAuthProvider],
        store: Store,
        toolset: str,
        signer: Signer,
        clock: Clock,
        wake: Wake,
        lifetime: float,
        client: OAuthClient | None = None,
    ) -> None:
        self.providers = by_name(providers)
        self._client = client or open_client(self.providers.values(), clock)
        self._signer = signer
        self._purpose = state_purpose(toolset)
        self._clock = clock
        self._lifetime = lifetime
        self.vault = Vault(store, toolset, self._client, clock)
        self._redirects = Redirects(store, toolset, self.providers, self._client, self.vault, signer, clock, wake)

    def begin(self, provider: str, user: str, base_url: str, box: str, key: str) -> Flow:
        """A new flow for the call in this box. Nothing is stored: commit what it says, then send the link."""
        redirect_uri = f"{base_url.rstrip('/')}{REDIRECT_PATH}"
        verifier = new_verifier()
        state = self._signer.sign(self._purpose, box, key)
        pending = PendingFlow(provider, user, redirect_uri, self._clock.now() + self._lifetime, verifier)
        return Flow(
            auth_url=self._client.begin(self.providers[provider], redirect_uri, state, verifier),
            record=Record(FLOW, key, pending.to_bytes()),
            waiter=Fact(user, waiter_kind(provider), waiter_key(Waiter(box, key)), b""),
        )

    async def redirected(self, query: bytes) -> BrowserPage:
        """A user came back with this query: complete the flow, and say what they are to be told."""
        return await self._redirects.answer(query)

    async def aclose(self) -> None:
        """End in order: let refreshes end, close connections."""
        await self.vault.aclose()
        await self._client.aclose()


class RedirectEndpoint:
    """The ASGI app behind `REDIRECT_PATH`, for GET alone: a HEAD request must not use up the code."""

    def __init__(self, oauth: Callable[[], OAuth]) -> None:
        self._oauth = oauth

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        query: bytes = scope["query_string"]
        # Servers write their access log from the scope when the answer begins; a code and a state do not belong there.
        scope["query_string"] = b""
        try:
            page = await self._oauth().redirected(query)
        except (ConfigError, StoreError) as error:
            log.error("a redirect could not be dealt with: %s", error)
            page = TROUBLE
        await page.send(send)


def by_name(providers: Iterable[OAuthProvider]) -> dict[str, OAuthProvider]:
    """The providers by name; `ConfigError` if two have the same."""
    named: dict[str, OAuthProvider] = {}
    for provider in providers:
        if provider.name in named:
            raise ConfigError(f"Two OAuth providers are called {provider.name!r}.")
        named[provider.name] = provider
    return named


def open_client(providers: Iterable[OAuthProvider], clock: Clock) -> OAuthClient:
    """Read the secrets, and make what talks to the providers. Without providers the extra is not needed."""
    providers = list(providers)
    if not providers:
        return _NoClient()
    try:
        from rapkit.server.interaction.oauth.client import AuthlibClient
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("authlib", "httpx2"):
            raise
        raise ConfigError(
            f"OAuth providers are declared, and {error.name} is not installed. Run: {how_to_install('oauth')}"
        ) from None
    return AuthlibClient(providers, clock, PATIENCE)


class _NoClient:
    """The client of a toolset that declares no provider."""

    def begin(self, provider: OAuthProvider, *_: str) -> NoReturn:
        raise _undeclared(provider)

    async def exchange(self, provider: OAuthProvider, *_: str) -> NoReturn:
        raise _undeclared(provider)

    async def refresh(self, provider: OAuthProvider, _: object) -> NoReturn:
        raise _undeclared(provider)

    async def aclose(self) -> None:
        pass


def _undeclared(provider: OAuthProvider) -> ConfigError:
    return ConfigError(f"The OAuth provider {provider.name!r} is not declared.")
