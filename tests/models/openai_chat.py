"""The Chat Completions API, as strict as the real one."""

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.models.replies import BreakOff, Refused, Say, numbered

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
MAX_TOOLS = 128
MAX_DESCRIPTION = 1024
UNWELCOME = {"oneOf", "anyOf", "allOf", "not", "enum"}


def check(body: dict[str, Any]) -> None:
    """Refuse what the API refuses."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refused("Invalid 'messages': empty array.")
    waiting: list[str] = []
    answerable: set[str] = set()
    for index, message in enumerate(messages):
        role = message["role"]
        if waiting and role != "tool":
            raise Refused(_unanswered(waiting))
        if role == "tool":
            if message["tool_call_id"] not in answerable:
                raise Refused(
                    f"Invalid parameter: messages with role 'tool' must be a response to a preceding message with 'tool_calls'. ({index})"
                )
            answerable.discard(message["tool_call_id"])
            waiting.remove(message["tool_call_id"])
            _check_tool_content(message["content"], index)
        elif role == "assistant":
            waiting = _check_assistant(message, index)
            answerable = set(waiting)
        elif role not in ("system", "developer", "user"):
            raise Refused(f"Invalid value: '{role}'. (messages[{index}].role)")
        elif not message.get("content"):
            raise Refused(f"Invalid value for 'content': expected a string, got null. (messages[{index}])")
    if waiting:
        raise Refused(_unanswered(waiting))
    check_tools([tool["function"] for tool in body.get("tools") or []])


def check_tools(functions: list[dict[str, Any]]) -> None:
    """What both APIs of OpenAI want of tools."""
    if len(functions) > MAX_TOOLS:
        raise Refused(
            f"Invalid 'tools': array too long. Expected an array with maximum length {MAX_TOOLS}, but got {len(functions)}."
        )
    for function in functions:
        _check_tool(function)


def _check_tool(function: dict[str, Any]) -> None:
    if not TOOL_NAME.fullmatch(function["name"]):
        raise Refused("Invalid 'tools[0].function.name': string does not match pattern. Expected '^[a-zA-Z0-9_-]+$'.")
    schema = function.get("parameters") or {"type": "object"}
    if schema.get("type") != "object" or UNWELCOME & set(schema):
        raise Refused(
            f"Invalid schema for function '{function['name']}': schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/"
            "'enum'/'not' at the top level."
        )
    if len(function.get("description") or "") > MAX_DESCRIPTION:
        raise Refused("Invalid 'tools[0].function.description': string too long.")
    if any(_is_array(node) and not isinstance(node.get("items"), dict) for node in dicts(schema)):
        raise Refused(f"Invalid schema for function '{function['name']}': array schema missing items.")
    if "properties" not in schema:
        raise Refused(f"Invalid schema for function '{function['name']}': object schema missing properties.")


def dicts(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a JSON value, itself included."""
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from dicts(item)


def _is_array(node: dict[str, Any]) -> bool:
    return node.get("type") == "array" or (isinstance(node.get("type"), list) and "array" in node["type"])


def _check_assistant(message: dict[str, Any], index: int) -> list[str]:
    calls = message.get("tool_calls") or []
    if not calls and not message.get("content"):
        raise Refused(f"An assistant message needs content or tool_calls. (messages[{index}])")
    ids = [call["id"] for call in calls]
    if len(set(ids)) != len(ids):
        raise Refused("Duplicate value for 'tool_call_id'.")
    for call in calls:
        if len(call["id"]) > 40:
            raise Refused("Invalid 'tool_calls[0].id': string too long.")
        if not isinstance(json.loads(call["function"]["arguments"]), dict):
            raise Refused("Invalid arguments.")
    return ids


def _check_tool_content(content: Any, index: int) -> None:
    if isinstance(content, list) and any(part["type"] != "text" for part in content):
        raise Refused("Invalid content type. image_url is only supported by certain roles.")
    if not content:
        raise Refused(f"Invalid value for 'content': expected a string, got null. (messages[{index}])")


def _unanswered(ids: list[str]) -> str:
    return (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        f"The following tool_call_ids did not have response messages: {', '.join(ids)}"
    )


def whole(body: dict[str, Any], say: Say) -> dict[str, Any]:
    """An answer in one piece."""
    calls = [
        {"id": id, "type": "function", "function": {"name": call.name, "arguments": call.json}}
        for id, call in numbered(say.calls, "call_")
    ]
    message: dict[str, Any] = {"role": "assistant", "content": say.text or None, "refusal": None}
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "finish_reason": _reason(say), "logprobs": None}
    return {**_head(body, "chat.completion"), "choices": [choice], "usage": _usage(say)}


def events(body: dict[str, Any], answer: Say | BreakOff) -> Iterator[str]:
    """An answer piece by piece."""
    say = answer.say if isinstance(answer, BreakOff) else answer
    yield _chunk(body, {"role": "assistant", "content": ""})
    for piece in say.pieces:
        yield _chunk(body, {"content": piece})
    for index, (id, call) in enumerate(numbered(say.calls, "call_")):
        head = {"index": index, "id": id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        yield _chunk(body, {"tool_calls": [head]})
        for half in (call.json[:5], call.json[5:]):
            yield _chunk(body, {"tool_calls": [{"index": index, "function": {"arguments": half}}]})
    if isinstance(answer, BreakOff):
        return
    yield _chunk(body, {}, _reason(say))
    if (body.get("stream_options") or {}).get("include_usage"):
        yield _event({**_head(body, "chat.completion.chunk"), "choices": [], "usage": _usage(say)})
    yield "data: [DONE]\n\n"


def failed(answer: Say | BreakOff) -> str:
    """An error in the middle of a stream."""
    message = answer.error if isinstance(answer, BreakOff) else ""
    return _event({"error": {"message": message, "type": "server_error", "param": None, "code": "server_error"}})


def _head(body: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 1_700_000_000, "model": body["model"]}


def _chunk(body: dict[str, Any], delta: dict[str, Any], reason: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
    return _event({**_head(body, "chat.completion.chunk"), "choices": [choice], "usage": None})


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"


def _reason(say: Say) -> str:
    return say.why or ("tool_calls" if say.calls else "stop")


def _usage(say: Say) -> dict[str, Any]:
    return {
        "prompt_tokens": say.input_tokens,
        "completion_tokens": say.output_tokens,
        "total_tokens": say.input_tokens + say.output_tokens,
    }
