"""Who holds a due row: nobody, a worker that lives, or one that was lost. Boxes and outgoing POSTs are held alike."""

import json
from typing import Final

from rapkit.stores.sqlite.writer import Transaction

LOOKAHEAD: Final = 64
"""How many more rows than wanted are looked at, because some may be held."""


def free_rows(
    due: list[tuple[int, str | None, float]], worker: str, limit: int, postpone: str, until: float, tx: Transaction
) -> tuple[list[int], bool]:
    """Rows nobody holds, and whether there may be more behind those that a living worker holds.

    The latter are moved to `until`, so that nobody looks at them again before their worker's lease may have ended.
    """
    free, held = [], []
    for row, holder, expires_at in due:
        # A worker never takes over from itself: if its lease ran out while nobody else wanted the row, it goes on.
        if holder is None or (holder != worker and expires_at <= tx.now):
            free.append(row)
        else:
            held.append(row)
    if held:
        tx.write(postpone, (until, json.dumps(held)))
    return free[:limit], bool(held)
