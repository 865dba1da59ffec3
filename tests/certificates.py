"""An authority of the test's own, and certificates it has signed. Nothing of it outlives the test."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key, as PEM files."""

    cert: str
    key: str


class Authority:
    """Signs certificates, which it writes into a folder; its own is the file `ca`."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), True
        )
        self.ca = str(folder / f"{name}.pem")
        Path(self.ca).write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def sign(self, file: str, common_name: str, *alternatives: x509.GeneralName) -> Pair:
        """A certificate with these names, in `<file>.pem` and `<file>.key`."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)] if common_name else [])
        builder = self._builder(subject, key)
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        pair = Pair(str(self._folder / f"{file}.pem"), str(self._folder / f"{file}.key"))
        Path(pair.cert).write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        Path(pair.key).write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return pair

    def server(self, file: str = "server") -> Pair:
        """A certificate for a server on this machine."""
        loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        return self.sign(file, "server", loopback, x509.DNSName("localhost"), x509.DNSName("tools.test"))

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
        )
