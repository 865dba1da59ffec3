"""Credentials for a tool server: a token, an AWS signature, a client certificate."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click

from rapkit.cli.options import read_token
from rapkit.delivery.client_certificate import ClientCertificate
from rapkit.delivery.request_signer import SigV4
from rapkit.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Credentials:
    """How a command proves who it is. Without anything it does not."""

    token: str | None = field(default=None, repr=False)
    sigv4: SigV4 | None = None
    certificate: ClientCertificate | None = None

    def headers(self, method: str, url: str, body: bytes) -> dict[str, str]:
        """What goes with this very request."""
        if self.sigv4 is not None:
            return self.sigv4.sign(method, url, body)
        return {} if self.token is None else {"authorization": f"Bearer {self.token}"}

    @property
    def advice_when_refused(self) -> str:
        """What to do when a server answers that it does not know us."""
        if self.sigv4 is not None:
            return "Are the AWS credentials, the region and the service right?"
        if self.token is not None:
            return "Is the token right?"
        if self.certificate is not None:
            return "Does it know the name in the certificate?"
        return "Give it credentials that it knows: --token, --sigv4 or --cert."


def credential_options(command: F) -> F:
    """The options of all that; the command gets them as `credentials`."""

    @click.option("--token", help="The token to send: env:VARIABLE, file:PATH or the token itself.")
    @click.option(
        "--sigv4",
        metavar="REGION[/SERVICE]",
        help="Sign as AWS wants it, with the credentials of the environment, like eu-central-1/lambda.  [service: execute-api]",
    )
    @click.option("--cert", metavar="FILE", type=click.Path(), help="The client certificate to show (PEM).")
    @click.option("--key", metavar="FILE", type=click.Path(), help="Its private key, if not in the same file.")
    @click.option(
        "--ca", metavar="FILE", type=click.Path(), help="With --cert: authorities to trust besides the usual ones."
    )
    @functools.wraps(command)
    def with_access(
        *args: Any,
        token: str | None,
        sigv4: str | None,
        cert: str | None,
        key: str | None,
        ca: str | None,
        **others: Any,
    ) -> Any:
        if token is not None and sigv4 is not None:
            raise ConfigError("--token and --sigv4 are both sent as Authorization. Leave one out.")
        if cert is None and (key or ca):
            raise ConfigError("--key and --ca belong to a client certificate. Give it with --cert.")
        certificate = None if cert is None else ClientCertificate(cert, key, ca)
        credentials = Credentials(
            read_token(token), None if sigv4 is None else SigV4(*sigv4.split("/", 1)), certificate
        )
        return command(*args, credentials=credentials, **others)

    return with_access  # type: ignore[return-value]
