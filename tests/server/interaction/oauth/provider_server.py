"""A real OAuth 2 provider on a loopback port: Authlib's authorization server, with a consent page, a token endpoint and an API.

It insists on S256 PKCE, on client authentication, and on codes that are used once. It rotates refresh tokens, and revokes everything a user
gave when an old one, or an old code, is used again: whoever refreshes twice at once is found out.
"""

import asyncio
import contextlib
import html
import secrets
import socket
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

import uvicorn
from authlib.oauth2 import OAuth2Error  # type: ignore[import-untyped]
from authlib.oauth2.rfc6749 import (  # type: ignore[import-untyped]
    AuthorizationServer,
    InvalidRequestError,
    OAuth2Payload,
    OAuth2Request,
    grants,
)
from authlib.oauth2.rfc7636 import CodeChallenge  # type: ignore[import-untyped]
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from rapkit.server.interaction.oauth import OAuthProvider

LOGGERS = "authlib.oauth2.rfc6749"
"""The provider's own loggers, which tell every token it gives, when they are asked for so much. They are not the client's."""

Trouble = Callable[[], Awaitable[Response | None]]
"""What the token endpoint does first; it goes on as usual if there is no response."""


@dataclass
class Consent:
    """One time a user said yes, and all that was given for it."""

    user: str
    scope: str
    redirect_uri: str
    code_challenge: str
    code_challenge_method: str
    code_used: bool = False
    revoked: bool = False
    access_tokens: dict[str, float | None] = field(default_factory=dict)
    refresh_tokens: dict[str, bool] = field(default_factory=dict)
    """By token: whether it is still the newest."""

    def get_redirect_uri(self) -> str:
        return self.redirect_uri

    def get_scope(self) -> str:
        return self.scope

    def check_client(self, _client: object) -> bool:
        return True


class ProviderServer:
    """A provider with one client and any number of users. What it does can be changed while it runs."""

    def __init__(self, url: str, now: Callable[[], float]) -> None:
        self.url = url
        self.now = now
        self.client_id = "tools-under-test"
        self.client_secret = secrets.token_urlsafe(24)
        self.token_auth = "client_secret_basic"
        self.expires_in: int | None = 3600
        """How long access tokens live."""
        self.rotates = True
        """Whether a refresh gives a new refresh token."""
        self.gives_refresh_tokens = True
        self.trouble: Trouble | None = None
        self.token_requests: list[str] = []
        """The grant types of the token requests so far."""
        self.seen: set[str] = set()
        """Everything secret that went over the wire: codes, verifiers, tokens."""
        self._consents: dict[str, Consent] = {}
        self._server = _Authlib(self)

    @property
    def refreshes(self) -> int:
        """How often somebody asked for a refresh."""
        return self.token_requests.count("refresh_token")

    def declare(self, name: str = "github", **changes: Any) -> OAuthProvider:
        """The provider as a tool author declares it."""
        declared: dict[str, Any] = {
            "authorize_url": f"{self.url}/authorize",
            "token_url": f"{self.url}/token",
            "client_id": self.client_id,
            "client_secret": None if self.token_auth == "none" else self.client_secret,
            "token_auth": self.token_auth,
            "scopes": ["read"],
        }
        return OAuthProvider(name, **{**declared, **changes})

    def owner_of(self, access_token: str) -> str | None:
        """Whose token it is, if it is good."""
        for consent in self._consents.values():
            if access_token in consent.access_tokens and not consent.revoked:
                expires_at = consent.access_tokens[access_token]
                return None if expires_at is not None and expires_at <= self.now() else consent.user
        return None

    def revoke_all(self) -> None:
        """Every user has changed their mind."""
        for consent in self._consents.values():
            consent.revoked = True

    def issue_code(self, consent: Consent) -> str:
        code = secrets.token_urlsafe(24)
        self._consents[code] = consent
        self.seen.add(code)
        return code

    def use_code(self, code: str) -> Consent | None:
        consent = self._consents.get(code)
        if consent is not None and consent.code_used:
            consent.revoked = True
        return None if consent is None or consent.revoked else consent

    def use_refresh_token(self, token: str) -> Consent | None:
        consent = next((each for each in self._consents.values() if token in each.refresh_tokens), None)
        if consent is not None and not consent.refresh_tokens[token]:
            consent.revoked = True
        return None if consent is None or consent.revoked else consent

    def issue(self, scope: str, include_refresh_token: bool) -> dict[str, Any]:
        token: dict[str, Any] = {"token_type": "Bearer", "access_token": secrets.token_urlsafe(24), "scope": scope}
        if self.expires_in is not None:
            token["expires_in"] = self.expires_in
        if include_refresh_token:
            token["refresh_token"] = secrets.token_urlsafe(24)
        return token

    def keep(self, consent: Consent, token: dict[str, Any]) -> None:
        expires_in = token.get("expires_in")
        consent.access_tokens[token["access_token"]] = None if expires_in is None else self.now() + expires_in
        self.seen.add(token["access_token"])
        if "refresh_token" in token:
            for old in consent.refresh_tokens:
                consent.refresh_tokens[old] = False
            consent.refresh_tokens[token["refresh_token"]] = True
            self.seen.add(token["refresh_token"])

    # Endpoints

    async def authorize(self, request: Request) -> Response:
        """The consent page, and what the user presses there."""
        asked = await _Asked.read(request)
        user = asked.payload.data.get("user")
        try:
            grant = self._server.get_consent_grant(asked)
        except OAuth2Error as error:
            return _respond(*error(None))
        if request.method == "GET":
            return HTMLResponse(_consent_page(asked.payload.data))
        response: Response = self._server.create_authorization_response(asked, user or None, grant)
        return response

    async def token(self, request: Request) -> Response:
        asked = await _Asked.read(request)
        self.token_requests.append(asked.payload.grant_type)
        self.seen |= {asked.form[name] for name in ("code_verifier", "refresh_token") if name in asked.form}
        if self.trouble is not None and (response := await self.trouble()) is not None:
            return response
        answer: Response = self._server.create_token_response(asked)
        return answer

    async def me(self, request: Request) -> Response:
        """The API the token is for."""
        owner = self.owner_of(request.headers.get("authorization", "").removeprefix("Bearer "))
        return JSONResponse({"message": "bad token"}, 401) if owner is None else JSONResponse({"login": owner})

    @property
    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/authorize", self.authorize, methods=["GET", "POST"]),
                Route("/token", self.token, methods=["POST"]),
                Route("/me", self.me),
            ]
        )


@contextlib.asynccontextmanager
async def provider_running(now: Callable[[], float] = time.time) -> AsyncIterator[ProviderServer]:
    """A provider on a port of its own, with the clock it is told."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        provider = ProviderServer(f"http://127.0.0.1:{listener.getsockname()[1]}", now)
        config = uvicorn.Config(provider.app, lifespan="off", ws="none", log_config=None, timeout_graceful_shutdown=1)
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        await server.startup(sockets=[listener])
        try:
            yield provider
        finally:
            await server.shutdown(sockets=[listener])


def answers(status: int, body: bytes | str = b"", headers: dict[str, str] | None = None) -> Trouble:
    """Trouble: every token request is answered so."""

    async def trouble() -> Response:
        return Response(body, status, headers)

    return trouble


def waits_for(event: asyncio.Event) -> Trouble:
    """Trouble: token requests are kept waiting until the event."""

    async def trouble() -> None:
        await event.wait()

    return trouble


# Authlib's server, on Starlette's requests


class _Fields(OAuth2Payload):  # type: ignore[misc]
    def __init__(self, fields: list[tuple[str, str]]) -> None:
        self._fields = fields

    @property
    def data(self) -> dict[str, str]:
        return dict(self._fields)

    @property
    def datalist(self) -> dict[str, list[str]]:
        lists = defaultdict(list)
        for name, value in self._fields:
            lists[name].append(value)
        return lists


class _Asked(OAuth2Request):  # type: ignore[misc]
    def __init__(self, request: Request, query: list[tuple[str, str]], form: list[tuple[str, str]]) -> None:
        super().__init__(request.method, str(request.url), headers=request.headers)
        self.payload = _Fields(query + form)
        self._form = dict(form)

    @classmethod
    async def read(cls, request: Request) -> "_Asked":
        query, body = request.url.query, (await request.body()).decode()
        request.scope["query_string"] = (
            b""  # what uvicorn logs in our process must not be mistaken for the client's log
        )
        return cls(request, parse_qsl(query, True), parse_qsl(body, True))

    @property
    def form(self) -> dict[str, str]:
        return self._form


class _Client:
    def __init__(self, provider: ProviderServer) -> None:
        self._provider = provider

    def get_client_id(self) -> str:
        return self._provider.client_id

    def get_default_redirect_uri(self) -> None:
        return None

    def get_allowed_scope(self, scope: str | None) -> str:
        return scope or ""

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return redirect_uri.startswith("http://127.0.0.1:") and redirect_uri.endswith("/oauth/callback")

    def check_client_secret(self, client_secret: str) -> bool:
        return secrets.compare_digest(client_secret, self._provider.client_secret)

    def check_endpoint_auth_method(self, method: str, _endpoint: str) -> bool:
        return method == self._provider.token_auth

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type != "refresh_token" or self._provider.gives_refresh_tokens


class _Authlib(AuthorizationServer):  # type: ignore[misc]
    def __init__(self, provider: ProviderServer) -> None:
        super().__init__(scopes_supported=["read", "write"])
        self.provider = provider
        self.register_token_generator("default", self._generate)
        self.register_grant(_CodeGrant, [_OnlyS256()])
        self.register_grant(_RefreshGrant)

    def _generate(self, scope: str, include_refresh_token: bool, **_: object) -> dict[str, Any]:
        return self.provider.issue(scope, include_refresh_token)

    def query_client(self, client_id: str) -> _Client | None:
        return _Client(self.provider) if client_id == self.provider.client_id else None

    def save_token(self, token: dict[str, Any], request: OAuth2Request) -> None:
        self.provider.keep(request.authorization_code or request.refresh_token, token)

    def send_signal(self, *_: object, **__: object) -> None:
        pass

    def create_oauth2_request(self, request: _Asked) -> _Asked:
        return request

    def handle_response(self, status: int, body: Any, headers: list[tuple[str, str]]) -> Response:
        return _respond(status, body, headers)


class _CodeGrant(grants.AuthorizationCodeGrant):  # type: ignore[misc]
    TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic", "client_secret_post", "none")

    def generate_authorization_code(self) -> str:
        asked = self.request
        challenge = asked.payload.data["code_challenge"], asked.payload.data["code_challenge_method"]
        code: str = self.server.provider.issue_code(
            Consent(asked.user, asked.scope, asked.payload.redirect_uri, *challenge)
        )
        return code

    def save_authorization_code(self, code: str, request: OAuth2Request) -> None:
        pass  # it is saved when it is made

    def query_authorization_code(self, code: str, _client: _Client) -> Consent | None:
        consent: Consent | None = self.server.provider.use_code(code)
        return consent

    def delete_authorization_code(self, consent: Consent) -> None:
        consent.code_used = True

    def authenticate_user(self, consent: Consent) -> str:
        return consent.user


class _RefreshGrant(grants.RefreshTokenGrant):  # type: ignore[misc]
    TOKEN_ENDPOINT_AUTH_METHODS = _CodeGrant.TOKEN_ENDPOINT_AUTH_METHODS

    @property
    def INCLUDE_NEW_REFRESH_TOKEN(self) -> bool:  # noqa: N802 - Authlib's name
        rotates: bool = self.server.provider.rotates
        return rotates

    def authenticate_refresh_token(self, refresh_token: str) -> Consent | None:
        consent: Consent | None = self.server.provider.use_refresh_token(refresh_token)
        return consent

    def authenticate_user(self, consent: Consent) -> str:
        return consent.user

    def revoke_old_credential(self, _consent: Consent) -> None:
        pass  # done when the new one is kept


class _OnlyS256(CodeChallenge):  # type: ignore[misc]
    SUPPORTED_CODE_CHALLENGE_METHOD = ("S256",)

    def validate_code_challenge(self, grant: Any, redirect_uri: str) -> None:
        if not grant.request.payload.data.get("code_challenge_method"):
            raise InvalidRequestError("PKCE is required.")
        super().validate_code_challenge(grant, redirect_uri)


def _respond(status: int, body: Any, headers: list[tuple[str, str]]) -> Response:
    return (
        JSONResponse(body, status, dict(headers)) if isinstance(body, dict) else Response(body, status, dict(headers))
    )


def _consent_page(fields: dict[str, str]) -> str:
    hidden = "".join(
        f'<input type="hidden" name="{html.escape(name)}" value="{html.escape(value)}">'
        for name, value in fields.items()
    )
    return f'<form method="post" action="/authorize">{hidden}<input name="user"><button>Allow</button></form>'
