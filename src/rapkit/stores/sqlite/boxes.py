"""Transactions on boxes, their mail and their journals."""

import json
import logging
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from types import EllipsisType
from typing import Any, NamedTuple

import apsw

from rapkit.errors import Fenced, StoreError, WrongKey
from rapkit.keyring import SEAL_BYTES, Keyring
from rapkit.mailbox import (
    AcceptResult,
    Box,
    Claim,
    Commit,
    Entry,
    Fact,
    Lease,
    Mail,
    NewBox,
    NewMail,
    Outgoing,
    Quota,
    Record,
    StoppedBoxes,
    TakenPost,
    lanes_of_box,
    lanes_of_name,
)
from rapkit.stores.sqlite import statements as sql
from rapkit.stores.sqlite.due_rows import LOOKAHEAD, PUT_OFF_FOR, free_rows, quota_filters, within_quota
from rapkit.stores.sqlite.writer import Transaction

_MOST_MAIL_PER_CLAIM = 1000
_LOST_ATTEMPTS_BEFORE_ONE_BY_ONE = 2
_POSTED = "posted"


log = logging.getLogger("rapkit.store")


class Charged(NamedTuple):
    """Claims whose attempts are charged and whose mail is still to be read; `mail` are its numbers."""

    claims: list[Claim]
    mail: list[int]


class Boxes:
    """Operations on boxes. `enqueue` puts a POST into the outbox within the same transaction."""

    def __init__(
        self, keys: Keyring, lease: Lease, enqueue: Callable[[Outgoing, str | None, Transaction], TakenPost | None]
    ) -> None:
        self._seal = keys.seal
        self._open = keys.open
        self._lease = lease
        self._enqueue = enqueue

    def create(self, box: NewBox, new_mail: NewMail | None, tx: Transaction) -> bool:
        if new_mail is not None and new_mail.box != box.id:
            raise StoreError(
                f"A letter that comes with box {box.id} is for box {new_mail.box}. It has to be for the same."
            )
        made = self._insert(box, None, None if box.idle else tx.now, tx) is not None
        if made and not box.idle:
            tx.due.add(box.kind)
        if new_mail is not None:
            self.accept(new_mail, tx)
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
        sealed = self._sealed(box.state, tx)
        row = (box.id, box.kind, box.parent, box.root, box.name, sealed, tx.now, worker, due_at, box.share)
        return tx.row(sql.CREATE_BOX, row)

    def accept(self, new_mail: NewMail, tx: Transaction) -> AcceptResult:
        accept_result, kind, trace = self._admit(new_mail, tx)
        if kind is not None:
            self._put_in(new_mail, trace, 0, tx)
            self._wake(new_mail.box, kind, tx)
        return accept_result

    def accept_claimed(self, new_mail: NewMail, worker: str, tx: Transaction) -> tuple[AcceptResult, Claim | None]:
        accept_result, kind, trace = self._admit(new_mail, tx)
        if kind is None:
            return accept_result, None
        row = tx.row(sql.CLAIM_IDLE_BOX, (worker, tx.now + self._lease.seconds, new_mail.box, tx.now))
        if row is None:
            self._put_in(new_mail, trace, 0, tx)
            self._wake(new_mail.box, kind, tx)
            return accept_result, None
        number, *columns, epoch = row
        try:
            box = self._box(columns)
        except WrongKey as error:
            self._put_in(new_mail, trace, 0, tx)
            self._put_off(number, new_mail.box, error, tx)
            return accept_result, None
        mail = Mail(self._put_in(new_mail, trace, 1, tx), new_mail.kind, new_mail.body, tx.now, 1, trace or "")
        return accept_result, Claim(box, worker, epoch, 1, (mail,), (), tx.now)

    def _admit(self, new_mail: NewMail, tx: Transaction) -> tuple[AcceptResult, str | None, str | None]:
        """Whether mail is wanted and new; then also of what kind the box is, and the trace that the mail belongs to, if any."""
        needed_kind, needed_key = new_mail.needs or (None, None)
        key = None if new_mail.dedup is None else f"letter/{new_mail.dedup}"
        found = tx.row(sql.BOX_FOR_MAIL, (new_mail.box, key, needed_kind, needed_key, tx.now))
        kind, status, seen, wanted, trace = found
        if seen:
            return AcceptResult.DUPLICATE, None, None
        if kind is None or status == "closed":
            return AcceptResult.UNKNOWN, None, None
        if not wanted:
            return AcceptResult.UNWANTED, None, None
        if key is not None:
            until = None if new_mail.remember_for is None else tx.now + new_mail.remember_for
            tx.write(sql.SEE, (new_mail.box, key, until))
        return AcceptResult.ACCEPTED, kind, new_mail.traceparent or trace

    def _put_in(self, new_mail: NewMail, trace: str | None, attempts: int, tx: Transaction) -> int:
        row = (new_mail.box, new_mail.kind, self._sealed(new_mail.body, tx), tx.now, attempts, trace)
        seq: int = tx.row(sql.INSERT_MAIL, row)[0]
        return seq

    def _sealed(self, body: bytes, tx: Transaction) -> bytes:
        tx.handle(len(body))
        return self._seal(body)

    def _opened(self, sealed: bytes, tx: Transaction) -> bytes:
        tx.handle(len(sealed))
        return self._open(sealed)

    def _wake(self, id: str, kind: str, tx: Transaction) -> None:
        tx.write(sql.WAKE_BOX, (tx.now, id))
        tx.due.add(kind)

    def _put_off(self, row: int, id: str, error: WrongKey, tx: Transaction) -> None:
        _log_put_off(id, error)
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
            tx.write(sql.PUT_FACT, (fact.box, fact.kind, fact.key, self._sealed(fact.body, tx)))

    def leave(self, worker: str, at: float, tx: Transaction) -> None:
        """Whether what a worker holds may be taken over is looked at no later than at this time."""
        tx.due.update(kind for (kind,) in tx.rows(sql.LEAVE_BOXES, (at, worker)))

    def claim(
        self, worker: str, kind: str, limit: int, mail_bytes: int, quota: Quota[str] | None, tx: Transaction
    ) -> Charged:
        """Claim boxes and charge their mail. It is read after that is committed, so that a process which dies of reading it is counted."""
        due = tx.rows(sql.DUE_BOXES, (kind, tx.now, limit + LOOKAHEAD, *quota_filters(quota)))
        until = tx.now + self._lease.seconds
        free, more = free_rows(due, worker, len(due), sql.POSTPONE_BOXES, self._lease.seconds, tx)
        rows, left_out = within_quota(quota, free, due, limit)
        mail = self._mail_within(mail_bytes, rows, tx)
        if more or left_out or len(mail) < len(rows):
            tx.due.add(kind)
        if not mail:
            return Charged([], [])
        claimed = {row[0]: row[1:] for row in tx.rows(sql.CLAIM_BOXES, (worker, until, json.dumps(list(mail))))}
        ids = json.dumps([columns[0] for columns in claimed.values()])
        timers: dict[str, list[str]] = {}
        for id, key in tx.rows(sql.DUE_TIMERS, (ids, tx.now)):
            timers.setdefault(id, []).append(key)
        charged = Charged([], [])
        for row, seqs in mail.items():
            *columns, epoch, attempts = claimed[row]
            try:
                box = self._box(columns)
            except WrongKey as error:
                self._put_off(row, columns[0], error, tx)
                continue
            charged.claims.append(Claim(box, worker, epoch, attempts, (), tuple(timers.get(box.id, ())), tx.now))
            charged.mail.extend(seqs)
        if charged.mail:
            tx.write(sql.CHARGE_MAIL, (json.dumps(charged.mail),))
        return charged

    def _mail_within(self, room: int, rows: list[int], tx: Transaction) -> dict[int, list[int]]:
        """By box, the numbers of the mail that it is handed: the oldest, as far as there is room for its bytes, but at least one item.

        A box for whose first mail there is no room is left out, and so are those after it, so that they keep their turn.
        """
        mail: dict[int, list[int]] = {}
        any_yet = False
        for row in rows:
            seqs: list[int] = []
            for seq, size, attempts in tx.db.execute(sql.MAIL_SIZES, (row, _MOST_MAIL_PER_CLAIM)):
                room -= size - SEAL_BYTES
                if room < 0 and any_yet:
                    if seqs:
                        mail[row] = seqs
                    return mail
                seqs.append(seq)
                any_yet = True
                if attempts >= _LOST_ATTEMPTS_BEFORE_ONE_BY_ONE:
                    break
            mail[row] = seqs
        return mail

    def read_mail(self, charged: Charged, tx: Transaction) -> tuple[list[Claim], list[Claim]]:
        """The claims with their mail, and those with mail that cannot be opened: they must not keep the others from theirs."""
        mail: dict[str, list[Mail]] = {one.box.id: [] for one in charged.claims}
        unreadable: set[str] = set()
        try:
            # Not all rows at once: each body would be held twice.
            for box, seq, kind, body, *rest in tx.each(sql.READ_MAIL, (json.dumps(charged.mail),)):
                tx.handle(len(body))
                if box in unreadable:
                    continue
                try:
                    mail[box].append(Mail(seq, kind, self._open(body), *rest))
                except WrongKey as error:
                    unreadable.add(box)
                    _log_put_off(box, error)
        except apsw.NoMemError as error:
            raise MemoryError(str(error)) from error
        read = [replace(one, mail=tuple(mail[one.box.id])) for one in charged.claims if one.box.id not in unreadable]
        return read, [one for one in charged.claims if one.box.id in unreadable]

    def give_back(self, claims: list[Claim], tx: Transaction, *, count: bool = False) -> None:
        """End claims that were not handed out; `count` them as attempts all the same."""
        for claim in claims:
            if tx.row(sql.GIVE_BACK_BOX, (tx.now, claim.box.id, claim.epoch, claim.worker, not count)):
                tx.due.add(claim.box.kind)

    def put_off(self, claims: list[Claim], tx: Transaction) -> None:
        """End claims whose mail cannot be opened, and try them another time."""
        for claim in claims:
            tx.row(sql.GIVE_BACK_BOX, (tx.now + PUT_OFF_FOR, claim.box.id, claim.epoch, claim.worker, True))

    def commit(self, claim: Claim, commit: Commit, sender: str | None, tx: Transaction) -> list[TakenPost]:
        id = claim.box.id
        fence = (id, claim.epoch, claim.worker)
        if commit.forget_for is not None:
            if not tx.write(sql.FORGET_BOX, fence):
                raise _fenced(id)
            tx.write(sql.SEE, (id, "", tx.now + commit.forget_for))
            tx.write(sql.REMEMBER_MAIL, (tx.now + commit.forget_for, id))
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
        for new_mail in commit.new_mails:
            self.accept(new_mail, tx)
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
            row = (id, record.kind, record.key, self._sealed(record.body, tx), record.traceparent or None)
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
            tx.write(sql.APPEND_ENTRY, (id, number, tx.now, entry.kind, self._sealed(entry.body, tx)))
        sealed = None if commit.state is None else self._sealed(commit.state, tx)
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
    ) -> StoppedBoxes:
        stopped = tx.rows(sql.STOP_BOXES, (tx.now, parent, json.dumps(list(kinds)), name))
        if not stopped:
            # Only then: one that comes later under the name of one that was stopped is another one.
            for kind in kinds if name is not None else ():
                tx.write(sql.SEE, (parent, f"stopped/{kind}/{name}", tx.now + remember_for))
        # Also if no box matched: views of a call that has ended may still wait.
        return self._end_lanes(stopped, parent if name is None else lanes_of_name(parent, name), tx)

    def stop_box(self, id: str, tx: Transaction) -> StoppedBoxes:
        stopped = tx.rows(sql.STOP_BOX, (tx.now, id))
        if not stopped:
            return StoppedBoxes((), ())
        ((_, _, parent, name),) = stopped
        return self._end_lanes(stopped, lanes_of_box(parent, name, id), tx)

    def _end_lanes(self, stopped: Sequence[tuple[str, str, str, str]], under: str, tx: Transaction) -> StoppedBoxes:
        tx.due.update(kind for _, kind, *_ in stopped)
        boxes = [id for id, *_ in stopped]
        dropped = tx.rows(sql.DROP_LANES, (json.dumps(boxes),)) if boxes else []
        dropped += tx.rows(sql.DROP_LANES_UNDER, (under,))
        return StoppedBoxes(tuple(boxes), tuple(id for id, in_flight in dropped if in_flight))

    def post(self, outgoing: Sequence[Outgoing], key: str, remember_for: float, tx: Transaction) -> bool:
        if tx.row(sql.SEEN, (key, _POSTED, tx.now))[0]:
            return False
        tx.write(sql.SEE, (key, _POSTED, tx.now + remember_for))
        for one in outgoing:
            self._enqueue(one, None, tx)
        return True

    def remembers(self, box: str, dedup: str, tx: Transaction) -> bool:
        return bool(tx.row(sql.SEEN, (box, f"letter/{dedup}", tx.now))[0])

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

    def entries(self, box: str, after: int, limit: int, most_bytes: int | None, tx: Transaction) -> list[Entry]:
        return self._within(tx.each(sql.ENTRIES, (box, after, limit)), most_bytes, tx)

    def recent(
        self,
        box: str,
        limit: int,
        before: int | None,
        kinds: Collection[str] | None,
        most_bytes: int | None,
        tx: Transaction,
    ) -> list[Entry]:
        if kinds is None:
            rows = tx.each(sql.RECENT, (box, before, limit))
        else:
            rows = tx.each(sql.RECENT_OF_KINDS, (box, before, limit, json.dumps(sorted(kinds))))
        return self._within(rows, most_bytes, tx)[::-1]

    def _within(self, rows: Iterator[Any], most_bytes: int | None, tx: Transaction) -> list[Entry]:
        """The first of these rows, as far as there is room for their bodies, but at least one."""
        entries: list[Entry] = []
        room = math.inf if most_bytes is None else most_bytes
        for kind, body, seq, at in rows:
            room -= len(body) - SEAL_BYTES
            if room < 0 and entries:
                break
            entries.append(Entry(kind, self._opened(body, tx), seq, at))
        return entries

    def records(self, box: str, kind: str, tx: Transaction) -> list[Record]:
        rows = tx.each(sql.RECORDS, (box, kind))
        return [Record(kind, key, self._opened(body, tx), trace) for key, body, trace in rows]


def _log_put_off(id: str, error: WrongKey) -> None:
    log.error("box %s cannot be opened and is put off for an hour: %s", id, error)


def _fenced(id: str) -> Fenced:
    return Fenced(f"Box {id} was taken over or stopped; this claim of it changes nothing.")
