"""Talking to a tool server from the command line."""

import contextlib
import json
import signal
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from pyreqwest.client import SyncClientBuilder
from pyreqwest.exceptions import PyreqwestError

from rapkit.errors import ConfigError, DeliveryError, InvalidToolset
from rapkit.http.callers import is_loopback_host
from rapkit.printable import printable
from rapkit.protocol import ToolsetDocument, parse_toolset
from rapkit.secret import read_bearer

_DISCOVERY = "/.well-known/rap-toolset"
_PATIENCE = timedelta(seconds=15)
_NEEDS_A_TOKEN = (401, 403)


def read_token(given: str | None) -> str | None:
    """The token a --token option refers to, if it was given."""
    if given is None:
        return None
    if not given:
        raise ConfigError("--token is empty. Give env:VARIABLE, file:PATH or the token itself.")
    return read_bearer(given)


def fetch_toolset(base_url: str, token: str | None) -> ToolsetDocument:
    """What the server at this base URL offers."""
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        example = f"http://{base_url}" if base_url and "://" not in base_url else "http://127.0.0.1:8001"
        raise ConfigError(f"{base_url!r} is not the URL of a server. Write it like {example}.")
    url = base_url.rstrip("/") + _DISCOVERY
    try:
        status, body = _request("GET", url, None, token)
    except (PyreqwestError, ValueError) as error:
        raise _unreachable(base_url, error) from None
    if status in _NEEDS_A_TOKEN:
        raise DeliveryError(f"{url} answered {status}. {'Is the token right?' if token else 'Give it a --token.'}")
    if status == 503:
        raise DeliveryError(f"{url} {explain(status, body.decode(errors='replace'))}")
    if status != 200:
        raise DeliveryError(f"{url} answered {status}. Is there a RAP tool server at {base_url}?")
    try:
        return parse_toolset(body)
    except InvalidToolset as error:
        problems = "\n".join(f"  {line}" for line in str(error).splitlines())
        raise InvalidToolset(f"{url} is not a valid toolset:\n{problems}") from None


def post(url: str, message: dict[str, Any], token: str | None) -> tuple[int, str]:
    """The status and the text of the answer."""
    try:
        status, body = _request("POST", url, message, token)
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


def _request(method: str, url: str, message: dict[str, Any] | None, token: str | None) -> tuple[int, bytes]:
    builder = SyncClientBuilder().timeout(_PATIENCE).user_agent("rapkit")
    if is_loopback_host(urlsplit(url).hostname or ""):
        builder = builder.no_proxy()
    if token:
        builder = builder.default_headers({"Authorization": f"Bearer {token}"})
    with builder.build() as client, _killed_by_ctrl_c():
        request = client.request(method, url).header("Accept", "application/json")
        response = (request if message is None else request.body_json(message)).build().send()
        return response.status, response.bytes().to_bytes()


@contextlib.contextmanager
def _killed_by_ctrl_c() -> Iterator[None]:
    # The client does not hear signals while it waits, so Python would get to its handler only after the answer. The asynchronous one does,
    # but its threads outlive the event loop and now and then abort an interpreter that ends soon after (pyreqwest 0.15).
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _unreachable(url: str, error: Exception) -> DeliveryError:
    return DeliveryError(f"{url} cannot be reached: {_innermost(error)}. Is the server running there?")


def _innermost(error: Exception) -> str:
    details = getattr(error, "details", None)
    causes = details.get("causes") if isinstance(details, dict) else None
    return str(causes[-1]["message"]) if causes else str(error)
