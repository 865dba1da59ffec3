"""Responses of the client API: documents and problem documents."""

import logging
from dataclasses import dataclass
from http import HTTPStatus

from pydantic import BaseModel
from starlette.types import Receive, Send

from rapkit.errors import ConfigError, RapkitError, ThreadError, UnknownThread
from rapkit.http.requests import Headers, Refusal, retry_later, send_answer
from rapkit.runtime.api.schemas import Problem
from rapkit.runtime.thread_commands import KeyReused, NoSuchChoice, UnknownCall

_RETRY_WHEN_STORE_FAILS = 5
_JSON = (b"content-type", b"application/json")
_PROBLEM = (b"content-type", b"application/problem+json")

log = logging.getLogger("rapkit.api")


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """A complete response."""

    status: int
    body: bytes = b""
    headers: Headers = ()

    async def send(self, _receive: Receive, send: Send) -> None:
        """Send it."""
        await send_answer(send, self.status, self.body, self.headers)


def document_response(document: BaseModel, status: int = 200, headers: Headers = ()) -> ApiResponse:
    """A document."""
    return json_response(document.model_dump_json().encode(), status, headers)


def json_response(body: bytes, status: int = 200, headers: Headers = ()) -> ApiResponse:
    """A document that is written already."""
    return ApiResponse(status, body, (_JSON, *headers))


def problem_response(refusal: Refusal) -> ApiResponse:
    """A problem document."""
    document = Problem(
        title=HTTPStatus(refusal.status).phrase, status=refusal.status, detail=refusal.detail
    ).model_dump_json()
    return ApiResponse(refusal.status, document.encode(), (_PROBLEM, *refusal.headers))


def refusal_of(error: Refusal | RapkitError) -> Refusal:
    """What a client is told when something raised this."""
    match error:
        case Refusal():
            return error
        case UnknownThread() | UnknownCall():
            return Refusal(404, str(error))
        case NoSuchChoice():
            return Refusal(400, f"body.selected: {error}")
        case KeyReused():
            return Refusal(422, str(error))
        case ThreadError():
            return Refusal(409, str(error))
        case ConfigError():  # the agent does not run (yet)
            return Refusal(503, str(error), ((b"retry-after", str(_RETRY_WHEN_STORE_FAILS).encode()),))
    log.error("the store failed: %s", error)
    return retry_later("What is stored cannot be read or written now.", _RETRY_WHEN_STORE_FAILS)
