"""The parts of a tool result: content items for the model, display segments for people."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, StringConstraints, Tag

from rapkit.protocol.fields import Text
from rapkit.protocol.json_value import Json
from rapkit.protocol.message import Message

BASE64_PATTERN = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
MEDIA_TYPE_PATTERN = r"^[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+$"

ERROR_PREFIX = "Error:"
"""How the text of a failed call begins: the wire has no other mark for a failure."""

MAX_ITEMS = 10_000
"""Items of one result: far more than any model is shown."""

MAX_SEGMENTS = 1000
"""Display segments of one result: a client shows one of them."""

Base64 = Annotated[str, StringConstraints(min_length=1, pattern=BASE64_PATTERN)]
MediaType = Annotated[str, StringConstraints(max_length=255, pattern=MEDIA_TYPE_PATTERN)]


class TextContent(Message):
    """Text for the model."""

    type: Literal["text"] = "text"
    text: Text = Field(description="the text")


class ImageContent(Message):
    """An image for the model."""

    type: Literal["image"] = "image"
    data: Base64 = Field(description="the image in base64: standard alphabet, padded")
    mediaType: MediaType = Field(description="what the image is, such as image/png")  # noqa: N815 (the wire's name)


ContentItem = Annotated[TextContent | ImageContent, Field(discriminator="type")]


class Diff(Message):
    """A change to one file."""

    path: Text = Field(description="the file that changed")
    patch: Text = Field(description="the change as a unified diff")


class Picture(Message):
    """An image to look at."""

    data: Base64 = Field(description="the image in base64: standard alphabet, padded")
    mediaType: MediaType = Field(description="what the image is, such as image/png")  # noqa: N815 (the wire's name)


class DiffSegment(Message):
    """A result shown as a diff."""

    type: Literal["diff"] = "diff"
    content: Diff


class ImageSegment(Message):
    """A result shown as an image."""

    type: Literal["image"] = "image"
    content: Picture


class TextSegment(Message):
    """A result shown as text."""

    type: Literal["text"] = "text"
    content: Text


KNOWN_SEGMENTS = ("diff", "image", "text")


class OtherSegment(Message):
    """A segment of a type we do not know: never a reason to refuse the result, kept for a client that knows it (CB-13)."""

    type: Text = Field(json_schema_extra={"not": {"enum": list(KNOWN_SEGMENTS)}})
    content: Json = None


def _segment_kind(value: Any) -> str | None:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    if not isinstance(kind, str):
        return None
    return kind if kind in KNOWN_SEGMENTS else "other"


DisplaySegment = Annotated[
    Annotated[DiffSegment, Tag("diff")]
    | Annotated[ImageSegment, Tag("image")]
    | Annotated[TextSegment, Tag("text")]
    | Annotated[OtherSegment, Tag("other")],
    Discriminator(_segment_kind),
]


def is_error_text(text: str | None) -> bool:
    """Whether the text of a result or an event says that its call failed."""
    return text is not None and text.startswith(ERROR_PREFIX)
