"""AWS Signature Version 4 as botocore computes it, shared by the client that signs and the server that verifies.

Imported only where it is needed: botocore comes with the extra `aws`, and takes a tenth of a second to load.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import unquote

from botocore.auth import SigV4Auth  # type: ignore[import-untyped]
from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
from botocore.credentials import Credentials  # type: ignore[import-untyped]

_BODY_HASH = "body_hash"


@dataclass(frozen=True, slots=True)
class Signable:
    """What a signature covers: path and query as they are on the wire, of the headers only those to be signed, the hash of the body."""

    method: str
    path: str
    query: str
    headers: tuple[tuple[str, str], ...]
    body_hash: str


def body_hash(body: bytes) -> str:
    """The hash of a body, as it stands in `x-amz-content-sha256`."""
    return sha256(body).hexdigest()


def signature(request: Signable, *, time: str, region: str, service: str, secret_key: str) -> str:
    """The signature of a request, in hexadecimal. `time` is that of its `x-amz-date`."""
    signer = _Signer(Credentials("", secret_key), service, region)
    aws_request = AWSRequest(request.method, f"https://host.invalid{request.path}", params=_pairs(request.query))
    aws_request.context = {"timestamp": time, _BODY_HASH: request.body_hash}
    for name, value in request.headers:
        aws_request.headers[name] = value  # which adds to those of the same name
    # Not add_auth: it reads the clock, and logs the headers it signs, session tokens included.
    canonical = signer.canonical_request(aws_request)
    found: str = signer.signature(signer.string_to_sign(aws_request, canonical), aws_request)
    return found


class _Signer(SigV4Auth):  # type: ignore[misc]
    """Botocore's signer, told which headers to sign: another signer may have chosen others than it would."""

    def headers_to_sign(self, request: Any) -> Any:
        return request.headers

    def payload(self, request: Any) -> Any:
        return request.context[_BODY_HASH]


def _pairs(query: str) -> list[tuple[str, str]]:
    """The parameters of a query, decoded: botocore encodes them in the one way that counts."""
    return [(unquote(name), unquote(value)) for name, _, value in _split(query)]


def _split(query: str) -> Iterable[tuple[str, str, str]]:
    return (pair.partition("=") for pair in query.split("&") if pair)
