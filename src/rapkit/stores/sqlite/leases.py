"""Leases of workers: renewal, and the release of what a lost worker held."""

from collections.abc import Callable

from rapkit.mailbox import Lease
from rapkit.stores.sqlite import statements as sql
from rapkit.stores.sqlite.writer import Transaction

Leave = Callable[[str, float, Transaction], None]
"""Moves what a worker holds forward in time: others look at it then."""


class Leases:
    """Operations on leases. `leave` is told whose boxes or POSTs are to be looked at earlier.

    Leases end by the store's clock, and that can be set back. A lease that was made before then ends later than any lease can, and so does
    the time at which others look at what its worker holds. A worker that lives puts both right when it renews its lease. One that was lost
    does not, and would keep what it holds until the clock is where it was. So its lease ends once it was seen for a lease time, by a clock
    that cannot be set, without being renewed.
    """

    def __init__(self, lease: Lease, leave: tuple[Leave, ...], monotonic: Callable[[], float]) -> None:
        self._lease = lease
        self._leave = leave
        self._monotonic = monotonic
        self._seen: dict[str, tuple[float, float]] = {}

    def renew(self, worker: str, tx: Transaction) -> None:
        until = tx.now + self._lease.seconds
        found = tx.row(sql.LEASE_END, (worker,))
        tx.write(sql.RENEW_LEASE, (worker, until))
        if found is not None and found[0] > until:
            self._move(worker, until, tx)
        self.end_lost(tx)

    def retire(self, worker: str, tx: Transaction) -> None:
        tx.write(sql.END_LEASE, (worker,))
        self._move(worker, tx.now, tx)

    def _move(self, worker: str, at: float, tx: Transaction) -> None:
        for leave in self._leave:
            leave(worker, at, tx)

    def end_lost(self, tx: Transaction) -> None:
        """End the leases of workers that are `lost`."""
        for worker in self.lost(tx):
            self.retire(worker, tx)

    def lost(self, tx: Transaction) -> list[str]:
        """The workers whose leases end too late, and were not renewed in the lease time or more for which they were seen."""
        now = self._monotonic()
        late = dict(tx.rows(sql.LATE_LEASES, (tx.now + self._lease.seconds,)))
        before = self._seen
        # Another end is a renewal: from then on it is watched anew.
        self._seen = {
            worker: before[worker] if worker in before and before[worker][0] == end else (end, now)
            for worker, end in late.items()
        }
        return [worker for worker, (_, since) in self._seen.items() if now - since >= self._lease.seconds]
