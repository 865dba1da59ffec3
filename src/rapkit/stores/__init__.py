"""Stores: the mailbox on a database. `open_store` picks one by URL."""

from rapkit.stores.opening import open_store

__all__ = ["open_store"]
