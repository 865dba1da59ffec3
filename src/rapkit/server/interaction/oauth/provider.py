"""`OAuthProvider`: an OAuth 2 provider, as a tool author declares it."""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal, get_args
from urllib.parse import urlsplit

from rapkit.errors import ConfigError
from rapkit.secret import read_secret

TokenAuth = Literal["client_secret_basic", "client_secret_post", "none"]

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_VISIBLE = re.compile(r"[!-~]+")
_OURS = frozenset(
    ("response_type", "client_id", "redirect_uri", "scope", "state", "code_challenge", "code_challenge_method")
)


@dataclass(frozen=True, slots=True)
class OAuthProvider:
    """Where users give their consent, and who we are there.

    `client_id` and `client_secret` may be `env:VARIABLE` or `file:path`; then they are read when the server starts. `token_auth` says how
    the secret is sent: "none" is for public clients, which have none. `authorize_params` are added to the URL the user is sent to.
    """

    name: str
    _: KW_ONLY
    authorize_url: str
    token_url: str
    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    scopes: Sequence[str] = ()
    authorize_params: Mapping[str, str] = field(default_factory=dict)
    token_auth: TokenAuth = "client_secret_basic"  # noqa: S105 - a method, no password

    def __post_init__(self) -> None:
        """Refuse what could not work, or would not be safe."""
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"{self.name!r} is no name for an OAuth provider: use 1 to 64 letters, digits, dots, hyphens and underscores."
            )
        self._check_url("authorize_url", self.authorize_url)
        # The path of a token URL is logged by HTTP libraries; whatever follows it may not be meant for that.
        self._check_url("token_url", self.token_url, query=False)
        if not _VISIBLE.fullmatch(self.client_id):
            raise self._wrong("client_id is empty or has characters that no client id has")
        if isinstance(self.scopes, str) or not all(_VISIBLE.fullmatch(scope) for scope in self.scopes):
            raise self._wrong('scopes is a list of words, such as ["repo", "read:user"]')
        object.__setattr__(self, "scopes", tuple(self.scopes))
        object.__setattr__(self, "authorize_params", dict(self.authorize_params))
        if ours := _OURS & self.authorize_params.keys():
            raise self._wrong(f"authorize_params cannot set {', '.join(sorted(ours))}: rapkit does")
        if self.token_auth not in get_args(TokenAuth):
            raise self._wrong(f"token_auth is one of {', '.join(get_args(TokenAuth))}, not {self.token_auth!r}")
        if (self.token_auth == "none") != (self.client_secret is None):  # noqa: S105
            raise self._wrong(
                'give a client_secret, or say token_auth="none" if the client is a public one and has none'
            )

    @classmethod
    def github(
        cls, client_id: str, client_secret: str, *, scopes: Sequence[str] = (), name: str = "github"
    ) -> "OAuthProvider":
        """An OAuth app or a GitHub App on github.com."""
        return cls(
            name,
            authorize_url="https://github.com/login/oauth/authorize",
            token_url="https://github.com/login/oauth/access_token",  # noqa: S106
            client_id=client_id,
            client_secret=client_secret,
            scopes=scopes,
            token_auth="client_secret_post",  # noqa: S106
        )

    @classmethod
    def google(
        cls, client_id: str, client_secret: str, *, scopes: Sequence[str], name: str = "google"
    ) -> "OAuthProvider":
        """A web application on Google. Without `prompt=consent` it gives a refresh token only to those who come for the first time."""
        return cls(
            name,
            authorize_url="https://accounts.google.com/o/oauth2/v2/auth",
            token_url="https://oauth2.googleapis.com/token",  # noqa: S106
            client_id=client_id,
            client_secret=client_secret,
            scopes=scopes,
            authorize_params={"access_type": "offline", "prompt": "consent"},
            token_auth="client_secret_post",  # noqa: S106
        )

    def read_id(self) -> str:
        """The client's id itself. `ConfigError` if there is none where it should come from."""
        found = read_secret(self.client_id)
        if not _VISIBLE.fullmatch(found):
            raise self._wrong("the client id is empty or has characters that no client id has, such as spaces")
        return found

    def read_secret(self) -> str | None:
        """The client's secret itself. `ConfigError`, without a word of it, if there is none where it should come from."""
        if self.client_secret is None:
            return None
        secret = read_secret(self.client_secret)
        if not _VISIBLE.fullmatch(secret):
            raise self._wrong("the client secret is empty or has characters that no client secret has, such as spaces")
        return secret

    def _check_url(self, field_name: str, url: str, *, query: bool = True) -> None:
        try:
            parts = urlsplit(url)
            host = parts.hostname
            _ = parts.port  # it is checked when it is asked for
        except ValueError:
            raise self._wrong(f"{field_name} is no URL") from None
        if not host or not _VISIBLE.fullmatch(url) or parts.scheme not in ("https", "http") or "@" in parts.netloc:
            raise self._wrong(f"{field_name} is an absolute https URL without a user name or password")
        if parts.scheme == "http" and not _is_loopback(host):
            raise self._wrong(f"{field_name} must be https: over http secrets may only go to this machine itself")
        if "#" in url or (not query and "?" in url):
            raise self._wrong(f"{field_name} has {'no fragment' if query else 'neither a query nor a fragment'}")

    def _wrong(self, what: str) -> ConfigError:
        return ConfigError(f"OAuth provider {self.name!r}: {what}.")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
