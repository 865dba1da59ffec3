"""Which store a URL means."""

from pathlib import Path

from rapkit.errors import ConfigError, StoreError
from rapkit.keys import load_keyring
from rapkit.mailbox import Lease, Store
from rapkit.stores.sqlite import SqliteStore

_SQLITE = "sqlite:///"
_MEMORY = ":memory:"
_OUR_FOLDER = ".rapkit"


def file_of(url: str) -> Path | None:
    """The file a store is in; None if it is in memory, or the URL is not one of a file."""
    path = url.removeprefix(_SQLITE)
    return None if path in (url, "", _MEMORY) else Path(path)


def absolute(url: str) -> str:
    """What a store is called wherever one is."""
    file = file_of(url)
    return url if file is None else f"{_SQLITE}{file.resolve()}"


def open_store(url: str, *, lease: Lease | None = None) -> Store:
    """Open `sqlite:///file.db` (relative), `sqlite:////var/lib/file.db` (absolute) or `sqlite:///:memory:`, making it if need be."""
    if not url.startswith(_SQLITE) or url == _SQLITE:
        raise ConfigError(
            f"{url!r} is no store. Use sqlite:///file.db, sqlite:////absolute/file.db or sqlite:///:memory:."
        )
    path = url.removeprefix(_SQLITE)
    if path == _MEMORY:
        return SqliteStore(_MEMORY, load_keyring(None), lease=lease)
    try:
        folder = Path(path).parent
        folder.mkdir(parents=True, exist_ok=True)
        if folder.name == _OUR_FOLDER and not (folder / ".gitignore").exists():
            (folder / ".gitignore").write_text("*\n")  # a key is kept there
        keys = load_keyring(Path(path))
    except OSError as error:
        raise StoreError(
            f"{path} cannot be opened for writing ({error}). Check the folder and its permissions."
        ) from error
    return SqliteStore(path, keys, lease=lease)
