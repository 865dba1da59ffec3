"""Find due rows that a worker may claim: free ones, and those of workers whose lease has ended. For boxes and outgoing POSTs alike."""

import json
from collections import Counter
from typing import Any, Final

from rapkit.mailbox import Quota
from rapkit.stores.sqlite.writer import Transaction

LOOKAHEAD: Final = 64
"""How many more rows than wanted are looked at, because some may be held."""


PUT_OFF_FOR: Final = 3600.0
"""Seconds until what could not be opened is tried again: the key may be back by then."""


def quota_filters(quota: Quota[str] | None) -> tuple[str, str | None]:
    """The shares of which nothing may be had, and the only ones of which something may be had if that is so, for a statement."""
    if quota is None:
        return "[]", None
    return json.dumps(quota.full), None if quota.only is None else json.dumps(quota.only)


def within_quota(
    quota: Quota[str] | None, free: list[int], due: list[tuple[int, str | None, float, str]], limit: int
) -> tuple[list[int], bool]:
    """The first of these rows that the quota allows, and whether the quota kept some of them from being among these."""
    if quota is None:
        return free[:limit], False
    shares = {row: share for row, _, _, share in due}
    had: Counter[str] = Counter()
    rows: list[int] = []
    for row in free:
        share = shares[row]
        room = quota.room(share)
        if len(rows) < limit and (room is None or had[share] < room):
            had[share] += 1
            rows.append(row)
    return rows, len(rows) < len(free)


def free_rows(
    due: list[tuple[int, str | None, float, str]], worker: str, limit: int, postpone: str, lease: float, tx: Transaction
) -> tuple[list[int], bool]:
    """Rows that no worker holds, and whether there may be more behind those that a live worker holds.

    The latter are moved to the end of their worker's lease, so that they are not looked at again before the worker may be lost.
    """
    free: list[int] = []
    held: dict[float, list[int]] = {}
    for row, holder, expires_at, _ in due:
        if holder is None:
            free.append(row)
        elif holder == worker:
            # A worker does not take over from itself: if its lease ran out while no other worker wanted the row, it goes on.
            held.setdefault(max(expires_at, tx.now + lease), []).append(row)
        elif expires_at <= tx.now:
            free.append(row)
        else:
            held.setdefault(expires_at, []).append(row)
    for until, rows in held.items():
        tx.write(postpone, (until, json.dumps(rows)))
    return free[:limit], bool(held)


def next_free(free_at: str, later: str, bindings: tuple[Any, ...], tx: Transaction) -> float | None:
    """Seconds until a row is due that no worker holds, 0 if one is, or None.

    `free_at` selects the rows to be looked at, `later` the others. Only rows whose worker was there for longer than a lease, and which were
    not postponed since, are looked at in vain.
    """
    times: list[float] = []
    for (at,) in tx.db.execute(free_at, bindings):
        if at <= tx.now:
            return 0.0
        times.append(at)
    times += [at for (at,) in tx.rows(later, bindings) if at is not None]
    return min(times) - tx.now if times else None
