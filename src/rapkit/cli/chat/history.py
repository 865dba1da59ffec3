"""The input history of this and earlier chats."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit.history import FileHistory


def history_path() -> Path:
    """The file it is kept in: under `XDG_STATE_HOME`, or where that is if it is not set."""
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "rapkit" / "chat_history"


class History(FileHistory):
    """Lines in a file that only this user can read. If it cannot be read or written, only this chat's own lines are remembered."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        """The newest first."""
        try:
            return super().load_history_strings()
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        """Keep one more."""
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
            super().store_string(string)
