"""One request, made the way an agent makes it, from a thread of its own."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlsplit

from pyreqwest.client import SyncClientBuilder
from pyreqwest.exceptions import PyreqwestError, RequestTimeoutError

from rapkit.errors import DeliveryError

_PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class Response:
    """What came back. `date` is what the other side's clock said, in its own words."""

    status: int
    body: bytes
    date: str | None


def fetch(url: str, headers: Mapping[str, str] | None = None) -> Response:
    """GET it, without proxies and without following redirects, as agents do. `DeliveryError` names the origin alone."""
    # Not the asynchronous client: its threads now and then abort an interpreter that ends soon after (pyreqwest 0.15).
    parts = urlsplit(url)
    builder = SyncClientBuilder().user_agent("rapkit").timeout(timedelta(seconds=_PATIENCE)).follow_redirects(False)
    if parts.scheme == "http":
        builder = builder.danger_accept_invalid_certs(True)  # there are none: this spares us loading those to trust
    try:
        with builder.no_proxy().build() as client:
            answer = client.get(url).headers(headers or {}).build().send()
            return Response(answer.status, answer.bytes().to_bytes(), answer.get_header("date"))
    except RequestTimeoutError:
        raise DeliveryError(f"{parts.scheme}://{parts.netloc}: no answer within {_PATIENCE:g} s.") from None
    except (PyreqwestError, ValueError) as error:
        raise DeliveryError(f"{parts.scheme}://{parts.netloc}: {_innermost(error)}.") from None


def _innermost(error: Exception) -> str:
    details = getattr(error, "details", None)
    causes = details.get("causes") if isinstance(details, dict) else None
    return str(causes[-1]["message"]) if causes else str(error)
