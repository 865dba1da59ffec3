"""/openapi.json, generated from the models that requests and responses are validated with."""

import re
from collections.abc import Iterable
from functools import lru_cache
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema
from pydantic_core import to_json
from starlette.types import Receive, Scope, Send

from rapkit.http.requests import Refusal
from rapkit.runtime.api import schemas
from rapkit.runtime.api.entries import SHAPES, EntryPage
from rapkit.runtime.api.operations import Operation
from rapkit.runtime.api.responses import json_response, problem_response

_REF = "#/components/schemas/{model}"
_EVENTS: dict[str, type[BaseModel] | None] = {
    "entry": None,  # one of many
    "status": schemas.StatusEvent,
    "choice": schemas.OpenQuestion,
    "oauth": schemas.Authorization,
    "view": schemas.ViewEvent,
    "delta": schemas.DeltaEvent,
    "reset": schemas.ResetEvent,
}
_ALWAYS = (400, 401, 413, 503)
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "makes it safe to send the request again: the same key, path and body have the same answer and no further effect",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
}
_LAST_EVENT_ID = {
    "name": "Last-Event-ID",
    "in": "header",
    "description": "the id of the last event you have; what came after it is sent",
    "schema": {"type": "string"},
}


def describe(operations: Iterable[Operation], path: str) -> dict[str, Any]:
    """The document for these operations, itself found under `path`."""
    operations = tuple(operations)
    paths: dict[str, dict[str, Any]] = {
        path: {"get": {"operationId": "getOpenApi", "summary": "This document", "responses": _this_document()}}
    }
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "rapkit client API",
            "version": "1",
            "description": "Threads of an agent: begin them, talk to them, look at them, follow them.",
        },
        "paths": paths,
        "components": {
            "schemas": _schemas(operations),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _this_document() -> dict[str, Any]:
    return {
        "200": {"description": "An OpenAPI document", "content": {"application/json": {"schema": {"type": "object"}}}}
    }


def _operation(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": list(_parameters(operation)),
        "responses": {str(operation.status): _answer(operation), **_problems(operation)},
    }
    if operation.name == "streamEvents":
        described["responses"]["204"] = {
            "description": "The thread is closed and you have everything: do not come again"
        }
    if operation.body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _ref(operation.body)}},
        }
    return described


def _answer(operation: Operation) -> dict[str, Any]:
    if operation.answer is None:
        return {
            "description": "Server-sent events; x-events says what the data of each is",
            "content": {
                "text/event-stream": {
                    "schema": {"type": "string"},
                    "x-events": {name: _event(model) for name, model in _EVENTS.items()},
                }
            },
        }
    answer: dict[str, Any] = {
        "description": (operation.answer.__doc__ or "").strip(),
        "content": {"application/json": {"schema": _ref(operation.answer)}},
    }
    if operation.status == HTTPStatus.CREATED:
        answer["headers"] = {"Location": {"description": "where it is", "schema": {"type": "string"}}}
    return answer


def _event(model: type[BaseModel] | None) -> dict[str, Any]:
    return {"oneOf": [_ref(shape) for shape in SHAPES.values()]} if model is None else _ref(model)


def _problems(operation: Operation) -> dict[str, Any]:
    statuses = {*_ALWAYS, *operation.problems}
    if operation.body is not None:
        statuses.add(HTTPStatus.UNSUPPORTED_MEDIA_TYPE.value)
    if operation.method == "POST":
        statuses.add(HTTPStatus.UNPROCESSABLE_ENTITY.value)
    content = {"application/problem+json": {"schema": _ref(schemas.Problem)}}
    return {str(status): {"description": HTTPStatus(status).phrase, "content": content} for status in sorted(statuses)}


def _parameters(operation: Operation) -> Iterable[dict[str, Any]]:
    for name in re.findall(r"{(\w+)}", operation.path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
    if operation.query is not None:
        for name, schema in operation.query.model_json_schema()["properties"].items():
            description = schema.pop("description")
            # Absent is absent: a query cannot hold null.
            first, *_ = schema.get("anyOf", [schema])
            yield {"name": name, "in": "query", "description": description, "schema": first}
    if operation.method == "POST":
        yield _KEY
    if operation.name == "streamEvents":
        yield _LAST_EVENT_ID


def _schemas(operations: Iterable[Operation]) -> dict[str, Any]:
    models: dict[type[BaseModel], JsonSchemaMode] = {schemas.Problem: "serialization", EntryPage: "serialization"}
    for operation in operations:
        if operation.body is not None:
            models[operation.body] = "validation"
        if operation.answer is not None:
            models[operation.answer] = "serialization"
    for model in _EVENTS.values():
        if model is not None:
            models[model] = "serialization"
    _, schema = models_json_schema(list(models.items()), ref_template=_REF)
    definitions: dict[str, Any] = schema["$defs"]
    return definitions


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REF.format(model=model.__name__)}


@lru_cache
def encoded_document(operations: tuple[Operation, ...], path: str) -> bytes:
    """The document as it is sent. It takes a while, and it is the same for every agent of a process."""
    return to_json(describe(operations, path))


class OpenApi:
    """The document is public: it contains nothing about any thread. It is generated at the first request."""

    def __init__(self, operations: tuple[Operation, ...], path: str) -> None:
        self._operations = operations
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["method"] == "GET":
            await json_response(encoded_document(self._operations, self._path)).send(receive, send)
        else:
            await problem_response(Refusal(405, "Send GET.", ((b"allow", b"GET"),))).send(receive, send)
