"""Render tool results in a shortened form."""

from collections.abc import Iterable, Iterator
from typing import Any

from rapkit.cli.chat.block import Block

_MOST_LINES = 6
_MOST_CHARACTERS = 600
_DIFF_LINES = 20
_PER_BYTE = 4 / 3  # what base64 makes of a byte


def result_blocks(entry: dict[str, Any], *, given_up: bool = False) -> list[Block]:
    """The blocks for a `result`: as its tool wants it shown, if that can be done here; else what the model was shown.

    `given_up` if another one was shown before, which said that nothing came of the call.
    """
    said = _segment(entry) or shortened(_words(entry), _MOST_LINES)
    late = " (late: it had been given up)" if given_up else ""
    ended = " (events will follow)" if entry.get("subscription") else ""
    match said:
        case str():
            return [Block(f"{entry['name']}{late}{ended}: {said}", "← ", "dim", "green")]
        case _:
            return [Block(f"{entry['name']}{late}{ended}:", "← ", "dim", "green"), *said]


def image_name(media_type: str, data: str) -> str:
    """An image where none can be shown."""
    size = int(len(data.rstrip("=")) / _PER_BYTE)
    return f"[{media_type}, {f'{size / 1000:.0f} kB' if size >= 1000 else f'{size} bytes'}]"


def _segment(entry: dict[str, Any]) -> str | list[Block] | None:
    for segment in entry.get("display_as") or ():
        match segment:
            case {"type": "diff", "content": {"path": str(path), "patch": str(patch)}}:
                return [Block(path, "  ", "bold"), *_diff(patch)]
            case {"type": "text", "content": str(text)}:
                return shortened(text, _MOST_LINES)
            case {"type": "image", "content": {"data": str(data), "mediaType": str(media_type)}}:
                name, words = image_name(media_type, data), _words(entry)
                return shortened(words if name in words else f"{name}\n{words}", _MOST_LINES)
    return None


def _words(entry: dict[str, Any]) -> str:
    if (items := entry.get("content")) is None:
        return str(entry.get("text", ""))
    return "\n".join(_item(item) for item in items)


def _item(item: dict[str, Any]) -> str:
    match item:
        case {"type": "image", "data": str(data), "mediaType": str(media_type)}:
            return image_name(media_type, data)
    return str(item.get("text", ""))


def shortened(text: str, most: int) -> str:
    """The first lines of a text, and not too much of them, with a `…` if there is more."""
    lines = text.strip().splitlines()
    shown = "\n".join(lines[:most])
    if len(shown) > _MOST_CHARACTERS:
        return shown[:_MOST_CHARACTERS].rstrip() + " …"
    more = len(lines) - most
    return f"{shown}\n… {more} more {'line' if more == 1 else 'lines'}" if more > 0 else shown


def _diff(patch: str) -> Iterator[Block]:
    lines = [line for line in patch.splitlines() if not line.startswith(("--- ", "+++ "))]
    for line in lines[:_DIFF_LINES]:
        yield Block(line, "  ", _colour(line))
    if (more := len(lines) - _DIFF_LINES) > 0:
        yield Block(f"… {more} more {'line' if more == 1 else 'lines'}", "  ", "dim")


def _colour(line: str) -> str:
    colours: Iterable[tuple[str, str]] = (("+", "green"), ("-", "red"), ("@", "cyan"))
    return next((colour for mark, colour in colours if line.startswith(mark)), "")
