"""Convert what a handler returned or raised into a tool result."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import to_json

from rapkit.errors import ToolError
from rapkit.protocol.content import ERROR_PREFIX, MAX_ITEMS, MAX_SEGMENTS, is_error_text
from rapkit.server.tools.content import Diff, Image

CANCELLED: Final = "Error: Cancelled."
"""The result of a call that was cancelled."""


class BadResult(ToolError):
    """A handler returned what no message can carry; the text is fit for the model, the cause tells the author why."""


@dataclass(frozen=True)
class Output:
    """The parts of a `tool_result`.

    `text` says everything in words, as well as words can. `content` is there when pictures are: a model that can see
    gets it instead of the text. `display_as` is for people: the ways to show the result, best first. `failed` says that
    the handler did not return.
    """

    text: str
    content: list[dict[str, Any]] | None = None
    display_as: list[dict[str, Any]] | None = None
    failed: bool = False


def to_output(value: object) -> Output:
    """Put a handler's return value into the parts of a `tool_result`; raise `BadResult` if it has no place there.

    None is "Done.": models take an empty answer for a failure and call again, and some providers refuse one.
    """
    if type(value) is str:
        return Output(_unicode(value))
    if value is None:
        return Output("Done.")
    if isinstance(value, Image | Diff):
        return _assembled([value])
    if isinstance(value, list | tuple) and any(isinstance(each, Image | Diff) for each in value):
        return _assembled([each for each in value if each is not None])
    return Output(_words(value))


def error_text(exception: BaseException, reference: str) -> str:
    """Tell the model about a failure.

    A `ToolError` speaks for itself. Of anything else only the reference is told, under which the log has the rest:
    messages of unexpected exceptions are full of paths, queries and secrets (INV-16).
    """
    if not isinstance(exception, ToolError):
        return f"Error: the tool failed unexpectedly (reference {reference}). Try again or tell the user."
    text = _unicode(str(exception)).strip() or "the tool failed without saying why. Try again or tell the user."
    return text if is_error_text(text) else f"{ERROR_PREFIX} {text}"


def _assembled(parts: Sequence[object]) -> Output:
    if len(parts) > MAX_ITEMS:
        raise BadResult(
            f"the tool returned {len(parts)} parts, and a result can carry {MAX_ITEMS}. This is a mistake in the tool, so tell the user."
        )
    text = "\n\n".join(filter(None, map(_words, parts)))
    # An empty text item would be refused by some providers.
    content = [item for item in map(_content, parts) if item.get("text") != ""]
    return Output(
        text,
        content if any(isinstance(part, Image) for part in parts) else None,
        [_segment(part) for part in parts if isinstance(part, Image | Diff)][:MAX_SEGMENTS],
    )


def _words(value: object) -> str:
    match value:
        case str():
            return _unicode(str.__str__(value))
        case Diff():
            return _unicode(value.patch)
        case Image():
            return f"[{value.media_type}, {len(value.data)} bytes]"
        case bytes() | bytearray() | memoryview():
            raise BadResult(
                "the tool returned raw bytes, which cannot be sent. This is a mistake in the tool "
                "(it should return text, data or an Image), so tell the user."
            )
    try:
        # NaN becomes null, as in JavaScript: one gap in a table of numbers is no reason to lose the table.
        return to_json(value, inf_nan_mode="null").decode()
    except (ValueError, RecursionError) as error:
        raise BadResult(
            f"the tool returned a {type(value).__name__} that cannot be sent as JSON. "
            f"This is a mistake in the tool, so tell the user."
        ) from error


def _content(part: object) -> dict[str, Any]:
    if isinstance(part, Image):
        return {"type": "image", **_picture(part)}
    return {"type": "text", "text": _words(part)}


def _segment(part: Image | Diff) -> dict[str, Any]:
    if isinstance(part, Image):
        return {"type": "image", "content": _picture(part)}
    return {"type": "diff", "content": {"path": _unicode(part.path), "patch": _unicode(part.patch)}}


def _picture(image: Image) -> dict[str, str]:
    return {"data": base64.b64encode(image.data).decode(), "mediaType": image.media_type}


def _unicode(text: str) -> str:
    """The text without the half characters that Python allows and UTF-8 does not."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode()
