"""The client for a provider's token endpoint: Authlib, with no provider text ever passed on."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any

import httpx2
from authlib.integrations.base_client import OAuthError  # type: ignore[import-untyped]
from authlib.integrations.httpx_client import AsyncOAuth2Client  # type: ignore[import-untyped]
from authlib.oauth2.client import OAuth2Client  # type: ignore[import-untyped]

from rapkit.clock import Clock
from rapkit.server.interaction.oauth.errors import AuthorizationRefused, ProviderUnavailable
from rapkit.server.interaction.oauth.provider import OAuthProvider
from rapkit.server.interaction.oauth.token import Token

_CONNECT_PATIENCE = 5.0
_LARGEST_ANSWER = 64 * 1024

# The user has to come again: the standard's word for it, and GitHub's two.
_REFUSALS = frozenset(("invalid_grant", "bad_refresh_token", "bad_verification_code"))
# Told as they are, because they help the operator. Other codes may say anything.
_FAILURES = frozenset(
    (
        "invalid_client",
        "invalid_request",
        "invalid_scope",
        "unauthorized_client",
        "unsupported_grant_type",
        "server_error",
        "temporarily_unavailable",
        "incorrect_client_credentials",
        "redirect_uri_mismatch",
    )
)

_Problem = AuthorizationRefused | ProviderUnavailable


class AuthlibClient:
    """Exchanges codes and refreshes tokens, over TLS, without following redirects, in bounded time and space.

    What it raises is never chained to what it heard, and contains no code, token, secret or text of the provider's.
    """

    def __init__(self, providers: Iterable[OAuthProvider], clock: Clock, patience: float) -> None:
        declared = list(providers)
        self._ids = {provider.name: provider.read_id() for provider in declared}
        self._secrets = {provider.name: provider.read_secret() for provider in declared}
        self._clock = clock
        self._patience = patience
        self._transport: httpx2.AsyncBaseTransport | None = None
        self._opening = asyncio.Lock()

    def begin(self, provider: OAuthProvider, redirect_uri: str, state: str, verifier: str) -> str:
        """The URL at which the user gives their consent, with the verifier's S256 challenge in it."""
        client = OAuth2Client(
            session=None,
            client_id=self._ids[provider.name],
            scope=list(provider.scopes),
            redirect_uri=redirect_uri,
            code_challenge_method="S256",
        )
        url, _ = client.create_authorization_url(
            provider.authorize_url, state=state, code_verifier=verifier, **provider.authorize_params
        )
        return str(url)

    async def exchange(self, provider: OAuthProvider, code: str, verifier: str, redirect_uri: str) -> Token:
        """The token for a code. `AuthorizationRefused` if the code is worth nothing, `ProviderUnavailable` if there is no telling."""
        return await self._ask(
            provider,
            lambda client: client.fetch_token(
                provider.token_url,
                grant_type="authorization_code",
                code=code,
                code_verifier=verifier,
                redirect_uri=redirect_uri,
            ),
        )

    async def refresh(self, provider: OAuthProvider, token: Token) -> Token:
        """A new token for an old one. `AuthorizationRefused` if the user must come again, `ProviderUnavailable` if there is no telling."""
        fresh = await self._ask(
            provider, lambda client: client.refresh_token(provider.token_url, refresh_token=token.refresh_token)
        )
        return replace(
            fresh,
            refresh_token=fresh.refresh_token or token.refresh_token,  # not every provider gives a new one
            asked=token.asked,
            flow=token.flow,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        if self._transport is not None:
            await self._transport.aclose()

    async def _ask(self, provider: OAuthProvider, request: Callable[[Any], Awaitable[object]]) -> Token:
        problem: _Problem
        try:
            async with asyncio.timeout(self._patience), await self._session(provider) as session:
                answer = await request(session)
            return Token.from_answer(answer, provider.scopes, self._clock.now())
        except OAuthError as error:
            problem = _judge(provider, error.error)
        except (httpx2.TimeoutException, TimeoutError):
            problem = ProviderUnavailable(provider.name, f"it did not answer within {self._patience:g} s")
        except (httpx2.ConnectError, OSError):  # the latter: the machine's certificates cannot be read
            problem = ProviderUnavailable(provider.name, "no connection to it is possible")
        except httpx2.HTTPStatusError as error:
            problem = ProviderUnavailable(provider.name, f"it answered with status {error.response.status_code}")
        except httpx2.HTTPError:
            problem = ProviderUnavailable(provider.name, "the connection to it broke")
        except (ValueError, TypeError, OverflowError, RecursionError):
            # From reading the answer, by Authlib or by us. Such texts may quote anything.
            problem = ProviderUnavailable(provider.name, "its answer cannot be understood")
        # Not inside `except`: there the new error would hold on to the old one, and that to the request with all its secrets.
        raise problem

    async def _session(self, provider: OAuthProvider) -> Any:
        async with self._opening:
            if self._transport is None:
                # In a thread: it loads the trusted certificates. Proxies from the environment are not used, as with callbacks.
                self._transport = await asyncio.to_thread(httpx2.AsyncHTTPTransport)
        session = AsyncOAuth2Client(
            client_id=self._ids[provider.name],
            client_secret=self._secrets[provider.name],
            token_endpoint_auth_method=provider.token_auth,
            transport=_Bounded(self._transport),
            timeout=httpx2.Timeout(self._patience, connect=_CONNECT_PATIENCE),
            follow_redirects=False,
            headers={"user-agent": "rapkit", "accept-encoding": "identity"},
        )
        session.register_compliance_hook("access_token_response", _no_redirect)
        session.register_compliance_hook("refresh_token_response", _no_redirect)
        return session


def _judge(provider: OAuthProvider, code: object) -> _Problem:
    if not isinstance(code, str):
        return ProviderUnavailable(provider.name, "its answer cannot be understood")
    if code in _REFUSALS:
        return AuthorizationRefused(f"{provider.name} no longer accepts the authorisation ({code}).")
    what = f"it refused ({code})" if code in _FAILURES else "it refused, for a reason of its own"
    return ProviderUnavailable(provider.name, what)


def _no_redirect(response: httpx2.Response) -> httpx2.Response:
    if response.status_code < 200 or 300 <= response.status_code < 400:
        response.raise_for_status()
    return response


class _Bounded(httpx2.AsyncBaseTransport):
    """Reads whole answers, if they are not too large. Closing it leaves the connections to the next one."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        try:
            if response.headers.get("content-encoding", "identity") != "identity":
                raise httpx2.RemoteProtocolError("the answer is compressed, although we said we do not want that")
            body = bytearray()
            async for part in response.aiter_raw():
                body += part
                if len(body) > _LARGEST_ANSWER:
                    raise httpx2.RemoteProtocolError("the answer is too large")
        finally:
            await response.aclose()
        return httpx2.Response(response.status_code, headers=response.headers, content=bytes(body))
