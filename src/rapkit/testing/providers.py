"""In-memory OAuth providers, whose users are played by the test."""

import itertools
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from rapkit.clock import Clock
from rapkit.server.interaction.oauth.errors import AuthorizationRefused, ProviderUnavailable
from rapkit.server.interaction.oauth.provider import OAuthProvider
from rapkit.server.interaction.oauth.token import Token


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """What a user is asked at a provider's page."""

    provider: OAuthProvider
    redirect_uri: str
    state: str = field(repr=False)
    verifier: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Grant:
    inquiry: AuthorizationRequest
    access_token: str = field(repr=False)
    expires_in: float | None


class Providers:
    """All the providers a toolset has declared. Tokens are called token-1, token-2 and so on, unless the test names them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._inquiries: dict[str, AuthorizationRequest] = {}
        self._grants: dict[str, _Grant] = {}
        self._refreshable: dict[str, float | None] = {}
        self._unavailable: dict[str, str] = {}
        self._codes = itertools.count(1)
        self._refreshes = itertools.count(1)
        self._names = (f"token-{number}" for number in itertools.count(1))

    # What tests do

    def revoke(self, provider: str) -> None:
        """Refuse to refresh the tokens that were given so far: their users have to authorise the server again."""
        for token in [token for token in self._refreshable if token.startswith(f"{provider}/")]:
            del self._refreshable[token]

    def down(self, provider: str, reason: str = "it is down for a test") -> None:
        """Give no tokens, until `up`."""
        self._unavailable[provider] = reason

    def up(self, provider: str) -> None:
        """Give tokens again."""
        self._unavailable.pop(provider, None)

    def inquiry(self, url: str) -> AuthorizationRequest:
        """What the user is asked who follows this link."""
        return self._inquiries[parse_qs(urlsplit(url).query)["state"][0]]

    def knows(self, url: str) -> bool:
        """Whether the link leads to one of these providers."""
        return parse_qs(urlsplit(url).query).get("state", [""])[0] in self._inquiries

    def grant(self, inquiry: AuthorizationRequest, token: str | None = None, expires_in: float | None = None) -> str:
        """The user says yes; returns the code with which they are sent back."""
        code = f"code-{next(self._codes)}"
        self._grants[code] = _Grant(inquiry, token or next(self._names), expires_in)
        return code

    # What the server does

    def begin(self, provider: OAuthProvider, redirect_uri: str, state: str, verifier: str) -> str:
        """The URL at which the user gives their consent."""
        self._inquiries[state] = AuthorizationRequest(provider, redirect_uri, state, verifier)
        return f"{provider.authorize_url}?{urlencode({'state': state, 'redirect_uri': redirect_uri})}"

    async def exchange(self, provider: OAuthProvider, code: str, verifier: str, redirect_uri: str) -> Token:
        """The token for a code, once, for the flow it is from."""
        self._check(provider)
        grant = self._grants.pop(code, None)
        if grant is None:
            raise AuthorizationRefused(f"{provider.name} does not know this code, or it was used.")
        asked = grant.inquiry
        if (asked.provider.name, asked.verifier, asked.redirect_uri) != (provider.name, verifier, redirect_uri):
            raise AuthorizationRefused(f"{provider.name} gave this code to somebody else.")
        return self._token(provider, grant.access_token, grant.expires_in)

    async def refresh(self, provider: OAuthProvider, token: Token) -> Token:
        """A new token for an old one. A refresh token works once: the answer has the next one."""
        self._check(provider)
        if token.refresh_token not in self._refreshable:
            raise AuthorizationRefused(f"{provider.name} no longer accepts the authorisation.")
        lifetime = self._refreshable.pop(token.refresh_token)
        fresh = self._token(provider, next(self._names), lifetime)
        return replace(fresh, asked=token.asked, flow=token.flow)

    async def aclose(self) -> None:
        """Nothing is open."""

    def _check(self, provider: OAuthProvider) -> None:
        if provider.name in self._unavailable:
            raise ProviderUnavailable(provider.name, self._unavailable[provider.name])

    def _token(self, provider: OAuthProvider, access_token: str, expires_in: float | None) -> Token:
        answer: dict[str, Any] = {"access_token": access_token}
        if expires_in is not None:
            refresh_token = f"{provider.name}/refresh-{next(self._refreshes)}"
            self._refreshable[refresh_token] = expires_in
            answer |= {"refresh_token": refresh_token, "expires_in": expires_in}
        return Token.from_answer(answer, provider.scopes, self._clock.now())
