"""The Responses API, as strict as the real one."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

from tests.models.openai_chat import check_tools
from tests.models.replies import BreakOff, Refused, Say, numbered


def check(body: dict[str, Any], known_thoughts: dict[str, str]) -> None:
    """Refuse what the API refuses. `known_thoughts` are those it has encrypted itself, by their ciphertext."""
    items = body.get("input")
    if isinstance(items, str):
        return
    if not isinstance(items, list) or not items:
        raise Refused("Missing required parameter: 'input'.")
    called: list[str] = []
    answered: set[str] = set()
    for index, item in enumerate(items):
        kind = item.get("type", "message")
        if kind == "function_call":
            if not isinstance(json.loads(item["arguments"]), dict):
                raise Refused("Invalid arguments.")
            if len(item["call_id"]) > 64:
                raise Refused(f"Invalid 'input[{index}].call_id': string too long.")
            called.append(item["call_id"])
        elif kind == "function_call_output":
            _check_output(item, called, answered)
        elif kind == "reasoning":
            _check_reasoning(item, items[index + 1 : index + 2], known_thoughts)
        elif kind == "message":
            if set(called) - answered:
                break  # said below
            if not item["content"]:
                raise Refused(f"Invalid value: 'input[{index}].content' is empty.")
        else:
            raise Refused(f"Invalid value: '{kind}'.")
    for id in called:
        if id not in answered:
            raise Refused(f"No tool output found for function call {id}.")
    for tool in body.get("tools") or []:
        if not isinstance(tool.get("strict"), bool):
            raise Refused("Missing required parameter: 'tools[0].strict'.")
    check_tools(body.get("tools") or [])


def _check_output(item: dict[str, Any], called: list[str], answered: set[str]) -> None:
    if item["call_id"] not in called or item["call_id"] in answered:
        raise Refused(f"No tool call found for function call output with call_id {item['call_id']}.")
    answered.add(item["call_id"])
    output = item["output"]
    if isinstance(output, list) and any(part["type"] not in ("input_text", "input_image") for part in output):
        raise Refused("Invalid value for 'output'.")


def _check_reasoning(item: dict[str, Any], after: list[dict[str, Any]], known: dict[str, str]) -> None:
    if not after or after[0].get("role") == "user" or after[0].get("type") == "function_call_output":
        raise Refused(f"Item '{item['id']}' of type 'reasoning' was provided without its required following item.")
    if known.get(item.get("encrypted_content") or "") != item["id"]:
        raise Refused(f"The encrypted content for item {item['id']} could not be verified.")


def whole(body: dict[str, Any], say: Say) -> dict[str, Any]:
    """An answer in one piece."""
    return _response(body, _items(say), say, "completed")


def events(body: dict[str, Any], answer: Say | BreakOff) -> Iterator[str]:
    """An answer piece by piece."""
    numbers = itertools.count()

    def event(kind: str, **fields: Any) -> str:
        value = {"type": kind, "sequence_number": next(numbers), **fields}
        return f"event: {kind}\ndata: {json.dumps(value)}\n\n"

    say = answer.say if isinstance(answer, BreakOff) else answer
    yield event("response.created", response=_response(body, [], None, "in_progress"))
    for index, item in enumerate(_items(say)):
        where: dict[str, Any] = {"output_index": index}
        if item["type"] == "reasoning":
            yield event("response.output_item.added", item={**item, "summary": [], "encrypted_content": ""}, **where)
        elif item["type"] == "message":
            yield event("response.output_item.added", item={**item, "content": [], "status": "in_progress"}, **where)
            at = {**where, "item_id": item["id"], "content_index": 0}
            part = item["content"][0]
            yield event("response.content_part.added", part={**part, "text": ""}, **at)
            for piece in say.pieces:
                yield event("response.output_text.delta", delta=piece, logprobs=[], **at)
            if isinstance(answer, BreakOff):
                return
            yield event("response.output_text.done", text=say.text, logprobs=[], **at)
            yield event("response.content_part.done", part=part, **at)
        else:
            yield event("response.output_item.added", item={**item, "arguments": "", "status": "in_progress"}, **where)
            at = {**where, "item_id": item["id"]}
            for half in (item["arguments"][:5], item["arguments"][5:]):
                yield event("response.function_call_arguments.delta", delta=half, **at)
            yield event("response.function_call_arguments.done", arguments=item["arguments"], **at)
        yield event("response.output_item.done", item=item, **where)
    if not isinstance(answer, BreakOff):
        yield event("response.completed", response=_response(body, _items(say), say, "completed"))


def failed(answer: Say | BreakOff) -> str:
    """An error in the middle of a stream."""
    message = answer.error if isinstance(answer, BreakOff) else ""
    value = {"type": "error", "sequence_number": 99, "code": "server_error", "message": message, "param": None}
    return f"event: error\ndata: {json.dumps(value)}\n\n"


def _items(say: Say) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if say.thought:
        summary = [{"type": "summary_text", "text": say.thought}]
        items.append(
            {"id": thought_id(say), "type": "reasoning", "summary": summary, "encrypted_content": ciphertext(say)}
        )
    if say.text:
        text = {"type": "output_text", "text": say.text, "annotations": [], "logprobs": []}
        items.append({"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [text]})
    for index, (id, call) in enumerate(numbered(say.calls, "call_")):
        items.append(
            {
                "id": f"fc_{index}",
                "type": "function_call",
                "status": "completed",
                "call_id": id,
                "name": call.name,
                "arguments": call.json,
            }
        )
    return items


def thought_id(say: Say) -> str:
    """The id of what was thought."""
    return f"rs_{len(say.thought)}"


def ciphertext(say: Say) -> str:
    """What was thought, for nobody to read."""
    return "enc:" + say.thought[::-1]


def _response(body: dict[str, Any], items: list[dict[str, Any]], say: Say | None, status: str) -> dict[str, Any]:
    usage = say and {
        "input_tokens": say.input_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": say.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": say.input_tokens + say.output_tokens,
    }
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "model": body["model"],
        "output": items,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": body.get("tools") or [],
        "usage": usage,
        "metadata": {},
        "temperature": 1.0,
        "top_p": 1.0,
    }
