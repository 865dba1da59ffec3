"""Accept deviations from the protocol that tool servers are known to make.

A result that is refused is lost to its thread. So content and display segments of types we do not know, base64 without padding or with line
breaks, half of a surrogate pair, a second id that is none, and a result that says nothing are no reason to refuse one. What we write
ourselves is held to the protocol: this is for what comes in, and only looked at once it was not valid.
"""

import json
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from rapkit.protocol.content import MAX_ITEMS, MAX_SEGMENTS, DisplaySegment
from rapkit.protocol.fields import Id
from rapkit.protocol.problems import clip

_BOM = b"\xef\xbb\xbf"
_BLANKS = b" \t\n\v\f\r"
_OTHER_ALPHABET = bytes.maketrans(b"-_", b"+/")
_ID = TypeAdapter(Id)
_SEGMENT: TypeAdapter[DisplaySegment] = TypeAdapter(DisplaySegment)


def normalize_callback(body: bytes) -> dict[str, Any] | None:
    """The message of a callback as it can be used, as far as it can; None if it is no JSON object."""
    message = _read(body)
    if not isinstance(message, dict):
        return None
    if not _is_id(message.get("call_id")):
        message.pop("call_id", None)
    if message.get("type") == "tool_result":
        _tolerate_result(message)
    return message


def _is_id(value: Any) -> bool:
    try:
        _ID.validate_python(value)
    except ValidationError:
        return False
    return True


def _read(body: bytes) -> Any:
    text = body.removeprefix(_BOM)
    try:
        return from_json(text)
    except ValueError:
        pass
    try:
        read = json.loads(text, strict=False)  # with line breaks inside of strings
        return from_json(
            json.dumps(read, ensure_ascii=False).encode(errors="replace")
        )  # without halves of surrogate pairs
    except (ValueError, RecursionError):
        return None


def _tolerate_result(message: dict[str, Any]) -> None:
    content, segments = message.get("content"), message.get("display_as")
    if content is None and message.get("text") is None:
        message["text"] = ""
    if isinstance(content, list) and len(content) <= MAX_ITEMS:
        message["content"] = [_item(item) for item in content]
    if segments is not None:
        tried = segments[:MAX_SEGMENTS] if isinstance(segments, list) else []
        message["display_as"] = [each for each in map(_segment, tried) if each]


def _item(item: Any) -> Any:
    """A content item as a model can be shown it."""
    if isinstance(item, str):
        return {"type": "text", "text": item}
    if not isinstance(item, dict) or item.get("type") == "text":
        return item
    if item.get("type") == "image":
        return _with_base64(item)
    if isinstance(item.get("text"), str):
        return {"type": "text", "text": item["text"]}
    return {"type": "text", "text": f"(content of type {clip(str(item.get('type')))}, which cannot be shown)"}


def _segment(segment: Any) -> Any:
    """A display segment, or None if it is one that no client could show: there is still the text."""
    if not isinstance(segment, dict):
        return None
    if segment.get("type") == "image" and isinstance(segment.get("content"), dict):
        segment = {**segment, "content": _with_base64(segment["content"])}
    try:
        _SEGMENT.validate_python(segment)
    except ValidationError:
        return None
    return segment


def _with_base64(image: dict[str, Any]) -> dict[str, Any]:
    data = image.get("data")
    if not isinstance(data, str):
        return image
    bare = data.encode().translate(_OTHER_ALPHABET, _BLANKS).rstrip(b"=")
    return {**image, "data": (bare + b"=" * (-len(bare) % 4)).decode(errors="replace")}
