"""Make one HTTP request as an agent would, from a thread of its own."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlsplit

from pyreqwest.client import SyncClientBuilder
from pyreqwest.exceptions import PyreqwestError, RequestTimeoutError

from rapkit.delivery.client_certificate import ClientCertificate
from rapkit.delivery.guard import Target
from rapkit.errors import DeliveryError

_PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class Response:
    """What came back. `date` is what the other side's clock said, in its own words."""

    status: int
    body: bytes
    date: str | None


def fetch(url: str, headers: Mapping[str, str] | None = None, certificate: ClientCertificate | None = None) -> Response:
    """GET it, without proxies and without following redirects, as agents do. `DeliveryError` names the origin alone."""
    return _send("GET", url, headers or {}, None, _builder(url, certificate))


def post(
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    target: Target,
    address: str,
    certificate: ClientCertificate | None = None,
) -> Response:
    """POST JSON in the same way, to an address that was judged before."""
    builder = _builder(url, certificate)
    if address != target.host:
        builder = builder.resolve(target.host, address, target.port)
    return _send("POST", url, {"content-type": "application/json", **headers}, body, builder)


def _builder(url: str, certificate: ClientCertificate | None) -> SyncClientBuilder:
    # Not the asynchronous client: its threads now and then abort an interpreter that ends soon after (pyreqwest 0.15).
    builder = SyncClientBuilder().user_agent("rapkit").timeout(timedelta(seconds=_PATIENCE)).follow_redirects(False)
    if urlsplit(url).scheme == "http":
        builder = builder.danger_accept_invalid_certs(True)  # there are none: this spares us loading those to trust
    elif certificate is not None:
        builder = certificate.load().configure(builder)
    return builder.no_proxy()


def _send(
    method: str, url: str, headers: Mapping[str, str], body: bytes | None, builder: SyncClientBuilder
) -> Response:
    parts = urlsplit(url)
    try:
        with builder.build() as client:
            request = client.request(method, url).headers(headers)
            answer = (request if body is None else request.body_bytes(body)).build().send()
            return Response(answer.status, answer.bytes().to_bytes(), answer.get_header("date"))
    except RequestTimeoutError:
        raise DeliveryError(f"{parts.scheme}://{parts.netloc}: no answer within {_PATIENCE:g} s.") from None
    except (PyreqwestError, ValueError) as error:
        raise DeliveryError(f"{parts.scheme}://{parts.netloc}: {_innermost(error)}.") from None


def _innermost(error: Exception) -> str:
    details = getattr(error, "details", None)
    causes = details.get("causes") if isinstance(details, dict) else None
    return str(causes[-1]["message"]) if causes else str(error)
