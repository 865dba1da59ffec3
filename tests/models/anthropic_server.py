"""Anthropic on this machine: the Messages API, streamed and not, as strict as the real one.

async with AnthropicServer(Say("Hello!", thought="A greeting.")) as server:
    os.environ |= server.env
    ...
    server.requests[0]["messages"]
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.models.openai_chat import dicts
from tests.models.replies import BreakOff, Fail, ProviderServer, Refused, Say, numbered, refusal, streamed

_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_PROPERTY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NEWEST_DRAFT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
_MAX_BYTES = 32_000_000
_KINDS = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error"}


class AnthropicServer(ProviderServer):
    """Anthropic, as strict as it is, and stricter about roles: they have to alternate."""

    _signed: set[tuple[str, str]]

    @property
    def env(self) -> dict[str, str]:
        """Where the SDK finds it."""
        return {"ANTHROPIC_BASE_URL": self.url, "ANTHROPIC_API_KEY": self.key}

    @property
    def app(self) -> Starlette:
        """The API."""
        self._signed = set()
        return Starlette(routes=[Route("/v1/messages", self._messages, methods=["POST"])])

    async def _messages(self, request: Request) -> Response:
        body = await request.json()
        # In either header: it depends on the version of the SDK.
        given = request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix("Bearer ")
        if given != self.key:
            return _error(401, f"invalid x-api-key {given}")
        if len(await request.body()) > _MAX_BYTES:
            return _error(413, "Request exceeds the maximum size")
        self.requests.append(json.loads(json.dumps(body)))
        try:
            check(body, self._signed)
        except (Refused, KeyError) as error:
            self.refusals.append(str(error))
            return _error(400, str(error))
        answer = self.next_answer(body)
        if isinstance(answer, Fail):
            return _error(answer.status, answer.message, answer.headers)
        say = answer.say if isinstance(answer, BreakOff) else answer
        self._signed.add((say.thought, signature(say)))
        if not body.get("stream"):
            return JSONResponse(_message(body, say, _blocks(say)))
        message = answer.error if isinstance(answer, BreakOff) else ""
        overloaded = _event("error", error={"type": "overloaded_error", "message": message})
        return streamed(_events(body, answer), answer, overloaded)


def signature(say: Say) -> str:
    """The signature under what was thought."""
    return "signed:" + say.thought[::-1]


def check(body: dict[str, Any], signed: set[tuple[str, str]]) -> None:
    """Refuse what the API refuses."""
    if not isinstance(body.get("max_tokens"), int):
        raise Refused("max_tokens: Field required")
    messages = body["messages"]
    if not messages or messages[0]["role"] != "user":
        raise Refused("messages: first message must use the user role")
    waiting: list[str] = []
    seen: set[str] = set()
    for index, message in enumerate(messages):
        if message["role"] != ("assistant" if index % 2 else "user"):
            raise Refused(f"messages.{index}: roles must alternate between user and assistant")
        blocks = _blocks_of(message)
        if not blocks:
            raise Refused(f"messages.{index}: content must not be empty")
        _check_texts(blocks, f"messages.{index}")
        if message["role"] == "user":
            _check_results(blocks, waiting, index)
            waiting = []
        else:
            waiting = _check_said(blocks, seen, signed, index)
    if messages[-1]["role"] != "user":
        raise Refused(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )
    _check_thinking(body)
    for tool in body.get("tools") or []:
        schema = tool["input_schema"]
        if not _TOOL_NAME.fullmatch(tool["name"]):
            raise Refused("tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'")
        if schema.get("type") != "object" or {"oneOf", "anyOf", "allOf"} & set(schema):
            raise Refused(
                "tools.0.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level"
            )
        if not jsonschema_rs.meta.is_valid({**schema, **_NEWEST_DRAFT}) or "draft-0" in schema.get("$schema", ""):
            raise Refused(
                "tools.0.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12"
            )
        named = [node["properties"] for node in dicts(schema) if isinstance(node.get("properties"), dict)]
        if not all(_PROPERTY.fullmatch(name) for properties in named for name in properties):
            raise Refused(
                "tools.0.custom.input_schema.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'"
            )


def _check_thinking(body: dict[str, Any]) -> None:
    """With a budget, the round of calls and results at the end has to begin with thoughts."""
    thinking = body.get("thinking") or {}
    if thinking.get("type") != "enabled":
        return
    if not 1024 <= thinking["budget_tokens"] < body["max_tokens"]:
        raise Refused("`max_tokens` must be greater than `thinking.budget_tokens`.")
    messages = body["messages"]
    index = len(messages) - 1
    while index > 0 and any(block["type"] == "tool_result" for block in _blocks_of(messages[index])):
        index -= 2
    begins = messages[index + 1 : index + 2]
    if begins and (kind := _blocks_of(begins[0])[0]["type"]) not in ("thinking", "redacted_thinking"):
        raise Refused(
            f"messages.{index + 1}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{kind}`. When `thinking` is "
            "enabled, a final `assistant` message must start with a thinking block."
        )


def _blocks_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] | str = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _check_texts(blocks: list[dict[str, Any]], where: str) -> None:
    for block in blocks:
        if block["type"] == "text" and not block["text"].strip():
            raise Refused(f"{where}: text content blocks must contain non-whitespace text")
        if block["type"] == "tool_result" and isinstance(block.get("content"), list):
            _check_texts(block["content"], where)


def _check_results(blocks: list[dict[str, Any]], waiting: list[str], index: int) -> None:
    answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    if unknown := [id for id in answered if id not in waiting]:
        raise Refused(f"messages.{index}: unexpected `tool_use_id` found in `tool_result` blocks: {unknown[0]}")
    if missing := [id for id in waiting if id not in answered]:
        raise Refused(
            f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(missing)}"
        )
    kinds = [block["type"] == "tool_result" for block in blocks]
    if kinds != sorted(kinds, reverse=True):
        raise Refused(f"messages.{index}: tool_result blocks have to come first")


def _check_said(blocks: list[dict[str, Any]], seen: set[str], signed: set[tuple[str, str]], index: int) -> list[str]:
    ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
    for id in ids:
        if id in seen:
            raise Refused(f"messages.{index}: `tool_use` ids must be unique")
        if not _ID.fullmatch(id):
            raise Refused(f"messages.{index}: tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
        seen.add(id)
    for block in blocks:
        if block["type"] == "thinking" and (block["thinking"], block["signature"]) not in signed:
            raise Refused(f"messages.{index}: Invalid `signature` in `thinking` block")
    return ids


def _blocks(say: Say) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if say.thought:
        blocks.append({"type": "thinking", "thinking": say.thought, "signature": signature(say)})
    if say.text:
        blocks.append({"type": "text", "text": say.text, "citations": None})
    for id, call in numbered(say.calls, "toolu_"):
        blocks.append({"type": "tool_use", "id": id, "name": call.name, "input": json.loads(call.json)})
    return blocks


def _message(body: dict[str, Any], say: Say, blocks: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": blocks,
        "stop_reason": (say.why or ("tool_use" if say.calls else "end_turn")) if blocks else None,
        "stop_sequence": None,
        "usage": {"input_tokens": say.input_tokens, "output_tokens": say.output_tokens if blocks else 1},
    }


def _events(body: dict[str, Any], answer: Say | BreakOff) -> Iterator[str]:
    say = answer.say if isinstance(answer, BreakOff) else answer
    yield _event("message_start", message=_message(body, say, []))
    for index, (kind, start, deltas) in enumerate(_streamed_blocks(say)):
        yield _event("content_block_start", index=index, content_block={"type": kind, **start})
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        if isinstance(answer, BreakOff):
            return
        yield _event("content_block_stop", index=index)
    reason = say.why or ("tool_use" if say.calls else "end_turn")
    yield _event(
        "message_delta",
        delta={"stop_reason": reason, "stop_sequence": None},
        usage={"output_tokens": say.output_tokens},
    )
    yield _event("message_stop")


def _streamed_blocks(say: Say) -> Iterator[tuple[str, dict[str, Any], list[dict[str, Any]]]]:
    if say.thought:
        deltas = [
            {"type": "thinking_delta", "thinking": say.thought},
            {"type": "signature_delta", "signature": signature(say)},
        ]
        yield "thinking", {"thinking": "", "signature": ""}, deltas
    if say.text:
        yield "text", {"text": ""}, [{"type": "text_delta", "text": piece} for piece in say.pieces]
    for id, call in numbered(say.calls, "toolu_"):
        halves = [{"type": "input_json_delta", "partial_json": half} for half in (call.json[:5], call.json[5:])]
        yield "tool_use", {"id": id, "name": call.name, "input": {}}, halves


def _event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    kind = _KINDS.get(status, "api_error")
    return refusal(status, {"type": "error", "error": {"type": kind, "message": message}}, headers)
