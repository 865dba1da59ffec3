"""The result of a call."""

import base64
import json
from dataclasses import dataclass
from typing import Any

from rapkit.protocol import ContentItem, DisplaySegment, ImageContent, ToolResult
from rapkit.protocol.content import is_error_text
from rapkit.server.tools.content import Image


@dataclass(frozen=True, slots=True)
class Result:
    """What a call was answered with."""

    text: str
    content: tuple[ContentItem, ...] = ()
    display_as: tuple[DisplaySegment, ...] = ()

    @classmethod
    def of(cls, message: ToolResult) -> "Result":
        """The result in a message."""
        return cls(message.text or "", message.content or (), message.display_as or ())

    @property
    def is_error(self) -> bool:
        """Whether the call failed."""
        return is_error_text(self.text)

    @property
    def images(self) -> list[Image]:
        """The pictures in it."""
        pictures = (item for item in self.content if isinstance(item, ImageContent))
        return [Image(base64.b64decode(picture.data), picture.mediaType) for picture in pictures]

    def json(self) -> Any:
        """The text as JSON: what a handler returned that was no text."""
        return json.loads(self.text)

    def __str__(self) -> str:
        """The text."""
        return self.text
