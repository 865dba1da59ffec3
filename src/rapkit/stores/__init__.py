"""Stores: the mailbox on a database. `open_store` picks one by URL."""

from rapkit.stores.opening import absolute, file_of, open_store

__all__ = ["absolute", "file_of", "open_store"]
