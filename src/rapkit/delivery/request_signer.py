"""`SigV4`: AWS Signature Version 4 for requests to a tool server behind API Gateway, a Lambda function URL and the like."""

import asyncio
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from pyreqwest.http import Url

from rapkit.errors import ConfigError
from rapkit.extras import how_to_install
from rapkit.secret import read_secret

ALGORITHM = "AWS4-HMAC-SHA256"
TIME_FORMAT = "%Y%m%dT%H%M%SZ"
_EXAMPLES = {"region": "eu-central-1", "service": "execute-api"}


class _CredentialChain:
    """The credentials that botocore finds: environment, profile, container, instance. It renews them when they expire."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._credentials: Any = None

    def get(self) -> tuple[str, str, str | None]:
        """Access key id, secret access key and session token. May take seconds, when they are fetched or renewed over the network."""
        from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped]
        from botocore.session import Session  # type: ignore[import-untyped]

        try:
            with self._lock:
                self._credentials = self._credentials or Session().get_credentials()
            if self._credentials is None:
                raise ConfigError(
                    "There are no AWS credentials: botocore finds none in the environment, in ~/.aws or on this machine. "
                    "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE, or give SigV4 an access_key and a secret_key."
                )
            frozen = self._credentials.get_frozen_credentials()
        except BotoCoreError as error:
            raise ConfigError(f"AWS credentials cannot be had: {error}") from None
        return frozen.access_key, frozen.secret_key, frozen.token


@dataclass(frozen=True, slots=True)
class SigV4:
    """Sign requests to a tool server with AWS Signature Version 4.

    `service` is "execute-api" for API Gateway, "lambda" for Lambda function URLs, "vpc-lattice-svcs" for VPC Lattice. The credentials are
    those that botocore finds, or `access_key` and `secret_key`: each the value itself, `env:VARIABLE` or `file:path`. They are read when a
    request is signed, and each attempt is signed anew. Needs the extra `aws`.
    """

    region: str
    service: str = "execute-api"
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    _chain: _CredentialChain = field(default_factory=_CredentialChain, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse what cannot sign, and say how to install what signs."""
        check_installed()
        for name, value in (("region", self.region), ("service", self.service)):
            if not (value.isascii() and value.replace("-", "").isalnum()):
                raise ConfigError(f"{value!r} is not an AWS {name}. Write it like {_EXAMPLES[name]}.")
        if (self.access_key is None) != (self.secret_key is None):
            raise ConfigError(
                "SigV4 needs both access_key and secret_key, or neither to use the credentials botocore finds."
            )

    async def headers(self, method: str, url: str, body: bytes) -> dict[str, str]:
        """`sign`, without holding up the event loop while credentials are fetched."""
        if self.access_key is not None:
            return self.sign(method, url, body)
        return await asyncio.to_thread(self.sign, method, url, body)

    def sign(self, method: str, url: str, body: bytes) -> dict[str, str]:
        """The headers that sign a request, which has to be sent now; `ConfigError` if there are no credentials.

        A POST is signed as JSON: it must be sent with `Content-Type: application/json`.
        """
        from rapkit.delivery.sigv4 import Signable, body_hash, signature

        access_key, secret_key, session_token = self._credentials()
        time = datetime.now(UTC).strftime(TIME_FORMAT)
        target = urlsplit(str(Url(url)))  # as it is on the wire: encoded, without the default port
        added = {"x-amz-content-sha256": body_hash(body), "x-amz-date": time}
        if session_token:
            added["x-amz-security-token"] = session_token
        signed = {"host": target.netloc, **({"content-type": "application/json"} if method == "POST" else {}), **added}
        request = Signable(
            method, target.path or "/", target.query, tuple(sorted(signed.items())), added["x-amz-content-sha256"]
        )
        found = signature(request, time=time, region=self.region, service=self.service, secret_key=secret_key)
        scope = f"{access_key}/{time[:8]}/{self.region}/{self.service}/aws4_request"
        added["authorization"] = (
            f"{ALGORITHM} Credential={scope}, SignedHeaders={';'.join(sorted(signed))}, Signature={found}"
        )
        return added

    def _credentials(self) -> tuple[str, str, str | None]:
        if self.access_key is None or self.secret_key is None:
            return self._chain.get()
        return read_secret(self.access_key), read_secret(self.secret_key), None


def check_installed() -> None:
    """`ConfigError` if botocore is not installed, with how to do that."""
    if find_spec("botocore") is None:
        raise ConfigError(f"AWS signatures need botocore, which is not installed. Run: {how_to_install('aws')}")
