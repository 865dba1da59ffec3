"""Stores: the mailbox on a database. `open_store` picks one by URL."""

from rapkit.store_url import absolute, file_of
from rapkit.stores.registry import open_store

__all__ = ["absolute", "file_of", "open_store"]
