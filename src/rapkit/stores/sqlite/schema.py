"""The tables and their migrations.

Times are seconds since 1970. `due_at` is NULL where nothing is due. Blobs are sealed (see `rapkit.keyring`); ids, kinds, names, times,
origins and trace contexts are in clear.
"""

from typing import Final

APPLICATION_ID: Final = 0x52415032  # "RAP2"
UNRELEASED: Final = 0x52415031  # "RAP1": tables from before the first release, which nothing leads on from

MIGRATIONS: Final = (
    """
    CREATE TABLE boxes (
        row         INTEGER PRIMARY KEY,
        id          TEXT NOT NULL UNIQUE,
        kind        TEXT NOT NULL,
        status      TEXT NOT NULL DEFAULT 'open',
        parent      TEXT,
        root        TEXT,
        name        TEXT,
        traceparent TEXT,
        state       BLOB NOT NULL,
        due_at      REAL,
        worker      TEXT,
        epoch       INTEGER NOT NULL DEFAULT 0,
        attempts    INTEGER NOT NULL DEFAULT 0,
        stopped     INTEGER NOT NULL DEFAULT 0,
        length      INTEGER NOT NULL DEFAULT 0,
        created_at  REAL NOT NULL
    );
    CREATE INDEX boxes_due ON boxes (kind, due_at) WHERE due_at IS NOT NULL;
    CREATE INDEX boxes_family ON boxes (parent, name) WHERE parent IS NOT NULL;
    -- Only boxes with a root are listed: the many that come and go, such as a tool server's calls, have none and are not in these.
    CREATE INDEX boxes_listed ON boxes (kind, id) WHERE root IS NOT NULL;
    CREATE INDEX boxes_by_status ON boxes (kind, status, id) WHERE root IS NOT NULL;

    CREATE TABLE mail (
        seq         INTEGER PRIMARY KEY AUTOINCREMENT,
        box         TEXT NOT NULL REFERENCES boxes (id) ON DELETE CASCADE,
        kind        TEXT NOT NULL,
        body        BLOB NOT NULL,
        accepted_at REAL NOT NULL,
        attempts    INTEGER NOT NULL DEFAULT 0,
        set_aside   TEXT,
        traceparent TEXT
    );
    CREATE INDEX mail_of_box ON mail (box, seq);
    CREATE INDEX mail_unread ON mail (accepted_at, set_aside) WHERE set_aside IS NULL;

    CREATE TABLE entries (
        box  TEXT NOT NULL REFERENCES boxes (id) ON DELETE CASCADE,
        seq  INTEGER NOT NULL,
        at   REAL NOT NULL,
        kind TEXT NOT NULL,
        body BLOB NOT NULL,
        UNIQUE (box, seq)
    );

    CREATE TABLE records (
        box         TEXT NOT NULL REFERENCES boxes (id) ON DELETE CASCADE,
        kind        TEXT NOT NULL,
        key         TEXT NOT NULL,
        body        BLOB NOT NULL,
        traceparent TEXT,
        UNIQUE (box, kind, key)
    );

    CREATE TABLE timers (
        box TEXT NOT NULL REFERENCES boxes (id) ON DELETE CASCADE,
        key TEXT NOT NULL,
        at  REAL NOT NULL,
        PRIMARY KEY (box, key)
    ) WITHOUT ROWID;

    -- What was seen before: (box, '') a finished box, (box, 'letter/' || dedup) a letter, (parent, 'stopped/kind/name') a box that was
    -- stopped before it came.
    CREATE TABLE seen (
        scope      TEXT NOT NULL,
        key        TEXT NOT NULL,
        expires_at REAL,
        PRIMARY KEY (scope, key)
    ) WITHOUT ROWID;
    CREATE INDEX seen_expiry ON seen (expires_at) WHERE expires_at IS NOT NULL;

    -- due_at is NULL while another POST of the lane is before this one, and for dead letters.
    CREATE TABLE outbox (
        seq        INTEGER PRIMARY KEY AUTOINCREMENT,
        id         TEXT NOT NULL UNIQUE,
        lane       TEXT NOT NULL,
        kind       TEXT NOT NULL,
        origin     TEXT NOT NULL,
        sealed     BLOB NOT NULL,
        once       INTEGER NOT NULL,
        latest     INTEGER NOT NULL,
        due_at     REAL,
        not_before REAL NOT NULL,
        worker     TEXT,
        epoch      INTEGER NOT NULL DEFAULT 0,
        attempts   INTEGER NOT NULL DEFAULT 0,
        first_at   REAL,
        problem    TEXT,
        created_at REAL NOT NULL,
        dead_at    REAL
    );
    CREATE INDEX outbox_due ON outbox (due_at, origin, latest) WHERE due_at IS NOT NULL;
    CREATE INDEX outbox_lane ON outbox (lane, seq) WHERE dead_at IS NULL;
    CREATE INDEX outbox_age ON outbox (created_at, dead_at) WHERE dead_at IS NULL;
    CREATE INDEX outbox_dead ON outbox (dead_at) WHERE dead_at IS NOT NULL;

    -- One row that opens if the keys at hand are those the rest was sealed with.
    CREATE TABLE seal (sealed BLOB NOT NULL);

    CREATE TABLE workers (
        id         TEXT PRIMARY KEY,
        expires_at REAL NOT NULL
    ) WITHOUT ROWID;
    """,
    """
    ALTER TABLE boxes ADD COLUMN share TEXT NOT NULL DEFAULT '';
    DROP INDEX boxes_due;
    CREATE INDEX boxes_due ON boxes (kind, due_at, share) WHERE due_at IS NOT NULL;
    """,
)
