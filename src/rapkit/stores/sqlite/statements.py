"""Every SQL statement of the store, by name. Lists of ids travel as JSON arrays."""

from typing import Final

# Opening

SEAL: Final = "SELECT sealed FROM seal"
"""What was sealed when the store was last opened."""

REPLACE_SEAL: Final = "DELETE FROM seal"
"""Make room for a new seal."""

SET_SEAL: Final = "INSERT INTO seal (sealed) VALUES (?)"
"""Seal it anew, with the newest key."""

# Incoming mail

CREATE_BOX: Final = """
    INSERT INTO boxes (id, kind, parent, root, name, state, created_at, worker, share, epoch, attempts, due_at, stopped)
    SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?10, CAST(?7 * 1000 AS INTEGER), ?8 IS NOT NULL, ?9,
           EXISTS (SELECT 1 FROM seen WHERE scope = ?3 AND key = 'stopped/' || ?2 || '/' || ?5 AND expires_at > ?7)
    WHERE NOT EXISTS (SELECT 1 FROM seen WHERE scope = ?1 AND key = '' AND expires_at > ?7)
    ON CONFLICT (id) DO NOTHING
    RETURNING stopped, epoch
"""
"""One row if the box was made, claimed if a worker is named; none if its id is alive or remembered.

Epochs begin at the time, so that a claim of an earlier box with the same id is never taken for one of this box.
"""

BOX_FOR_MAIL: Final = """
    SELECT b.kind, b.status,
           ?2 IS NOT NULL AND EXISTS (SELECT 1 FROM seen WHERE scope = ?1 AND key = ?2 AND (expires_at IS NULL OR expires_at > ?5)),
           ?3 IS NULL OR r.box IS NOT NULL, r.traceparent
    FROM (SELECT 1) LEFT JOIN boxes b ON b.id = ?1 LEFT JOIN records r ON r.box = ?1 AND r.kind = ?3 AND r.key = ?4
"""
"""Kind and status of the box, if there is one; whether the mail was seen before; whether the record it needs is there, and its trace."""

SEE: Final = """
    INSERT INTO seen (scope, key, expires_at) VALUES (?, ?, ?)
    ON CONFLICT DO UPDATE SET expires_at = max(expires_at, excluded.expires_at)
"""
"""Remember a key, for ever (NULL) or until a time, whichever is longer."""

SEEN: Final = """
    SELECT EXISTS (SELECT 1 FROM seen WHERE scope = ?1 AND key = ?2 AND (expires_at IS NULL OR expires_at > ?3))
"""
"""Whether a key is remembered."""

BOX_FOR_NOTE: Final = """
    SELECT b.status, EXISTS (SELECT 1 FROM seen WHERE scope = ?1 AND key = '' AND expires_at > ?4), r.body
    FROM (SELECT 1) LEFT JOIN boxes b ON b.id = ?1 LEFT JOIN records r ON r.box = ?1 AND r.kind = ?2 AND r.key = ?3
"""
"""Status of the box, if there is one; whether it was ended and is remembered; the record as it stands, if there is one."""

INSERT_MAIL: Final = """
    INSERT INTO mail (box, kind, body, accepted_at, attempts, traceparent) VALUES (?, ?, ?, ?, ?, ?) RETURNING seq
"""
"""Insert accepted mail."""

WAKE_BOX: Final = "UPDATE boxes SET due_at = min(ifnull(due_at, ?1), ?1) WHERE id = ?2 AND worker IS NULL"
"""Make a box due, unless it is claimed: then the end of the claim finds the mail."""

# Work

RENEW_LEASE: Final = """
    INSERT INTO workers (id, expires_at) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at
"""
"""Make or prolong a worker's lease."""

LEASE_END: Final = "SELECT expires_at FROM workers WHERE id = ?"
"""When a worker's lease ends."""

LATE_LEASES: Final = "SELECT id, expires_at FROM workers WHERE expires_at > ?"
"""The leases that end after a time."""

END_LEASE: Final = "DELETE FROM workers WHERE id = ?"
"""End a worker's lease."""

LEAVE_BOXES: Final = """
    UPDATE boxes INDEXED BY boxes_due SET due_at = ?1 WHERE worker = ?2 AND due_at > ?1 RETURNING kind
"""
"""Let others look at the boxes of a worker no later than at a time. Idle boxes are not in the index, so they cost nothing."""

LEAVE_OUTGOING: Final = """
    UPDATE outbox INDEXED BY outbox_due SET due_at = ?1 WHERE worker = ?2 AND due_at > ?1 RETURNING 1
"""
"""The same for POSTs."""

DUE_BOXES: Final = """
    SELECT b.row, b.worker, ifnull(w.expires_at, 0), b.share FROM boxes b LEFT JOIN workers w ON w.id = b.worker
    WHERE b.kind = ?1 AND b.due_at <= ?2 AND b.share NOT IN (SELECT value FROM json_each(?4))
      AND (?5 IS NULL OR b.share IN (SELECT value FROM json_each(?5)))
    ORDER BY b.due_at, b.row LIMIT ?3
"""
"""The boxes longest due, each with who holds it until when, and its share: none of some shares, and only of some if these are named."""

CLAIM_IDLE_BOX: Final = """
    UPDATE boxes SET worker = ?1, epoch = epoch + 1, attempts = 1, due_at = ?2
    WHERE id = ?3 AND worker IS NULL AND attempts = 0 AND ifnull(due_at, ?4 + 1) > ?4
    RETURNING row, id, kind, status, parent, root, name, state, stopped, created_at, length, 1, ifnull(traceparent, ''), epoch
"""
"""Claim a box that no worker has and for which nothing is due: so the mail that comes now is all it has."""

POSTPONE_BOXES: Final = "UPDATE boxes SET due_at = ?1 WHERE row IN (SELECT value FROM json_each(?2))"
"""Look again later at boxes whose worker is alive."""

CLAIM_BOXES: Final = """
    UPDATE boxes SET worker = ?1, epoch = epoch + 1, attempts = attempts + 1, due_at = ?2
    WHERE row IN (SELECT value FROM json_each(?3))
    RETURNING row, id, kind, status, parent, root, name, state, stopped, created_at, length, 1, ifnull(traceparent, ''), epoch, attempts
"""
"""Claim these boxes."""

PUT_OFF_BOX: Final = "UPDATE boxes SET worker = NULL, attempts = attempts - 1, due_at = ? WHERE row = ?"
"""Try a claimed box another time that cannot be opened now."""

PUT_OFF_OUTGOING: Final = (
    "UPDATE outbox SET worker = NULL, attempts = attempts - 1, due_at = ?, problem = ? WHERE seq = ?"
)
"""The same for a POST."""

GIVE_BACK_BOX: Final = """
    UPDATE boxes SET worker = NULL, attempts = attempts - ?5, due_at = ?1 WHERE id = ?2 AND epoch = ?3 AND worker = ?4 RETURNING kind
"""
"""End a claim that was not handed out; ?5 is 1 if it does not count as an attempt, else 0."""

GIVE_BACK_OUTGOING: Final = """
    UPDATE outbox SET worker = NULL, attempts = attempts - 1, due_at = ?1 WHERE seq = ?2 AND epoch = ?3 AND worker IS NOT NULL
"""
"""The same for a POST."""

MAIL_SIZES: Final = """
    SELECT m.seq, length(m.body), b.attempts FROM boxes b JOIN mail m ON m.box = b.id
    WHERE b.row = ?1 AND m.set_aside IS NULL ORDER BY m.seq LIMIT ?2
"""
"""The oldest mail of a box, its size, and the attempts of the box. For a length SQLite does not read the body."""

READ_MAIL: Final = """
    SELECT box, seq, kind, body, accepted_at, attempts, ifnull(traceparent, '')
    FROM mail WHERE seq IN (SELECT value FROM json_each(?)) ORDER BY seq
"""
"""The mail of claims, in acceptance order."""

CHARGE_MAIL: Final = "UPDATE mail SET attempts = attempts + 1 WHERE seq IN (SELECT value FROM json_each(?))"
"""Charge an attempt to the mail that is handed out."""

DUE_TIMERS: Final = (
    "SELECT box, key FROM timers WHERE box IN (SELECT value FROM json_each(?)) AND at <= ? ORDER BY at, key"
)
"""Timers of claimed boxes that are due."""

# Commit

FORGET_BOX: Final = "DELETE FROM boxes WHERE id = ? AND epoch = ? AND worker = ?"
"""Delete a box with all that is kept with it, if the claim is its last."""

FENCE: Final = "SELECT length, status FROM boxes WHERE id = ? AND epoch = ? AND worker = ?"
"""The length of the journal and the status, if the claim is the box's last."""

REMEMBER_MAIL: Final = (
    "UPDATE seen SET expires_at = min(ifnull(expires_at, ?1), ?1) WHERE scope = ?2 AND key GLOB 'letter/*'"
)
"""Remember the mail of a box that is forgotten no longer than its id."""

CONSUME_MAIL: Final = "DELETE FROM mail WHERE box = ? AND seq IN (SELECT value FROM json_each(?)) AND set_aside IS NULL"
"""Take consumed mail away, by explicit number: what came meanwhile stays."""

SET_MAIL_ASIDE: Final = "UPDATE mail SET set_aside = ? WHERE box = ? AND seq = ? AND set_aside IS NULL"
"""Set mail aside with its reason."""

APPEND_ENTRY: Final = "INSERT INTO entries (box, seq, at, kind, body) VALUES (?, ?, ?, ?, ?)"
"""The next line of a journal."""

PUT_RECORD: Final = """
    INSERT INTO records (box, kind, key, body, traceparent) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (box, kind, key) DO UPDATE SET body = excluded.body, traceparent = excluded.traceparent
"""
"""Write a record."""

DROP_RECORD: Final = "DELETE FROM records WHERE box = ? AND kind = ? AND key = ?"
"""Delete a record."""

PUT_FACT: Final = """
    INSERT INTO records (box, kind, key, body)
    SELECT ?1, ?2, ?3, ?4 WHERE EXISTS (SELECT 1 FROM boxes WHERE id = ?1 AND status <> 'closed')
    ON CONFLICT (box, kind, key) DO UPDATE SET body = excluded.body, traceparent = NULL
"""
"""Write a record beside a box that another worker may have, unless it is gone or closed."""

DROP_FACT: Final = """
    DELETE FROM records WHERE box = ?1 AND kind = ?2 AND key = ?3 AND EXISTS (SELECT 1 FROM boxes WHERE id = ?1 AND status <> 'closed')
"""
"""Delete a record of such a box."""

SET_TIMER: Final = (
    "INSERT INTO timers (box, key, at) VALUES (?, ?, ?) ON CONFLICT (box, key) DO UPDATE SET at = excluded.at"
)
"""Set a timer."""

DROP_TIMER: Final = "DELETE FROM timers WHERE box = ? AND key = ?"
"""Take a timer away."""

KEEP_CLAIM: Final = """
    UPDATE boxes SET
        state = ifnull(?2, state), length = ?4, traceparent = ifnull(?6, traceparent),
        attempts = CASE WHEN ?5 THEN attempts ELSE 0 END
    WHERE id = ?1
"""
"""Write a box's state and hold on to the claim."""

KEEP_CLAIM_AND_SET_STATUS: Final = KEEP_CLAIM.replace("SET", "SET status = ?3,", 1)
"""And its status: apart, since whatever is assigned is written to the index anew, even if it stays the same."""

RELEASE_CLAIM: Final = """
    UPDATE boxes SET
        state = ifnull(?2, state), length = ?4, traceparent = ifnull(?8, traceparent), worker = NULL,
        attempts = CASE WHEN ?5 THEN attempts ELSE 0 END,
        due_at = CASE
            WHEN ?5 AND ?7 IS NOT NULL THEN ?7
            WHEN EXISTS (SELECT 1 FROM mail WHERE box = ?1 AND set_aside IS NULL) THEN ?6
            ELSE (SELECT min(at) FROM (SELECT at FROM timers WHERE box = ?1 UNION ALL SELECT ?7))
        END
    WHERE id = ?1
    RETURNING due_at
"""
"""Write a box's state and end the claim.

The box is due at once if there is mail, else at its next timer or when the commit asked for it. A failed slice that names a time is not due
before it, mail and timers or not: that is its backoff.
"""

RELEASE_CLAIM_AND_SET_STATUS: Final = RELEASE_CLAIM.replace("SET", "SET status = ?3,", 1)
"""And its status."""

STOP_BOXES: Final = """
    UPDATE boxes SET stopped = 1, epoch = epoch + 1, worker = NULL, due_at = ?1
    WHERE parent = ?2 AND kind IN (SELECT value FROM json_each(?3)) AND (?4 IS NULL OR name = ?4)
    RETURNING id, kind, parent, name
"""
"""Take boxes from the workers that run them and mark them stopped."""

STOP_BOX: Final = """
    UPDATE boxes SET stopped = 1, epoch = epoch + 1, worker = NULL, due_at = ?1 WHERE id = ?2 RETURNING id, kind, parent, name
"""
"""The same for one box."""

# Out

INSERT_OUTGOING: Final = """
    INSERT INTO outbox (id, lane, kind, origin, sealed, once, not_before, created_at, latest, due_at, worker, epoch, attempts, first_at)
    SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?11, CASE WHEN first THEN ifnull(?10, ?7) END,
           CASE WHEN first THEN ?9 END, first AND ?9 IS NOT NULL, first AND ?9 IS NOT NULL, CASE WHEN first AND ?9 IS NOT NULL THEN ?8 END
    FROM (SELECT NOT EXISTS (SELECT 1 FROM outbox WHERE lane = ?2 AND dead_at IS NULL) AS first)
    RETURNING seq, worker IS NOT NULL
"""
"""A POST to be made: due now, or when those before it in its lane are gone. The first of a lane is taken if a sender is named."""

REPLACE_LATEST: Final = "DELETE FROM outbox WHERE lane = ? AND dead_at IS NULL AND worker IS NULL AND latest"
"""Delete what waits in a lane of which only the newest matters."""

DROP_REPLACED: Final = """
    DELETE FROM outbox WHERE seq IN (SELECT value FROM json_each(?)) AND latest
      AND EXISTS (SELECT 1 FROM outbox newer WHERE newer.lane = outbox.lane AND newer.seq > outbox.seq AND newer.dead_at IS NULL)
    RETURNING seq, lane
"""
"""Delete those of these POSTs that a newer one has replaced while a sender had them in hand."""

DROP_LANES_UNDER: Final = """
    DELETE FROM outbox WHERE lane > ?1 || '/' AND lane < ?1 || '0' AND dead_at IS NULL RETURNING id, worker IS NOT NULL
"""
"""Delete all that is queued in lanes whose names begin so, up to a slash ('0' comes after it)."""

UNSEND_LANES: Final = """
    DELETE FROM outbox WHERE lane IN (SELECT value FROM json_each(?)) AND dead_at IS NULL
"""
"""Delete what is queued in these lanes, so that no sender sends it again; what a sender has taken may have left."""

DROP_LANES: Final = """
    DELETE FROM outbox WHERE lane IN (SELECT value FROM json_each(?)) AND dead_at IS NULL RETURNING id, worker IS NOT NULL
"""
"""Delete all that is queued in these lanes, taken by a sender or not, so that no sender sends it again."""

IN_FLIGHT: Final = (
    "SELECT id FROM outbox WHERE lane IN (SELECT value FROM json_each(?)) AND dead_at IS NULL AND worker IS NOT NULL"
)
"""What some sender of these lanes has in its hands."""

DUE_OUTGOING: Final = """
    SELECT o.seq, o.worker, ifnull(w.expires_at, 0), o.latest || o.origin FROM outbox o LEFT JOIN workers w ON w.id = o.worker
    WHERE o.due_at <= ?1 AND (o.latest || o.origin) NOT IN (SELECT value FROM json_each(?3))
      AND (?4 IS NULL OR (o.latest || o.origin) IN (SELECT value FROM json_each(?4)))
      AND (?5 IS NULL OR length(o.sealed) <= ?5)
    ORDER BY o.due_at, o.seq LIMIT ?2
"""
"""The POSTs longest due, each with who holds it until when, and its share: none of some shares, and only of some if these are named.

If a size is named, none that is larger. For a length SQLite does not read the body.
"""

OUTGOING_SIZES: Final = "SELECT seq, length(sealed) FROM outbox WHERE seq IN (SELECT value FROM json_each(?))"
"""How large these POSTs are."""

POSTPONE_OUTGOING: Final = "UPDATE outbox SET due_at = ?1 WHERE seq IN (SELECT value FROM json_each(?2))"
"""Look again later at POSTs whose sender is alive."""

TAKE_OUTGOING: Final = """
    UPDATE outbox SET worker = ?1, epoch = epoch + 1, attempts = attempts + 1, due_at = ?2, first_at = ifnull(first_at, ?3)
    WHERE seq IN (SELECT value FROM json_each(?4))
    RETURNING seq, id, lane, kind, origin, sealed, once, latest, epoch, attempts, ?3 - first_at
"""
"""Take these POSTs."""

NEWER_IN_LANE: Final = "SELECT 1 FROM outbox WHERE lane = ? AND seq > ? AND dead_at IS NULL LIMIT 1"
"""Whether another POST was put into a lane after this one."""

DELETE_OUTGOING: Final = "DELETE FROM outbox WHERE seq = ?"
"""A POST that is about to be sent once."""

HELD: Final = """
    SELECT o.id FROM json_each(?) AS asked JOIN outbox AS o ON o.seq = asked.value ->> 0
    WHERE o.epoch = asked.value ->> 1 AND o.worker IS NOT NULL
"""
"""Those of these POSTs, each a number and an epoch, that are still their sender's."""

DELIVERED: Final = "DELETE FROM outbox WHERE seq = ? AND epoch = ? AND worker IS NOT NULL"
"""A POST that got through, if it is still its sender's."""

RETRY: Final = """
    UPDATE outbox SET worker = NULL, due_at = ?1, problem = ?2 WHERE seq = ?3 AND epoch = ?4 AND worker IS NOT NULL
"""
"""A POST that is to be tried again, if it is still its sender's."""

GIVE_UP: Final = """
    UPDATE outbox SET worker = NULL, due_at = NULL, problem = ?1, dead_at = ?2 WHERE seq = ?3 AND epoch = ?4 AND worker IS NOT NULL
"""
"""A POST that is given up, if it is still its sender's."""

ADVANCE_LANE: Final = """
    UPDATE outbox SET due_at = max(not_before, ?1)
    WHERE seq = (SELECT min(seq) FROM outbox WHERE lane = ?2 AND dead_at IS NULL) AND worker IS NULL AND due_at IS NULL
"""
"""Make the first POST of a lane due."""

RESEND: Final = """
    UPDATE outbox SET dead_at = NULL, attempts = 0, first_at = NULL, problem = NULL, due_at = NULL
    WHERE id IN (SELECT value FROM json_each(?)) AND dead_at IS NOT NULL
    RETURNING lane
"""
"""Put given-up POSTs back."""

QUEUE_UP: Final = """
    UPDATE outbox SET due_at = NULL
    WHERE lane = ?1 AND dead_at IS NULL AND worker IS NULL AND due_at IS NOT NULL
      AND seq > (SELECT min(seq) FROM outbox WHERE lane = ?1 AND dead_at IS NULL)
"""
"""The first POST of a lane waits again if another was put back before it."""

# Waiting and looking

DUE_BOX_FREE_AT: Final = """
    SELECT ifnull(w.expires_at, 0) FROM boxes b INDEXED BY boxes_due LEFT JOIN workers w ON w.id = b.worker
    WHERE b.kind = ?2 AND b.due_at <= ?1
"""
"""From when on each box of a kind that is to be looked at may be claimed; 0 if no worker holds it."""

NEXT_BOX: Final = "SELECT min(due_at) FROM boxes WHERE kind = ?2 AND due_at > ?1"
"""When a box of a kind is to be looked at next, after those that are now."""

DUE_OUTGOING_FREE_AT: Final = """
    SELECT ifnull(w.expires_at, 0) FROM outbox o INDEXED BY outbox_due LEFT JOIN workers w ON w.id = o.worker WHERE o.due_at <= ?1
"""
"""The same for POSTs that are to be looked at."""

NEXT_OUTGOING: Final = "SELECT min(due_at) FROM outbox WHERE due_at > ?1"
"""When a POST is to be looked at next."""

_BOX: Final = """
    SELECT id, kind, status, parent, root, name, state, stopped, created_at, length,
           worker IS NOT NULL OR ifnull(due_at <= ?1, 0), ifnull(traceparent, '')
    FROM boxes
"""

BOX: Final = f"{_BOX} WHERE id = ?2"
"""One box, and whether it is busy."""

BOXES: Final = f"""
    {_BOX} WHERE kind = ?2 AND id < ?3 AND root IS NOT NULL ORDER BY id DESC LIMIT ?4
"""
"""A page of the boxes of a kind that are listed."""

BOXES_BY_STATUS: Final = f"""
    {_BOX} WHERE kind = ?2 AND id < ?3 AND root IS NOT NULL AND status = ?5 ORDER BY id DESC LIMIT ?4
"""
"""A page of those that have a status."""

BOXES_OF_PARENT: Final = f"""
    {_BOX} INDEXED BY boxes_family
    WHERE kind = ?2 AND id < ?3 AND root IS NOT NULL AND (?5 IS NULL OR status = ?5) AND parent = ?6 ORDER BY id DESC LIMIT ?4
"""
"""A page of those that belong to a parent, and have a status if one is named.

`INDEXED BY`, because SQLite does not know that a parent has few boxes and a kind many.
"""

KNOWN: Final = """
    SELECT EXISTS (SELECT 1 FROM boxes WHERE id = ?1) OR EXISTS (SELECT 1 FROM seen WHERE scope = ?1 AND key = '' AND expires_at > ?2)
"""
"""Whether a box is alive or remembered."""

BACKLOG_OF_SHARES: Final = """
    SELECT share, count(*) FROM boxes WHERE kind = ?1 AND due_at IS NOT NULL AND (due_at <= ?2 OR worker IS NOT NULL) GROUP BY share
"""
"""The same as `BACKLOG` for each share that has any."""

BACKLOG: Final = """
    SELECT count(*) FROM boxes WHERE kind = ?1 AND due_at IS NOT NULL AND (due_at <= ?2 OR worker IS NOT NULL)
"""
"""How many boxes of a kind are due or being run; those that wait for a time are not."""

LOAD_OF_MAIL: Final = """
    SELECT count(*), min(accepted_at) FROM (SELECT accepted_at FROM mail WHERE set_aside IS NULL ORDER BY accepted_at LIMIT ?)
"""
"""How much mail is unread, counted so far, and since when the oldest is."""

LOAD_OF_BOXES: Final = """
    SELECT count(*) FROM (SELECT 1 FROM boxes WHERE kind = ?1 AND due_at <= ?2 LIMIT ?3)
"""
"""How many boxes of a kind are to be looked at, counted so far; the index alone is read, so that who has them is not asked."""

LOAD_OF_OUTBOX: Final = """
    SELECT count(*), min(created_at) FROM (SELECT created_at FROM outbox WHERE dead_at IS NULL ORDER BY created_at LIMIT ?)
"""
"""How many POSTs are to be delivered, counted so far, and since when the oldest is."""

LOAD_OF_DEAD: Final = "SELECT count(*) FROM (SELECT 1 FROM outbox WHERE dead_at IS NOT NULL LIMIT ?)"
"""How many POSTs were given up, counted so far."""

WAITING: Final = "SELECT count(*) FROM outbox WHERE lane = ? AND dead_at IS NULL"
"""How many POSTs of a lane are to be delivered."""

ENTRIES: Final = "SELECT kind, body, seq, at FROM entries WHERE box = ? AND seq > ? ORDER BY seq LIMIT ?"
"""A stretch of a journal."""

RECENT: Final = """
    SELECT kind, body, seq, at FROM entries WHERE box = ?1 AND seq < ifnull(?2, 9e18) ORDER BY seq DESC LIMIT ?3
"""
"""The end of a journal, or of what is before an entry; newest first."""

RECENT_OF_KINDS: Final = """
    SELECT kind, body, seq, at FROM entries WHERE box = ?1 AND seq < ifnull(?2, 9e18) AND kind IN (SELECT value FROM json_each(?4))
    ORDER BY seq DESC LIMIT ?3
"""
"""The same, without the entries of other kinds."""

RECORDS: Final = """
    SELECT key, body, ifnull(traceparent, '') FROM records WHERE box = ? AND kind = ? ORDER BY key
"""
"""Records of a box."""

OUTBOX_ROWS: Final = """
    SELECT id, lane, kind, origin, attempts, problem, created_at, due_at, dead_at FROM outbox
    WHERE (dead_at IS NOT NULL) = ? AND id > ? ORDER BY id LIMIT ?
"""
"""The outbox as a person may see it."""

# Housekeeping

SWEEP_SEEN: Final = (
    "DELETE FROM seen WHERE (scope, key) IN (SELECT scope, key FROM seen WHERE expires_at <= ? LIMIT 500)"
)
"""Forget some keys that need not be remembered any longer."""

SWEEP_DEAD_LETTERS: Final = "DELETE FROM outbox WHERE seq IN (SELECT seq FROM outbox WHERE dead_at <= ? LIMIT 500)"
"""Delete some dead letters that were given up before a time."""

SWEEP_WORKERS: Final = "DELETE FROM workers WHERE expires_at <= ? - 86400"
"""Forget workers a day after their lease."""
