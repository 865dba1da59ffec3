"""reference/protocol.md: every message on the wire, from the schemas that messages are checked by."""

from typing import Any

from rapkit.protocol.schemas import MODELS, json_schemas
from scripts._reference.json_schema import fields, heading_link
from scripts._reference.markdown import paragraphs, table

_HEAD = """# Messages

Every protocol message as rapkit reads and writes it, generated from its models. The JSON Schemas are in
[src/rapkit/protocol/schemas](../../src/rapkit/protocol/schemas.py). For an introduction, see
[How the protocol works](../explanation/protocol.md).

Optional fields may be missing or `null`. Unknown fields are ignored.

"""
_SENT = {
    "toolset": "server to runtime: the answer to `GET {base}/.well-known/rap-toolset`",
    "invocation": "runtime to server: `POST` to the toolset's endpoint",
    "tool_result": "server to runtime: `POST` to the callback URL",
    "subscription_event": "server to runtime: `POST` to the callback URL",
    "oauth": "server to runtime: `POST` to the callback URL",
    "user_choice": "server to runtime: `POST` to the callback URL",
    "view_update": "server to runtime: `POST` to the callback URL",
    "choice_made": "runtime to server: `POST` to the question's `response_url`",
    "thread_closed": "runtime to server: `POST {base}/close_thread`",
    "call_cancelled": "runtime to server: `POST {base}/cancel_tool_call`",
    "migrate": "runtime to server: `POST {base}/migrate`; understood by the models, used by neither side of rapkit",
}


def protocol_page() -> str:
    """The page. Every message is in `_SENT`, or it is a KeyError: a new one has to be put somewhere."""
    schemas = json_schemas()
    order = sorted(MODELS, key=list(_SENT).index)
    parts: dict[str, Any] = {}
    for name in order:
        parts.update(schemas[name].get("$defs", {}))
    return (
        _HEAD
        + table(("message", "sent"), ((heading_link(name), _SENT[name]) for name in order))
        + "".join(f"## {name}\n\n{_message(schemas[name])}" for name in order)
        + "## Parts\n\n"
        + "".join(f"### {name}\n\n{_message(schema)}" for name, schema in sorted(parts.items()))
    )


def _message(schema: dict[str, Any]) -> str:
    return paragraphs(schema.get("description", "")) + fields(schema)
