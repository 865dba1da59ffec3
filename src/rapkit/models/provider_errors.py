"""Explain a provider's failure in one sentence, and decide whether to retry."""

import os
import re
from collections.abc import Iterable
from typing import Any

from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelAPIError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRequestRejectedError,
    ModelRequestTimeout,
    ModelUnavailableError,
    UserError,
)

from rapkit.models.errors import ModelError

MAX_WORDS = 300

_WORTH_RETRYING = {408, 409, 429}
_LOOKS_SECRET = re.compile(r"\b(?:sk|pk|rk|xai|gsk|AIza)[-_][\w.*-]{6,}|\b(?i:bearer)\s+\S+|(?<=key provided: )\S+")
_SECRET_NAMES = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
_SHORTEST_SECRET = 8


def explain_error(error: Exception, provider: str, secrets: Iterable[str] = ()) -> ModelError:
    """Say what a failed request means. Nothing of a key is in the text, whatever the provider quotes."""
    if isinstance(error, ModelHTTPError):
        retryable = error.status_code in _WORTH_RETRYING or error.status_code >= 500
        text = f"{provider} answered {error.status_code}: {_message(error.body) or 'without saying why'}"
        if error.suggested_model_id:
            text += f" (did you mean {error.suggested_model_id!r}?)"
    elif isinstance(error, ModelRequestTimeout):
        retryable, text = True, f"{provider} did not answer within {error.timeout:g} seconds"
    elif isinstance(error, ModelConnectionError):
        retryable, text = True, f"The connection to {provider} failed: {error.message}"
    elif isinstance(error, ModelAPIError):
        retryable, text = True, f"{provider} failed: {_message(error.body) or error.message}"
    elif isinstance(error, UserError):
        retryable, text = False, f"{provider} cannot be asked this: {error.message}"
    elif isinstance(error, ContentFilterError):
        retryable, text = False, f"{provider} withheld its answer: {error.message}"
    else:
        retryable, text = True, f"{provider} failed with {type(error).__name__}: {error}"
    # A quota that is used up comes as a 429 too, but waiting does not fill it.
    if isinstance(error, ModelQuotaExceededError | ModelRequestRejectedError):
        retryable = False
    elif isinstance(error, ModelUnavailableError):
        retryable = True
    retry_after = error.retry_after if isinstance(error, ModelAPIError) else None
    return ModelError(
        sentence(text, secrets),
        retryable=retryable,
        retry_after=retry_after if retryable else None,
        too_long=isinstance(error, ModelContextWindowExceededError),
    )


def _message(body: object) -> str:
    """The words in what a provider answered: most wrap them as error.message."""
    inner: Any = body
    while isinstance(inner, dict):
        inner = next((inner[key] for key in ("error", "message", "detail") if inner.get(key)), "")
    return inner if isinstance(inner, str) else ""


def sentence(text: str, secrets: Iterable[str] = ()) -> str:
    """The text on one line, not too long, and without anything that is a key or looks like one."""
    for secret in {*secrets, *_secrets_around()}:
        # Keys with a line break at the end are a common mistake, and the complaint about them quotes them.
        text = text.replace(secret.strip(), "…") if secret.strip() else text
    text = " ".join(_LOOKS_SECRET.sub("…", text).split())
    text = text if len(text) <= MAX_WORDS else text[:MAX_WORDS].rstrip() + "…"
    return text if text.endswith((".", "!", "?", "…")) else text + "."


def _secrets_around() -> Iterable[str]:
    return (
        value for name, value in os.environ.items() if name.endswith(_SECRET_NAMES) and len(value) >= _SHORTEST_SECRET
    )
