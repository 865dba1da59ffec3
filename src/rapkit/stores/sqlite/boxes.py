"""Boxes, their mail and their journal: what happens to them inside a transaction."""

import json
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from types import EllipsisType
from typing import Any

from rapkit.errors import Fenced, StoreError, WrongKey
from rapkit.keys import Keyring
from rapkit.mailbox import (
    Box,
    Claim,
    Commit,
    Entry,
    Fact,
    Lease,
    Letter,
    Mail,
    NewBox,
    Outgoing,
    Reception,
    Record,
    Stopped,
    Taken,
)
from rapkit.stores.sqlite import statements as sql
from rapkit.stores.sqlite.holding import LOOKAHEAD, PUT_OFF_FOR, free_rows
from rapkit.stores.sqlite.writer import Transaction

_MOST_MAIL_PER_CLAIM = 1000
_LOST_ATTEMPTS_BEFORE_ONE_BY_ONE = 2


log = logging.getLogger("rapkit.store")


class Boxes:
    """Operations on boxes. `enqueue` puts a POST into the outbox within the same transaction."""

    def __init__(
        self, keys: Keyring, lease: Lease, enqueue: Callable[[Outgoing, str | None, Transaction], Taken | None]
    ) -> None:
        self._seal = keys.seal
        self._open = keys.open
        self._lease = lease
        self._enqueue = enqueue

    def create(self, box: NewBox, letter: Letter | None, tx: Transaction) -> bool:
        if letter is not None and letter.box != box.id:
            raise StoreError(
                f"A letter that comes with box {box.id} is for box {letter.box}. It has to be for the same."
            )
        made = self._insert(box, None, None if box.idle else tx.now, tx) is not None
        if made and not box.idle:
            tx.due.add(box.kind)
        if letter is not None:
            self.accept(letter, tx)
        return made

    def create_claimed(self, box: NewBox, worker: str, tx: Transaction) -> Claim | None:
        made = self._insert(box, worker, tx.now + self._lease.seconds, tx)
        if made is None:
            return None
        stopped, epoch = made
        columns = (box.id, box.kind, "open", box.parent, box.root, box.name, box.state, bool(stopped), tx.now)
        whole = Box(*columns, length=0, busy=True)
        return Claim(whole, worker, epoch, attempts=1, mail=(), timers=(), now=tx.now)

    def _insert(self, box: NewBox, worker: str | None, due_at: float | None, tx: Transaction) -> Any:
        sealed = self._seal(box.state)
        row = (box.id, box.kind, box.parent, box.root, box.name, sealed, tx.now, worker, due_at)
        return tx.row(sql.CREATE_BOX, row)

    def accept(self, letter: Letter, tx: Transaction) -> Reception:
        reception, kind, trace = self._admit(letter, tx)
        if kind is not None:
            self._put_in(letter, trace, 0, tx)
            self._wake(letter.box, kind, tx)
        return reception

    def accept_claimed(self, letter: Letter, worker: str, tx: Transaction) -> tuple[Reception, Claim | None]:
        reception, kind, trace = self._admit(letter, tx)
        if kind is None:
            return reception, None
        row = tx.row(sql.CLAIM_IDLE_BOX, (worker, tx.now + self._lease.seconds, letter.box, tx.now))
        if row is None:
            self._put_in(letter, trace, 0, tx)
            self._wake(letter.box, kind, tx)
            return reception, None
        number, *columns, epoch = row
        try:
            box = self._box(columns)
        except WrongKey as error:
            self._put_in(letter, trace, 0, tx)
            self._put_off(number, letter.box, error, tx)
            return reception, None
        mail = Mail(self._put_in(letter, trace, 1, tx), letter.kind, letter.body, tx.now, 1, trace or "")
        return reception, Claim(box, worker, epoch, 1, (mail,), (), tx.now)

    def _admit(self, letter: Letter, tx: Transaction) -> tuple[Reception, str | None, str | None]:
        """Whether a letter is wanted and new; then also of what kind the box is, and the trace that the letter belongs to, if any."""
        needed_kind, needed_key = letter.needs or (None, None)
        key = None if letter.dedup is None else f"letter/{letter.dedup}"
        found = tx.row(sql.BOX_FOR_LETTER, (letter.box, key, needed_kind, needed_key, tx.now))
        kind, status, seen, wanted, trace = found
        if seen:
            return Reception.DUPLICATE, None, None
        if kind is None or status == "closed":
            return Reception.UNKNOWN, None, None
        if not wanted:
            return Reception.UNWANTED, None, None
        if key is not None:
            until = None if letter.remember_for is None else tx.now + letter.remember_for
            tx.write(sql.SEE, (letter.box, key, until))
        return Reception.ACCEPTED, kind, letter.traceparent or trace

    def _put_in(self, letter: Letter, trace: str | None, attempts: int, tx: Transaction) -> int:
        row = (letter.box, letter.kind, self._seal(letter.body), tx.now, attempts, trace)
        seq: int = tx.row(sql.INSERT_MAIL, row)[0]
        return seq

    def _wake(self, id: str, kind: str, tx: Transaction) -> None:
        tx.write(sql.WAKE_BOX, (tx.now, id))
        tx.due.add(kind)

    def _put_off(self, row: int, id: str, error: WrongKey, tx: Transaction) -> None:
        log.error("box %s cannot be opened and is put off for an hour: %s", id, error)
        tx.write(sql.PUT_OFF_BOX, (tx.now + PUT_OFF_FOR, row))

    def note(self, box: NewBox, fact: Fact, expect: bytes | EllipsisType | None, tx: Transaction) -> bool:
        if fact.box != box.id:
            raise StoreError(f"A note beside box {box.id} is about box {fact.box}. It has to be one and the same.")
        status, remembered, sealed = tx.row(sql.BOX_FOR_NOTE, (box.id, fact.kind, fact.key, tx.now))
        if status == "closed" or (status is None and remembered):
            return False
        if expect is not ... and not self._is(expect, sealed):
            return False
        if fact.body is not None and status is None:
            self._insert(box, None, None, tx)
        self.write_fact(fact, tx)
        return True

    def _is(self, expected: bytes | None, sealed: bytes | None) -> bool:
        """Whether the same was sealed; the same bytes never look the same once they are."""
        if expected is None or sealed is None:
            return expected is sealed
        return self._open(sealed) == expected

    def write_fact(self, fact: Fact, tx: Transaction) -> None:
        if fact.body is None:
            tx.write(sql.DROP_FACT, (fact.box, fact.kind, fact.key))
        else:
            tx.write(sql.PUT_FACT, (fact.box, fact.kind, fact.key, self._seal(fact.body)))

    def leave(self, worker: str, tx: Transaction) -> None:
        """What a worker that retires still holds may be taken over at once."""
        tx.due.update(kind for (kind,) in tx.rows(sql.LEAVE_BOXES, (tx.now, worker)))

    def claim(self, worker: str, kind: str, limit: int, tx: Transaction) -> list[Claim]:
        due = tx.rows(sql.DUE_BOXES, (kind, tx.now, limit + LOOKAHEAD))
        until = tx.now + self._lease.seconds
        rows, more = free_rows(due, worker, limit, sql.POSTPONE_BOXES, self._lease.seconds, tx)
        if more:
            tx.due.add(kind)
        if not rows:
            return []
        claimed = {row[0]: row[1:] for row in tx.rows(sql.CLAIM_BOXES, (worker, until, json.dumps(rows)))}
        ids = json.dumps([columns[0] for columns in claimed.values()])
        mail, unreadable = self._mail({columns[0]: columns[-1] for columns in claimed.values()}, ids, tx)
        timers: dict[str, list[str]] = {}
        for id, key in tx.rows(sql.DUE_TIMERS, (ids, tx.now)):
            timers.setdefault(id, []).append(key)
        claims = []
        for row in rows:
            *columns, epoch, attempts = claimed[row]
            try:
                if columns[0] in unreadable:
                    raise unreadable[columns[0]]
                box = self._box(columns)
            except WrongKey as error:
                self._put_off(row, columns[0], error, tx)
                continue
            letters, keys = tuple(mail.get(box.id, ())), tuple(timers.get(box.id, ()))
            claims.append(Claim(box, worker, epoch, attempts, letters, keys, tx.now))
        return claims

    def give_back(self, claims: list[Claim], tx: Transaction) -> None:
        """End claims that nobody took."""
        for claim in claims:
            if tx.row(sql.GIVE_BACK_BOX, (tx.now, claim.box.id, claim.epoch, claim.worker)):
                tx.due.add(claim.box.kind)

    def _mail(
        self, attempts: dict[str, int], ids: str, tx: Transaction
    ) -> tuple[dict[str, list[Mail]], dict[str, WrongKey]]:
        """The mail of boxes, and the boxes with mail that cannot be opened: they must not keep the others from theirs."""
        mail: dict[str, list[Mail]] = {}
        handed: dict[str, list[int]] = {}
        unreadable: dict[str, WrongKey] = {}
        for box, seq, kind, body, at, tries, trace in tx.rows(sql.MAIL_OF_BOXES, (ids, _MOST_MAIL_PER_CLAIM)):
            letters = mail.setdefault(box, [])
            if box in unreadable or (letters and attempts[box] > _LOST_ATTEMPTS_BEFORE_ONE_BY_ONE):
                continue
            try:
                letters.append(Mail(seq, kind, self._open(body), at, tries, trace))
            except WrongKey as error:
                unreadable[box] = error
                handed.pop(box, None)
            else:
                handed.setdefault(box, []).append(seq)
        if handed:
            tx.write(sql.CHARGE_MAIL, (json.dumps([seq for seqs in handed.values() for seq in seqs]),))
        return mail, unreadable

    def commit(self, claim: Claim, commit: Commit, sender: str | None, tx: Transaction) -> list[Taken]:
        id = claim.box.id
        fence = (id, claim.epoch, claim.worker)
        if commit.forget_for is not None:
            if not tx.write(sql.FORGET_BOX, fence):
                raise _fenced(id)
            tx.write(sql.SEE, (id, "", tx.now + commit.forget_for))
            tx.write(sql.REMEMBER_LETTERS, (tx.now + commit.forget_for, id))
        else:
            found = tx.row(sql.FENCE, fence)
            if found is None:
                raise _fenced(id)
            self._consume(id, commit, tx)
            self._keep_records(id, commit, tx)
            length, status = found
            self._write_box(claim, commit, length, status, tx)
        if commit.unsend:
            tx.write(sql.UNSEND_LANES, (json.dumps(list(commit.unsend)),))
        taken = [self._enqueue(outgoing, sender, tx) for outgoing in commit.outgoing]
        for box in commit.spawn:
            self.create(box, None, tx)
        for fact in commit.facts:
            self.write_fact(fact, tx)
        for letter in commit.letters:
            self.accept(letter, tx)
        return [one for one in taken if one is not None]

    def _consume(self, id: str, commit: Commit, tx: Transaction) -> None:
        if commit.consumed:
            gone = tx.write(sql.CONSUME_MAIL, (id, json.dumps(list(commit.consumed))))
            if gone != len(set(commit.consumed)):
                raise StoreError(f"A commit to box {id} consumes mail that is not there.")
        for seq, reason in commit.set_aside.items():
            tx.write(sql.SET_MAIL_ASIDE, (reason, id, seq))

    def _keep_records(self, id: str, commit: Commit, tx: Transaction) -> None:
        for key, seconds in commit.remember.items():
            tx.write(sql.SEE, (id, f"letter/{key}", tx.now + seconds))
        for record in commit.put:
            row = (id, record.kind, record.key, self._seal(record.body), record.traceparent or None)
            tx.write(sql.PUT_RECORD, row)
        for kind, key in commit.drop:
            tx.write(sql.DROP_RECORD, (id, kind, key))
        for timer in commit.timers:
            if timer.at is None:
                tx.write(sql.DROP_TIMER, (id, timer.key))
            else:
                tx.write(sql.SET_TIMER, (id, timer.key, timer.at))

    def _write_box(self, claim: Claim, commit: Commit, length: int, status: str, tx: Transaction) -> None:
        id = claim.box.id
        for number, entry in enumerate(commit.entries, start=length + 1):
            tx.write(sql.APPEND_ENTRY, (id, number, tx.now, entry.kind, self._seal(entry.body)))
        sealed = None if commit.state is None else self._seal(commit.state)
        box = (id, sealed, commit.status, length + len(commit.entries))
        same = commit.status in (None, status)
        if commit.keep:
            tx.write(
                sql.KEEP_CLAIM if same else sql.KEEP_CLAIM_AND_SET_STATUS, (*box, commit.charge, commit.traceparent)
            )
            return
        release = sql.RELEASE_CLAIM if same else sql.RELEASE_CLAIM_AND_SET_STATUS
        (due_at,) = tx.row(release, (*box, commit.charge, tx.now, commit.again_at, commit.traceparent))
        if due_at is not None:
            tx.due.add(claim.box.kind)

    def stop(
        self, kinds: Sequence[str], parent: str, name: str | None, remember_for: float, tx: Transaction
    ) -> Stopped:
        stopped = tx.rows(sql.STOP_BOXES, (tx.now, parent, json.dumps(list(kinds)), name))
        if not stopped:
            # Only then: one that comes later under the name of one that was stopped is another one.
            for kind in kinds if name is not None else ():
                tx.write(sql.SEE, (parent, f"stopped/{kind}/{name}", tx.now + remember_for))
        under = [parent] if name is None else [f"{parent}/{id}" for id, _, _ in stopped]
        return self._end_lanes(stopped, under, tx)

    def stop_box(self, id: str, tx: Transaction) -> Stopped:
        stopped = tx.rows(sql.STOP_BOX, (tx.now, id))
        return self._end_lanes(stopped, [f"{parent}/{id}" for id, _, parent in stopped], tx)

    def _end_lanes(self, stopped: Sequence[tuple[str, str, str]], under: list[str], tx: Transaction) -> Stopped:
        tx.due.update(kind for _, kind, _ in stopped)
        boxes = [id for id, _, _ in stopped]
        dropped = tx.rows(sql.DROP_LANES, (json.dumps(boxes),)) if boxes else []
        dropped += [row for prefix in under for row in tx.rows(sql.DROP_LANES_UNDER, (prefix,))]
        return Stopped(tuple(boxes), tuple(id for id, in_flight in dropped if in_flight))

    def box(self, id: str, tx: Transaction) -> Box | None:
        row = tx.row(sql.BOX, (tx.now, id))
        return None if row is None else self._box(row)

    def boxes(
        self, kind: str, parent: str | None, status: str | None, after: str, limit: int, tx: Transaction
    ) -> list[Box]:
        # To SQLite every blob is greater than any text, so that the empty one stands before the first page.
        page = (tx.now, kind, after or b"", limit)
        if parent is not None:
            rows = tx.rows(sql.BOXES_OF_PARENT, (*page, status, parent))
        elif status is not None:
            rows = tx.rows(sql.BOXES_BY_STATUS, (*page, status))
        else:
            rows = tx.rows(sql.BOXES, page)
        return [self._box(row) for row in rows]

    def _box(self, columns: Any) -> Box:
        id, kind, status, parent, root, name, state, stopped, created_at, length, busy, trace = columns
        plain = self._open(state)
        return Box(id, kind, status, parent, root, name, plain, bool(stopped), created_at, length, bool(busy), trace)

    def entries(self, box: str, after: int, limit: int, tx: Transaction) -> list[Entry]:
        return self._entries(tx.rows(sql.ENTRIES, (box, after, limit)))

    def recent(
        self, box: str, limit: int, before: int | None, kinds: Collection[str] | None, tx: Transaction
    ) -> list[Entry]:
        if kinds is None:
            return self._entries(reversed(tx.rows(sql.RECENT, (box, before, limit))))
        wanted = (box, before, limit, json.dumps(sorted(kinds)))
        return self._entries(reversed(tx.rows(sql.RECENT_OF_KINDS, wanted)))

    def _entries(self, rows: Iterable[Any]) -> list[Entry]:
        return [Entry(kind, self._open(body), seq, at) for kind, body, seq, at in rows]

    def records(self, box: str, kind: str, tx: Transaction) -> list[Record]:
        rows = tx.rows(sql.RECORDS, (box, kind))
        return [Record(kind, key, self._open(body), trace) for key, body, trace in rows]


def _fenced(id: str) -> Fenced:
    return Fenced(f"Box {id} was taken over or stopped; this claim of it changes nothing.")
