"""The mailbox on one SQLite file, for any number of processes on one machine."""

from rapkit.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
