"""Open the store that a URL stands for."""

from rapkit.errors import ConfigError, StoreError
from rapkit.keyring import load_keyring
from rapkit.mailbox import Lease, Store
from rapkit.store_url import file_in, file_of, is_in_memory, shown
from rapkit.stores.sqlite import SqliteStore
from rapkit.stores.sqlite.connection import is_sealed

_MEMORY = ":memory:"
_OUR_FOLDER = ".rapkit"


def open_store(url: str, *, lease: Lease | None = None) -> Store:
    """Open `sqlite:///file.db` (relative), `sqlite:////var/lib/file.db` (absolute) or `sqlite:///:memory:`, making it if need be."""
    if is_in_memory(url):
        return SqliteStore(_MEMORY, load_keyring(None), lease=lease)
    file = file_of(url)
    if file is None:
        raise ConfigError(
            f"{shown(url)!r} is no store. Use sqlite:///file.db, sqlite:////absolute/file.db or sqlite:///:memory:."
        )
    try:
        if file.is_dir():
            raise ConfigError(f"{url!r} is no store but a folder. Name a file in it, like {file_in(file)}.")
        folder = file.parent
        folder.mkdir(parents=True, exist_ok=True)
        if folder.name == _OUR_FOLDER and not (folder / ".gitignore").exists():
            (folder / ".gitignore").write_text("*\n")  # a key is kept there
        keys = load_keyring(file, lambda: is_sealed(str(file)))
    except OSError as error:
        raise StoreError(
            f"{file} cannot be opened for writing ({error}). Check the folder and its permissions."
        ) from error
    return SqliteStore(str(file), keys, lease=lease)
