"""`ClientCertificate`: the certificate that authenticates this side of a TLS connection."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pyreqwest.client import BaseClientBuilder

from rapkit.errors import ConfigError

B = TypeVar("B", bound=BaseClientBuilder)


@dataclass(frozen=True, slots=True)
class LoadedCertificate:
    """A client certificate as it was read."""

    identity: bytes = field(repr=False)
    roots: bytes | None = None

    def configure(self, builder: B) -> B:
        """Have a client show it, and trust its roots besides those of this machine."""
        builder = builder.identity_pem(self.identity)
        return builder if self.roots is None else builder.add_root_certificate_pem(self.roots)


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """Show a client certificate to a tool server (mutual TLS).

    `cert` is a PEM file with the certificate and its chain, `key` one with its private key, if that is not in the same file. `ca` is a PEM
    file with certificates to trust, for servers whose own is from a private authority. The files are read again every minute, so
    that they can be renewed while the agent runs.
    """

    cert: str
    key: str | None = None
    ca: str | None = None

    def __post_init__(self) -> None:
        """Refuse files that cannot be used."""
        check_certificate(self.cert, self.key, self.ca)
        _check_version(self.cert)

    def load(self) -> LoadedCertificate:
        """Read the files; `ConfigError` if that is not possible."""
        try:
            identity = [Path(file).read_bytes() for file in (self.cert, self.key) if file is not None]
            roots = None if self.ca is None else Path(self.ca).read_bytes()
        except OSError as error:
            raise ConfigError(f"{error.filename} cannot be read: {error.strerror}.") from None
        return LoadedCertificate(b"\n".join(identity), roots)


def check_certificate(cert: str, key: str | None, ca: str | None) -> None:
    """`ConfigError` unless the files hold a certificate and its private key, and certificates to trust."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key, password=lambda: "")  # else OpenSSL asks the terminal for one
    except (OSError, ValueError) as error:
        files = cert if key is None else f"{cert} and {key}"
        raise ConfigError(
            f"{files} cannot be used as a certificate: {_problem(error)}. It takes a certificate and its private key, "
            "as PEM and without a password."
        ) from None
    if ca is None:
        return
    try:
        context.load_verify_locations(ca)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{ca} holds no certificates to trust, as PEM: {_problem(error)}.") from None


def _check_version(cert: str) -> None:
    """`ConfigError` for X.509 version 1: our TLS library shows no such certificate, and says so only when it connects."""
    from cryptography.x509 import InvalidVersion, Version, load_pem_x509_certificate

    try:
        is_three = load_pem_x509_certificate(Path(cert).read_bytes()).version is Version.v3
    except InvalidVersion:
        is_three = False
    except (OSError, ValueError) as error:
        raise ConfigError(f"{cert} cannot be used as a certificate: {error}.") from None
    if not is_three:
        raise ConfigError(
            f"{cert} is an X.509 certificate of version 1, which cannot be shown. Make one of version 3: "
            "give `openssl x509 -req` a file of extensions with -extfile."
        )


def _problem(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it is not PEM").lower().replace("_", " ")
    return str(getattr(error, "strerror", None) or error)
