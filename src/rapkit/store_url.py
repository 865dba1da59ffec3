"""Parse store URLs without opening a store."""

from pathlib import Path

DEFAULT_STORE = "sqlite:///.rapkit/agent.db"
"""Where the threads of an agent are kept, unless it is said."""

_SQLITE = "sqlite:///"
_MEMORY = ":memory:"


def file_of(url: str) -> Path | None:
    """The file a store is in; None if it is in memory, or the URL is not one of a file."""
    path = url.removeprefix(_SQLITE)
    return None if path in (url, "", _MEMORY) or "\0" in path else Path(path)


def is_in_memory(url: str) -> bool:
    """Whether a store is lost when its process ends."""
    return url == f"{_SQLITE}{_MEMORY}"


def shown(url: str) -> str:
    """What can be told of a URL to people: all, unless it may hold a password, as those of databases do."""
    scheme, separator, _ = url.partition("://")
    return f"{scheme}{separator}…" if "@" in url and not url.startswith(_SQLITE) else url


def file_in(folder: Path) -> str:
    """What to say instead of a folder, which is no store."""
    return f"{_SQLITE}{folder / 'store.db'}"


def absolute(url: str) -> str:
    """What a store is called wherever one is."""
    file = file_of(url)
    return url if file is None else f"{_SQLITE}{file.resolve()}"
