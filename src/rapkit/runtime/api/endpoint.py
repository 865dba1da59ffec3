"""The endpoint of the client API: authenticate, validate, run the operation, write the response."""

import logging
import re
from collections.abc import Callable, Sequence
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from starlette.types import Receive, Scope, Send

from rapkit.errors import RapkitError
from rapkit.http.authentication import Callers
from rapkit.http.requests import Refusal, Request, read_request
from rapkit.protocol.problems import problems
from rapkit.runtime.api.event_stream import StreamTiming
from rapkit.runtime.api.operations import About, ApiRequest, Operation, Sendable
from rapkit.runtime.api.responses import problem_response, refusal_of
from rapkit.runtime.thread_commands import ThreadCommands
from rapkit.tracing import request_span

log = logging.getLogger("rapkit.api")

_KEY = re.compile(rb"[\x21-\x7e]{1,255}")


class ApiEndpoint:
    """All operations of one path."""

    def __init__(
        self,
        operations: Sequence[Operation],
        threads: Callable[[], ThreadCommands],
        about: About,
        callers: Callers,
        largest: int,
        pace: StreamTiming,
        values: int | None = None,
    ) -> None:
        self._operations = {operation.method: operation for operation in operations}
        self._threads = threads
        self._about = about
        self._callers = callers
        self._largest = largest
        self._pace = pace
        self._values = values

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        with request_span(scope["headers"]):
            answer = await self._answer(scope, receive)
        await answer.send(receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Sendable:
        try:
            operation = self._operation(scope["method"])
            request = await read_request(
                scope,
                receive,
                self._callers,
                0 if operation.method == "GET" else self._largest,
                self._values,
                is_json=operation.body is not None,
            )
            return await operation.handler(self._asked(operation, scope, request))
        except (Refusal, RapkitError) as error:
            return problem_response(refusal_of(error))
        except Exception as error:
            log.critical("a request failed", exc_info=error)
            return problem_response(Refusal(500, "Something went wrong here. The log of the agent says what."))

    def _operation(self, method: str) -> Operation:
        if method not in self._operations:
            possible = " or ".join(self._operations)
            raise Refusal(
                405,
                f"{method} is not possible here. Send {possible}.",
                ((b"allow", ", ".join(self._operations).encode()),),
            )
        return self._operations[method]

    def _asked(self, operation: Operation, scope: Scope, request: Request) -> ApiRequest:
        last_event_id = request.headers.get(b"last-event-id", b"").decode("latin-1")
        return ApiRequest(
            threads=self._threads(),
            about=self._about,
            path=scope["path_params"],
            query=operation.query and _read_query(operation.query, scope["query_string"]),
            body=operation.body and _read_body(operation.body, request.body),
            key=_key(request) if operation.method == "POST" else None,
            last_event_id=last_event_id or None,
            root=scope.get("root_path", ""),
            pace=self._pace,
        )


def _read_query(model: type[BaseModel], query: bytes) -> BaseModel:
    given = dict(parse_qsl(query.decode("latin-1"), errors="replace"))
    return _read("query", model, lambda: model.model_validate(given))


def _read_body(model: type[BaseModel], body: bytes) -> BaseModel:
    return _read("body", model, lambda: model.model_validate_json(body))


def _read(label: str, model: type[BaseModel], read: Callable[[], BaseModel]) -> BaseModel:
    try:
        return read()
    except ValidationError as error:
        raise Refusal(400, ". ".join(problems(label, model, error))) from None


def _key(request: Request) -> str | None:
    """The key under which the request may be repeated. It is the caller's own: names of callers have no slash."""
    given = request.headers.get(b"idempotency-key")
    if given is None:
        return None
    if not _KEY.fullmatch(given):
        raise Refusal(400, "Idempotency-Key: must be 1 to 255 printable ASCII characters without blanks.")
    return f"{request.caller}/{given.decode()}"
