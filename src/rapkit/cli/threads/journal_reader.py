"""Read a thread's journal over the API."""

from collections.abc import Iterator
from typing import Any

from rapkit.cli.agent_api import AgentApi
from rapkit.cli.threads.thread_lookup import path_of

_PAGE = 1000


def read_journal(api: AgentApi, thread_id: str, after: int = 0) -> Iterator[Any]:
    """Its entries from the one after line `after` on, the oldest first, to the last there is by then."""
    cursor: str | None = str(after)
    while cursor is not None:
        page = api.get(path_of(thread_id, "history"), cursor=cursor, limit=_PAGE)
        yield from page["entries"]
        cursor = page["next_cursor"]
