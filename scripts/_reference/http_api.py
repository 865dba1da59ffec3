"""reference/http_api.md: the client API, from the document that it serves as /openapi.json."""

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from rapkit.runtime.api.entries import SHAPES
from rapkit.runtime.api.openapi import describe
from rapkit.runtime.api.operations import OPERATIONS
from scripts._reference.json_schema import fields, heading_link, kind
from scripts._reference.markdown import code, paragraphs, plain, table

_HEAD = """# HTTP API

The routes that an agent serves to its clients, generated from its `/openapi.json`. For a guide, see
[Use the HTTP API](../howto/http_api.md).

"""
_EVENTS = """## Events

The events that `GET /v1/threads/{thread_id}/events` sends, by name, with the shape of their data.

"""
_ENTRIES = """## Journal

The kinds of journal entries, as they appear in a thread's history and in `entry` events.

"""


def http_api_page() -> str:
    """The page."""
    document = describe(OPERATIONS, "/openapi.json")
    schemas: dict[str, Any] = document["components"]["schemas"]
    operations = [
        (f"{method.upper()} {path}", operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    parts = [_HEAD, "## Requests\n\n"]
    parts += [_operation(route, operation) for route, operation in operations]
    parts += [_EVENTS, _events(operations)]
    parts.append(_ENTRIES)
    parts.append(
        table(
            ("kind", "", "shape"),
            (
                (kind(schemas[name]["properties"]["kind"]), plain(_about(schemas[name])), heading_link(name))
                for name in SHAPES
            ),
        )
    )
    parts.append("## Shapes\n\n")
    parts += [
        f"### {name}\n\n{paragraphs(_about(schema))}{_body(schema)}"
        for name, schema in sorted(schemas.items())
        if "properties" in schema or "enum" in schema
    ]
    return "".join(parts)


def _about(schema: Mapping[str, Any]) -> str:
    return str(schema.get("description", ""))


def _body(schema: Mapping[str, Any]) -> str:
    return fields(schema) if "properties" in schema else f"{kind(schema)}\n\n"


def _operation(route: str, operation: Mapping[str, Any]) -> str:
    parameters = table(
        ("parameter", "in", "type", "meaning"),
        (
            (code(each["name"]), each["in"], kind(each["schema"]), plain(each.get("description", "")))
            for each in operation.get("parameters", ())
            if each["in"] != "path"
        ),
    )
    asked = operation.get("requestBody")
    body = f"Body: {_shape(asked)}\n\n" if asked else ""
    return f"### {code(route)}\n\n{operation['summary']}.\n\n{parameters}{body}{_answers(operation['responses'])}"


def _answers(responses: Mapping[str, Any]) -> str:
    good = [
        f"`{status}`: {_shape(answer)}" if "content" in answer else f"`{status}`: {answer['description']}"
        for status, answer in responses.items()
        if int(status) < HTTPStatus.BAD_REQUEST
    ]
    bad = [
        f"`{status}` {answer['description']}"
        for status, answer in responses.items()
        if int(status) >= HTTPStatus.BAD_REQUEST
    ]
    problems = f"Problems ({heading_link('Problem')}): {', '.join(bad)}.\n\n" if bad else ""
    return f"Answers {', '.join(good)}.\n\n{problems}"


def _shape(message: Mapping[str, Any]) -> str:
    ((media, content),) = message["content"].items()
    if media == "text/event-stream":
        return "[server-sent events](#events)"
    return kind(content["schema"])


def _events(operations: list[tuple[str, Any]]) -> str:
    def named() -> Iterator[tuple[str, str]]:
        for _, operation in operations:
            for answer in operation["responses"].values():
                for content in answer.get("content", {}).values():
                    for name, schema in content.get("x-events", {}).items():
                        yield code(name), "one of the [journal](#journal)" if "oneOf" in schema else kind(schema)

    return table(("event", "data"), named())
