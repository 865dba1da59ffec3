"""`SqliteStore`: every operation is a function that runs inside the writer's transaction."""

import asyncio
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from types import EllipsisType

from rapkit.keyring import Keyring
from rapkit.mailbox import (
    MAIL_BYTES,
    MOST_COUNTED,
    OUTBOX,
    AcceptResult,
    Box,
    Claim,
    Commit,
    Entry,
    Fact,
    Lease,
    Load,
    NewBox,
    NewMail,
    OutboxRow,
    Outgoing,
    Quota,
    Record,
    Settlement,
    StoppedBoxes,
    TakenPost,
)
from rapkit.stores.sqlite import statements as sql
from rapkit.stores.sqlite.boxes import Boxes
from rapkit.stores.sqlite.due_rows import next_free
from rapkit.stores.sqlite.leases import Leases
from rapkit.stores.sqlite.outbox import Outbox, share_of
from rapkit.stores.sqlite.writer import Transaction, Writer


class SqliteStore:
    """The mailbox on one SQLite file; `rapkit.mailbox.Store` says what each method promises."""

    def __init__(
        self,
        path: str,
        keys: Keyring,
        *,
        lease: Lease | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lease = lease or Lease()
        # Of the process, not of the file: a file that was copied or restored does not know that it was.
        self.incarnation = secrets.token_hex(16)
        self._keys = keys
        self._wakeups: dict[str, asyncio.Event] = {}
        self._writer = Writer(path, keys, clock, self._notify)
        self._outbox = Outbox(keys, self.lease)
        self._boxes = Boxes(keys, self.lease, self._outbox.enqueue)
        self._leases = Leases(self.lease, (self._boxes.leave, self._outbox.leave), monotonic)

    def derive(self, purpose: str) -> list[bytes]:
        return self._keys.derive(purpose)

    async def create(self, box: NewBox, new_mail: NewMail | None = None) -> bool:
        return await self._writer.run(partial(self._boxes.create, box, new_mail))

    async def create_claimed(self, box: NewBox, worker: str) -> Claim | None:
        return await self._writer.run(
            partial(self._boxes.create_claimed, box, worker),
            undo=lambda claim: partial(self._boxes.give_back, [claim] if claim else []),
        )

    async def accept(self, new_mail: NewMail) -> AcceptResult:
        return await self._writer.run(partial(self._boxes.accept, new_mail))

    async def accept_claimed(self, new_mail: NewMail, worker: str) -> tuple[AcceptResult, Claim | None]:
        return await self._writer.run(
            partial(self._boxes.accept_claimed, new_mail, worker),
            undo=lambda accepted: partial(self._boxes.give_back, [accepted[1]] if accepted[1] else []),
        )

    async def note(self, box: NewBox, fact: Fact, expect: bytes | EllipsisType | None = ...) -> bool:
        return await self._writer.run(partial(self._boxes.note, box, fact, expect))

    async def renew(self, worker: str) -> None:
        await self._writer.run(partial(self._leases.renew, worker))

    async def retire(self, worker: str) -> None:
        await self._writer.run(partial(self._leases.retire, worker))

    async def claim(
        self, worker: str, kind: str, limit: int, mail_bytes: int = MAIL_BYTES, quota: Quota[str] | None = None
    ) -> list[Claim]:
        self._wakeup(kind).clear()
        charged = await self._writer.run(
            partial(self._boxes.claim, worker, kind, limit, mail_bytes, quota),
            undo=lambda charged: partial(self._boxes.give_back, charged.claims),
        )
        if not charged.mail:
            return charged.claims
        try:
            claims, unreadable = await self._writer.run(partial(self._boxes.read_mail, charged), writes=False)
        except BaseException as error:
            # The worker never learns of these claims, so it would hold them as long as it lives. Too little memory is held against
            # the mail, as if the process had been killed; nothing else is.
            count = isinstance(error, MemoryError)
            self._writer.retry_until_written(partial(self._boxes.give_back, charged.claims, count=count))
            raise
        if unreadable:
            self._writer.retry_until_written(partial(self._boxes.put_off, unreadable))
        return claims

    async def commit(self, claim: Claim, commit: Commit, sender: str | None = None) -> list[TakenPost]:
        return await self._writer.run(
            partial(self._boxes.commit, claim, commit, sender),
            undo=lambda taken: partial(self._outbox.give_back, taken),
        )

    async def stop(self, kinds: Sequence[str], parent: str, name: str | None, remember_for: float) -> StoppedBoxes:
        return await self._writer.run(partial(self._boxes.stop, kinds, parent, name, remember_for))

    async def stop_box(self, id: str) -> StoppedBoxes:
        return await self._writer.run(partial(self._boxes.stop_box, id))

    async def post(self, outgoing: Sequence[Outgoing], key: str, remember_for: float) -> bool:
        return await self._writer.run(partial(self._boxes.post, outgoing, key, remember_for))

    async def take(
        self,
        worker: str,
        limit: int,
        quota: Quota[tuple[str, bool]] | None = None,
        most_bytes: int = MAIL_BYTES,
        largest: int | None = None,
    ) -> list[TakenPost]:
        self._wakeup(OUTBOX).clear()
        shares = (
            None if quota is None else Quota({share_of(*each): n for each, n in quota.listed.items()}, quota.others)
        )
        return await self._writer.run(
            partial(self._outbox.take, worker, limit, shares, most_bytes, largest),
            undo=lambda taken: partial(self._outbox.give_back, taken),
        )

    async def held(self, taken: Sequence[TakenPost]) -> set[str]:
        return await self._writer.run(partial(self._outbox.held, taken), writes=False)

    async def settle(self, taken: TakenPost, settlement: Settlement) -> None:
        def operation(tx: Transaction) -> None:
            if not self._outbox.settle(taken, settlement, tx):
                return
            if settlement.new_mail is not None:
                self._boxes.accept(settlement.new_mail, tx)
            if settlement.fact is not None:
                self._boxes.write_fact(settlement.fact, tx)

        await self._writer.run(operation)

    async def resend(self, ids: Sequence[str]) -> int:
        return await self._writer.run(partial(self._outbox.resend, ids))

    async def wait(self, topic: str, at_most: float) -> None:
        try:
            async with asyncio.timeout(at_most):
                await self._wakeup(topic).wait()
        except TimeoutError:
            pass

    def notify(self) -> None:
        """Make all waiting callers look again, because the clock was set."""
        self._notify(None)

    def _wakeup(self, topic: str) -> asyncio.Event:
        return self._wakeups.setdefault(topic, asyncio.Event())

    def _notify(self, topics: set[str] | None) -> None:
        for topic in list(self._wakeups) if topics is None else topics:
            self._wakeup(topic).set()

    async def next_due(self, topic: str) -> float | None:
        # Also where no lease is renewed, because no worker runs until something is due.
        if await self._writer.run(self._leases.lost, writes=False):
            await self._writer.run(self._leases.end_lost)

        def operation(tx: Transaction) -> float | None:
            if topic == OUTBOX:
                return next_free(sql.DUE_OUTGOING_FREE_AT, sql.NEXT_OUTGOING, (tx.now,), tx)
            return next_free(sql.DUE_BOX_FREE_AT, sql.NEXT_BOX, (tx.now, topic), tx)

        return await self._writer.run(operation, writes=False)

    async def box(self, id: str) -> Box | None:
        return await self._writer.run(partial(self._boxes.box, id), writes=False)

    async def boxes(
        self, kind: str, *, parent: str | None = None, status: str | None = None, after: str = "", limit: int = 100
    ) -> list[Box]:
        operation = partial(self._boxes.boxes, kind, parent, status, after, limit)
        return await self._writer.run(operation, writes=False)

    async def known(self, id: str) -> bool:
        return await self._writer.run(lambda tx: bool(tx.row(sql.KNOWN, (id, tx.now))[0]), writes=False)

    async def remembers(self, box: str, dedup: str) -> bool:
        return await self._writer.run(partial(self._boxes.remembers, box, dedup), writes=False)

    async def backlog(self, kind: str) -> int:
        count: int = await self._writer.run(lambda tx: tx.row(sql.BACKLOG, (kind, tx.now))[0], writes=False)
        return count

    async def backlog_of_shares(self, kind: str) -> dict[str, int]:
        return dict(await self._writer.run(lambda tx: tx.rows(sql.BACKLOG_OF_SHARES, (kind, tx.now)), writes=False))

    async def load(self, kind: str) -> Load:
        def operation(tx: Transaction) -> Load:
            unread, accepted_at = tx.row(sql.LOAD_OF_MAIL, (MOST_COUNTED,))
            (due,) = tx.row(sql.LOAD_OF_BOXES, (kind, tx.now, MOST_COUNTED))
            outgoing, created_at = tx.row(sql.LOAD_OF_OUTBOX, (MOST_COUNTED,))
            (dead,) = tx.row(sql.LOAD_OF_DEAD, (MOST_COUNTED,))
            return Load(unread, _age(accepted_at, tx), due, outgoing, _age(created_at, tx), dead)

        return await self._writer.run(operation, writes=False)

    async def waiting(self, lane: str) -> int:
        count: int = await self._writer.run(lambda tx: tx.row(sql.WAITING, (lane,))[0], writes=False)
        return count

    async def entries(self, box: str, after: int = 0, limit: int = 1000, most_bytes: int | None = None) -> list[Entry]:
        return await self._writer.run(partial(self._boxes.entries, box, after, limit, most_bytes), writes=False)

    async def recent(
        self,
        box: str,
        limit: int,
        before: int | None = None,
        kinds: Collection[str] | None = None,
        most_bytes: int | None = None,
    ) -> list[Entry]:
        operation = partial(self._boxes.recent, box, limit, before, kinds, most_bytes)
        return await self._writer.run(operation, writes=False)

    async def records(self, box: str, kind: str) -> list[Record]:
        return await self._writer.run(partial(self._boxes.records, box, kind), writes=False)

    async def outbox(self, dead: bool, after: str = "", limit: int = 100) -> list[OutboxRow]:
        return await self._writer.run(partial(self._outbox.outbox_rows, dead, after, limit), writes=False)

    async def sweep(self, dead_letters_kept_for: float) -> int:
        def operation(tx: Transaction) -> int:
            forgotten = tx.write(sql.SWEEP_SEEN, (tx.now,))
            dropped = tx.write(sql.SWEEP_DEAD_LETTERS, (tx.now - dead_letters_kept_for,))
            return forgotten + dropped + tx.write(sql.SWEEP_WORKERS, (tx.now,))

        return await self._writer.run(operation)

    async def check(self) -> None:
        self._writer.check()

    async def close(self) -> None:
        await self._writer.close()


def _age(since: float | None, tx: Transaction) -> float:
    return 0.0 if since is None else max(0.0, tx.now - since)
