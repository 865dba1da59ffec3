"""Images in tool results, as far as the provider accepts them.

One that a provider refuses has the whole conversation refused, now and each time after. So what is not surely good is only mentioned.
"""

import base64
from collections.abc import Iterable

from rapkit.protocol import ImageContent

MAX_BYTES = 5_000_000
"""What the strictest of the big providers takes."""

MAX_IMAGES = 20
"""How many are sent with one question: the latest. Providers take more, but smaller ones then."""

MAX_TOGETHER = 15_000_000
"""Bytes of all of them; the strictest provider takes 32 MB as a whole, in base64 and with the texts."""

_BEGINNINGS = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}


def is_supported(image: ImageContent) -> tuple[bytes, str] | None:
    """The bytes and what they really are, if every provider that takes images takes these; labels can be wrong, and are refused then."""
    if _size(image) > MAX_BYTES:
        return None
    data = base64.b64decode(image.data)
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return data, "image/webp"
    kind = next((kind for beginning, kind in _BEGINNINGS.items() if data.startswith(beginning)), None)
    return (data, kind) if kind else None


def newest_images(newest_first: Iterable[ImageContent]) -> dict[int, tuple[bytes, str]]:
    """Those that are shown, by their identity, with what `is_supported` says of them."""
    shown: dict[int, tuple[bytes, str]] = {}
    left, room = MAX_IMAGES, MAX_TOGETHER
    for image in newest_first:
        if (found := is_supported(image)) is None:
            continue
        left, room = left - 1, room - len(found[0])
        if left < 0 or room < 0:
            break
        shown[id(image)] = found
    return shown


def placeholder(image: ImageContent) -> str:
    """What a model is told where an image cannot be shown to it."""
    size = _size(image)
    return (
        f"[image {image.mediaType}, {size / 1000:.0f} kB]"
        if size >= 1000
        else f"[image {image.mediaType}, {size} bytes]"
    )


def _size(image: ImageContent) -> int:
    return len(image.data) * 3 // 4 - image.data[-2:].count("=")
