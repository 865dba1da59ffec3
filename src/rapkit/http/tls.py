"""TLS for a server, and the client certificates it asks for."""

import ssl
from dataclasses import dataclass
from typing import Any

from rapkit.delivery.client_certificate import check_certificate


@dataclass(frozen=True, slots=True)
class Tls:
    """The certificate of a server and its key, as PEM files. `client_ca` has the authorities whose client certificates are accepted.

    With a `client_ca`, peers have to present a certificate, unless it is `optional`, for servers with unauthenticated endpoints.
    """

    cert: str
    key: str | None = None
    client_ca: str | None = None
    optional: bool = False

    def __post_init__(self) -> None:
        """Refuse files that cannot be used."""
        check_certificate(self.cert, self.key, self.client_ca)

    @property
    def uvicorn_options(self) -> dict[str, Any]:
        """What uvicorn is to be configured with."""
        options: dict[str, Any] = {"ssl_certfile": self.cert, "ssl_keyfile": self.key}
        if self.client_ca is not None:
            options["ssl_ca_certs"] = self.client_ca
            options["ssl_cert_reqs"] = ssl.CERT_OPTIONAL if self.optional else ssl.CERT_REQUIRED
        return options
