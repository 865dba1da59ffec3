"""Results besides text and data: images and diffs."""

from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Self

_MEDIA_TYPES = {
    ".bmp": "image/bmp",
    ".gif": "image/gif",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webp": "image/webp",
}


@dataclass(frozen=True)
class Image:
    """A picture for the model to look at and for people to see."""

    data: bytes = field(repr=False)
    media_type: str = "image/png"

    @classmethod
    def from_path(cls, path: str | PathLike[str], media_type: str | None = None) -> Self:
        """Read a picture from a file; its kind is told by the file's ending unless given."""
        path = Path(path)
        media_type = media_type or _MEDIA_TYPES.get(path.suffix.lower())
        if media_type is None:
            raise ValueError(
                f"cannot tell from the name {path.name!r} what kind of picture it is. Pass media_type='image/...'."
            )
        return cls(path.read_bytes(), media_type)


@dataclass(frozen=True)
class Diff:
    """A change to a file: the model reads the patch, people see it as a diff."""

    path: str
    patch: str
