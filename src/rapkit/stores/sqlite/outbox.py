"""Transactions on the outbox."""

import json
import logging
from collections.abc import Sequence
from typing import Any

from rapkit.errors import WrongKey
from rapkit.keyring import Keyring
from rapkit.mailbox import OUTBOX, Lease, OutboxRow, Outcome, Outgoing, Quota, Settlement, TakenPost
from rapkit.stores.sqlite import statements as sql
from rapkit.stores.sqlite.due_rows import LOOKAHEAD, PUT_OFF_FOR, free_rows, quota_filters, within_quota
from rapkit.stores.sqlite.writer import Transaction

_LENGTH_BYTES = 4


log = logging.getLogger("rapkit.store")


class Outbox:
    """Operations on outgoing POSTs. URL, trace context, reference and body are sealed together."""

    def __init__(self, keys: Keyring, lease: Lease) -> None:
        self._seal = keys.seal
        self._open = keys.open
        self._lease = lease

    def enqueue(self, outgoing: Outgoing, sender: str | None, tx: Transaction) -> TakenPost | None:
        """Queue a POST. If it is due at once and a sender is named, it is taken for that one."""
        not_before = max(tx.now, outgoing.not_before or 0)
        texts = (outgoing.url, outgoing.traceparent, outgoing.reference)
        tx.handle(len(outgoing.body))
        sealed = self._seal(b"".join(map(_prefixed, texts)) + outgoing.body)
        if outgoing.once or not_before > tx.now:
            sender = None
        until = None if sender is None else tx.now + self._lease.seconds
        row = (outgoing.id, outgoing.lane, outgoing.kind, outgoing.origin, sealed, outgoing.once, not_before, tx.now)
        if outgoing.latest:
            tx.write(sql.REPLACE_LATEST, (outgoing.lane,))
        seq, taken = tx.row(sql.INSERT_OUTGOING, (*row, sender, until, outgoing.latest))
        if taken:
            return TakenPost(outgoing, seq, epoch=1, attempts=1, age=0.0)
        tx.due.add(OUTBOX)
        return None

    def leave(self, worker: str, at: float, tx: Transaction) -> None:
        """Whether what a sender holds may be taken over is looked at no later than at this time."""
        if tx.rows(sql.LEAVE_OUTGOING, (at, worker)):
            tx.due.add(OUTBOX)

    def take(
        self,
        worker: str,
        limit: int,
        quota: Quota[str] | None,
        most_bytes: int,
        largest: int | None,
        tx: Transaction,
    ) -> list[TakenPost]:
        due = tx.rows(sql.DUE_OUTGOING, (tx.now, limit + LOOKAHEAD, *quota_filters(quota), largest))
        until = tx.now + self._lease.seconds
        free, more = free_rows(due, worker, len(due), sql.POSTPONE_OUTGOING, self._lease.seconds, tx)
        rows, left_out = within_quota(quota, free, due, limit)
        more = more or left_out
        rows = self._without_replaced(rows, tx)
        wanted = len(rows)
        rows = self._within(most_bytes, rows, tx)
        if more or len(rows) < wanted:
            tx.due.add(OUTBOX)
        if not rows:
            return []
        updated = {row[0]: row for row in tx.rows(sql.TAKE_OUTGOING, (worker, until, tx.now, json.dumps(rows)))}
        taken = []
        for row in rows:
            try:
                taken.append(self._taken(updated[row]))
            except WrongKey as error:
                log.error("message %s cannot be opened and is put off for an hour: %s", updated[row][1], error)
                tx.write(sql.PUT_OFF_OUTGOING, (tx.now + PUT_OFF_FOR, str(error), row))
        for one in taken:
            if one.outgoing.once:
                tx.write(sql.DELETE_OUTGOING, (one.seq,))
                self._advance(one.outgoing.lane, tx)
        return taken

    def _without_replaced(self, rows: list[int], tx: Transaction) -> list[int]:
        """The rows without those that were in the hands of a lost sender when a newer one came."""
        replaced = dict(tx.rows(sql.DROP_REPLACED, (json.dumps(rows),))) if rows else {}
        for lane in replaced.values():
            self._advance(lane, tx)
        return [row for row in rows if row not in replaced]

    def _within(self, room: int, rows: list[int], tx: Transaction) -> list[int]:
        """The first of these rows, as far as there is room for their bytes, but at least one."""
        sizes = dict(tx.rows(sql.OUTGOING_SIZES, (json.dumps(rows),))) if rows else {}
        for number, row in enumerate(rows):
            room -= sizes[row]
            if room < 0 and number:
                return rows[:number]
            tx.handle(sizes[row])
        return rows

    def give_back(self, taken: list[TakenPost], tx: Transaction) -> None:
        """Put back what was taken and never handed out; a `once` POST is gone, since it may have been."""
        for one in taken:
            if tx.write(sql.GIVE_BACK_OUTGOING, (tx.now, one.seq, one.epoch)):
                tx.due.add(OUTBOX)

    def _taken(self, row: Any) -> TakenPost:
        seq, id, lane, kind, origin, sealed, once, latest, epoch, attempts, age = row
        plain = self._open(sealed)
        url, trace_at = _unprefixed(plain, 0)
        trace, reference_at = _unprefixed(plain, trace_at)
        reference, body_at = _unprefixed(plain, reference_at)
        body = plain[body_at:]
        outgoing = Outgoing(
            id, lane, kind, origin, url, body, bool(once), traceparent=trace, reference=reference, latest=bool(latest)
        )
        return TakenPost(outgoing, seq, epoch, attempts, age)

    def held(self, taken: Sequence[TakenPost], tx: Transaction) -> set[str]:
        return {id for (id,) in tx.rows(sql.HELD, (json.dumps([(one.seq, one.epoch) for one in taken]),))}

    def settle(self, taken: TakenPost, settlement: Settlement, tx: Transaction) -> bool:
        """Whether the POST was still its sender's."""
        fence = (taken.seq, taken.epoch)
        outcome = settlement.outcome
        if (
            outcome is Outcome.RETRY
            and taken.outgoing.latest
            and tx.row(sql.NEWER_IN_LANE, (taken.outgoing.lane, taken.seq))
        ):
            outcome = Outcome.DROPPED
        match outcome:
            case Outcome.DELIVERED | Outcome.DROPPED:
                ours = tx.write(sql.DELIVERED, fence)
            case Outcome.RETRY:
                ours = tx.write(sql.RETRY, (tx.now + settlement.delay, settlement.problem, *fence))
            case Outcome.DEAD:
                ours = tx.write(sql.GIVE_UP, (settlement.problem, tx.now, *fence))
        if ours and outcome is Outcome.RETRY:
            tx.due.add(OUTBOX)
        elif ours:
            self._advance(taken.outgoing.lane, tx)
        return bool(ours)

    def _advance(self, lane: str, tx: Transaction) -> None:
        if tx.write(sql.ADVANCE_LANE, (tx.now, lane)):
            tx.due.add(OUTBOX)

    def resend(self, ids: Sequence[str], tx: Transaction) -> int:
        lanes = [lane for (lane,) in tx.rows(sql.RESEND, (json.dumps(list(ids)),))]
        for lane in set(lanes):
            tx.write(sql.QUEUE_UP, (lane,))
            # If one of the lane is in flight, the end of that attempt advances it.
            if not tx.rows(sql.IN_FLIGHT, (json.dumps([lane]),)):
                self._advance(lane, tx)
        return len(lanes)

    def outbox_rows(self, dead: bool, after: str, limit: int, tx: Transaction) -> list[OutboxRow]:
        return [OutboxRow(*row) for row in tx.rows(sql.OUTBOX_ROWS, (dead, after, limit))]


def share_of(origin: str, latest: bool) -> str:
    """A share as the statements spell it."""
    return f"{latest:d}{origin}"


def _prefixed(text: str) -> bytes:
    """A text with its length before it."""
    encoded = text.encode()
    return len(encoded).to_bytes(_LENGTH_BYTES) + encoded


def _unprefixed(plain: bytes, at: int) -> tuple[str, int]:
    """The text that begins there, and where the next thing begins."""
    begin = at + _LENGTH_BYTES
    end = begin + int.from_bytes(plain[at:begin])
    return plain[begin:end].decode(), end
