"""`Server`: a tool server that an agent may use."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from rapkit.delivery.client_certificate import ClientCertificate
from rapkit.delivery.request_signer import SigV4
from rapkit.errors import ConfigError
from rapkit.http.authentication import is_loopback_host
from rapkit.protocol import ToolsetDocument
from rapkit.secret import read_bearer, read_secret

_NO_LOGIN = "The URL of a tool server holds no user name or password. Give the server a token."


@dataclass(frozen=True, slots=True)
class Server:
    """A tool server by its base URL.

    `token` is shown to it as a bearer token: `env:VARIABLE`, `file:path` or the token itself. `prefix` comes before the names of its tools,
    for the model only. Plain http to another machine has to be allowed with `allow_http` (TRA-2). Threads remember a server by its `name`,
    which is its URL unless it is given another: give it one if the URL may change. With a `webhook_secret`, or several while they are
    rotated, its callbacks are taken only if they are signed with one (Standard Webhooks); each is written like a token.
    `auth` is another way to prove who we are: `SigV4` signs every request, `ClientCertificate` is shown to the URL's own origin.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    prefix: str = ""
    allow_http: bool = False
    name: str = ""
    webhook_secret: str | Sequence[str] = field(default=(), repr=False)
    auth: SigV4 | ClientCertificate | None = None

    def __post_init__(self) -> None:
        """Refuse what is no base URL."""
        try:
            parts = urlsplit(self.url)
            _ = parts.port
        except ValueError as error:
            said = "" if "@" in self.url else f"{self.url!r} is not the URL of a tool server: {error}."
            raise ConfigError(said or _NO_LOGIN) from None
        if "@" in self.url and (parts.username is not None or not parts.hostname):  # and it is not repeated here
            raise ConfigError(_NO_LOGIN)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ConfigError(f"{self.url!r} is not the URL of a tool server. Write it like http://127.0.0.1:8001.")
        if not self.name.isprintable():
            raise ConfigError(f"{self.name!r} cannot name a server: it has characters that cannot be printed.")
        if parts.scheme == "http" and not is_loopback_host(parts.hostname) and not self.allow_http:
            raise ConfigError(
                f"{self.url} is plain http to another machine: anybody on the way could read and change what is said. "
                "Use https, or say allow_http for a network you trust."
            )
        if self.token is not None and isinstance(self.auth, SigV4):
            raise ConfigError(f"{self.url} has a token and SigV4, and both are sent as Authorization. Leave one out.")
        if self.certificate is not None and parts.scheme == "http":
            raise ConfigError(f"{self.url} is plain http, where no client certificate can be shown. Use https.")

    @property
    def base(self) -> str:
        """The base URL without a trailing slash."""
        return self.url.rstrip("/")

    @property
    def key(self) -> str:
        """Under which name threads remember it."""
        return self.name or self.base

    @property
    def is_local(self) -> bool:
        """Whether it runs on this machine."""
        return is_loopback_host(urlsplit(self.url).hostname or "")

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return _origin(self.url)

    def endpoint(self, document: ToolsetDocument) -> str:
        """Where its tools are invoked."""
        return document.endpoint

    def answer_url(self, document: ToolsetDocument | None, response_url: str) -> str | None:
        """Where a user's choice is sent that one of its tools asked for; None if that is none of its own places."""
        own = [self.base] if document is None else [self.base, document.endpoint]
        return response_url if _origin(response_url) in map(_origin, own) else None

    @property
    def signs(self) -> bool:
        """Whether its callbacks have to be signed."""
        return bool(self.webhook_secret)

    def webhook_secrets(self) -> list[str]:
        """What its callbacks are signed with; read when it is needed, as the token is."""
        return [read_secret(each) for each in _sequence(self.webhook_secret)]

    async def headers(self, method: str, url: str, body: bytes = b"") -> dict[str, str]:
        """What proves to the server who sends this very request, now; `ConfigError` if a secret cannot be read (TRA-3).

        Secrets are read when they are needed, so that a rotated one is found.
        """
        if isinstance(self.auth, SigV4):
            return await self.auth.headers(method, url, body)
        return {} if self.token is None else {"authorization": f"Bearer {read_bearer(self.token)}"}

    @property
    def certificate(self) -> ClientCertificate | None:
        """The client certificate that is shown to it."""
        return self.auth if isinstance(self.auth, ClientCertificate) else None

    @property
    def advice_when_refused(self) -> str:
        """What to do when the server answers that it does not know us."""
        if isinstance(self.auth, SigV4):
            return "Are the AWS credentials, the region and the service right, and the clock?"
        if self.token is not None:
            return "Is its token right?"
        if self.auth is None:
            return "Give the agent credentials for it: a token, SigV4 or a client certificate."
        return "Does it know the name in the client certificate?"


def _sequence(given: str | Sequence[str]) -> Sequence[str]:
    return [given] if isinstance(given, str) else given


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower()
