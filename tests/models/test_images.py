import base64

import pytest

from rapkit.models.images import is_supported, newest_images, placeholder
from rapkit.protocol import ImageContent
from tests.models.conversations import PIXEL


def image(data: bytes, kind: str = "image/png") -> ImageContent:
    return ImageContent(data=base64.b64encode(data).decode(), mediaType=kind)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n...", "image/png"),
        (b"\xff\xd8\xff...", "image/jpeg"),
        (b"GIF89a...", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBP...", "image/webp"),
    ],
)
def test_an_image_is_what_it_is_and_not_what_it_is_called(data: bytes, kind: str) -> None:
    assert is_supported(image(data, "image/tiff")) == (data, kind)


@pytest.mark.parametrize("data", [b"<svg/>", b"RIFF\x00\x00\x00\x00WAVE", b"\x00"])
def test_anything_else_is_not_shown(data: bytes) -> None:
    assert is_supported(image(data)) is None


@pytest.mark.parametrize(
    ("size", "text"), [(1, "1 bytes"), (2, "2 bytes"), (999, "999 bytes"), (1000, "1 kB"), (12_345, "12 kB")]
)
def test_a_placeholder_says_how_big_it_was(size: int, text: str) -> None:
    assert placeholder(image(b"x" * size, "image/svg+xml")) == f"[image image/svg+xml, {text}]"


def test_the_latest_images_are_shown_and_not_too_many() -> None:
    images = [image(PIXEL + bytes([number])) for number in range(30)]
    shown = newest_images(reversed(images))
    assert [id(each) in shown for each in images] == [False] * 10 + [True] * 20


def test_images_that_are_not_shown_anyway_do_not_count() -> None:
    images = [image(PIXEL), *(image(b"<svg/>") for _ in range(30))]
    assert len(newest_images(reversed(images))) == 1


def test_the_latest_images_are_not_too_big_together() -> None:
    images = [image(PIXEL + b"\x00" * 4_000_000) for _ in range(5)]
    shown = newest_images(reversed(images))
    assert [id(each) in shown for each in images] == [False] * 2 + [True] * 3
