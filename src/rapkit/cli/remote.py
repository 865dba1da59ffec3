"""Talking to a tool server from the command line."""

import json
from datetime import timedelta
from typing import Any

from pyreqwest.client import SyncClient, SyncClientBuilder
from pyreqwest.exceptions import PyreqwestError

from rapkit.errors import DeliveryError
from rapkit.protocol import ToolsetDocument, parse_toolset

_DISCOVERY = "/.well-known/rap-toolset"
_PATIENCE = timedelta(seconds=15)


def fetch_toolset(base_url: str, token: str | None) -> ToolsetDocument:
    """What the server at this base URL offers."""
    url = base_url.rstrip("/") + _DISCOVERY
    with _client(token) as client:
        try:
            response = client.get(url).header("Accept", "application/json").build().send()
            status, body = response.status, response.bytes().to_bytes()
        except (PyreqwestError, ValueError) as error:
            raise _unreachable(base_url, error) from None
    if status != 200:
        raise DeliveryError(f"{url} answered {status}. Is there a RAP tool server at {base_url}?")
    return parse_toolset(body)


def post(url: str, message: dict[str, Any], token: str | None) -> tuple[int, str]:
    """The status and the text of the answer."""
    with _client(token) as client:
        try:
            response = client.post(url).body_json(message).build().send()
            return response.status, response.text()
        except (PyreqwestError, ValueError) as error:
            raise _unreachable(url, error) from None


def explain(status: int, text: str) -> str:
    """A refusal in a sentence, from its problem document if there is one."""
    try:
        detail = json.loads(text)["detail"]
    except (ValueError, KeyError, TypeError):
        detail = text.strip()[:200] or "no explanation"
    return f"answered {status}: {detail}"


def _client(token: str | None) -> SyncClient:
    builder = SyncClientBuilder().timeout(_PATIENCE).user_agent("rapkit")
    if token:
        builder = builder.default_headers({"Authorization": f"Bearer {token}"})
    return builder.build()


def _unreachable(url: str, error: Exception) -> DeliveryError:
    return DeliveryError(f"{url} cannot be reached: {_innermost(error)}. Is the server running there?")


def _innermost(error: Exception) -> str:
    details = getattr(error, "details", None)
    causes = details.get("causes") if isinstance(details, dict) else None
    return str(causes[-1]["message"]) if causes else str(error)
