"""A client for tool servers."""

import json
import re
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from pyreqwest.client import SyncClientBuilder
from pyreqwest.exceptions import PyreqwestError

from rapkit.cli.credentials import Credentials
from rapkit.cli.daemon_thread import run_in_daemon_thread
from rapkit.errors import ConfigError, DeliveryError, InvalidToolset
from rapkit.http.authentication import is_loopback_host
from rapkit.printable import printable
from rapkit.protocol import UsableToolset, read_toolset

_DISCOVERY = "/.well-known/rap-toolset"
_PATIENCE = 15.0
_NEEDS_A_TOKEN = (401, 403)
_PORT = re.compile(r":?([1-9][0-9]{0,4})")
_PLACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]{1,5})?(?:/[!-~]*)?")


def fetch_toolset(base_url: str, credentials: Credentials) -> UsableToolset:
    """What the server at this base URL offers, and what of that cannot be used."""
    _check_url(base_url)
    url = base_url.rstrip("/") + _DISCOVERY
    try:
        status, body = _request("GET", url, None, credentials)
    except (PyreqwestError, ValueError) as error:
        raise _unreachable(base_url, error) from None
    if status in _NEEDS_A_TOKEN:
        raise DeliveryError(f"{url} answered {status}. {credentials.advice_when_refused}")
    if status == 503:
        raise DeliveryError(f"{url} {explain(status, body.decode(errors='replace'))}")
    if status != 200:
        raise DeliveryError(f"{url} answered {status}. Is there a RAP tool server at {base_url}?")
    try:
        return read_toolset(body)
    except InvalidToolset as error:
        problems = "\n".join(f"  {line}" for line in str(error).splitlines())
        raise InvalidToolset(f"{url} is not a valid toolset:\n{problems}") from None


def post(
    url: str, message: dict[str, Any], credentials: Credentials, *, patience: float = _PATIENCE
) -> tuple[int, str]:
    """The status and the text of the answer. `DeliveryError` if none comes within `patience` seconds."""
    try:
        status, body = _request("POST", url, message, credentials, patience)
    except (PyreqwestError, ValueError) as error:
        raise _unreachable(url, error) from None
    return status, body.decode(errors="replace")


def explain(status: int, text: str) -> str:
    """A refusal in a sentence, from its problem document if there is one."""
    try:
        detail = json.loads(text)["detail"]
    except (ValueError, KeyError, TypeError):
        detail = " ".join(text.split())[:200] or "no explanation"
    return f"answered {status}: {printable(str(detail))}"


def _check_url(url: str) -> None:
    """`ConfigError` if no server can be there."""
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and bool(url.encode())
    except ValueError:  # a bracket that is not closed, a port that is no number, what is no text
        is_one = False
    if "@" in url and not (is_one and "@" not in parts.netloc):  # and it is not repeated here
        raise ConfigError("The URL of a tool server holds no user name or password. Give it a token, with --token.")
    if not is_one:
        raise ConfigError(f"{url!r} is not the URL of a server. Write it like {_meant(url)}.")


def _meant(given: str) -> str:
    """The URL that the user probably meant."""
    if port := _PORT.fullmatch(given):
        return f"http://127.0.0.1:{port[1]}"
    return f"http://{given}" if _PLACE.fullmatch(given) else "http://127.0.0.1:8001"


def _request(
    method: str, url: str, message: dict[str, Any] | None, credentials: Credentials, patience: float = _PATIENCE
) -> tuple[int, bytes]:
    # The client does not hear signals while it waits, so Python would get to its handler only after the answer. Whoever waits for a thread
    # does. (The asynchronous client's own threads now and then abort an interpreter that ends soon after: pyreqwest 0.15.)
    return run_in_daemon_thread(_request_deafly, method, url, message, credentials, patience).result()


def _request_deafly(
    method: str, url: str, message: dict[str, Any] | None, credentials: Credentials, patience: float
) -> tuple[int, bytes]:
    builder = SyncClientBuilder().timeout(timedelta(seconds=patience)).user_agent("rapkit")
    if is_loopback_host(urlsplit(url).hostname or ""):
        builder = builder.no_proxy()
    if credentials.certificate is not None:
        builder = credentials.certificate.load().configure(builder)
    body = b"" if message is None else json.dumps(message).encode()
    with builder.build() as client:
        request = client.request(method, url).header("Accept", "application/json")
        if body:
            request = request.header("Content-Type", "application/json").body_bytes(body)
        response = request.headers(credentials.headers(method, url, body)).build().send()
        return response.status, response.bytes().to_bytes()


def _unreachable(url: str, error: Exception) -> DeliveryError:
    return DeliveryError(f"{url} cannot be reached: {_innermost(error)}. Is the server running there?")


def _innermost(error: Exception) -> str:
    details = getattr(error, "details", None)
    causes = details.get("causes") if isinstance(details, dict) else None
    return str(causes[-1]["message"]) if causes else str(error)
