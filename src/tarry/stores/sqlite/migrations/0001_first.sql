-- A lane is one kind of one namespace; rows carry its small number instead of both names.
CREATE TABLE lane (
    id INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    kind TEXT NOT NULL,
    paused INTEGER NOT NULL DEFAULT 0,
    UNIQUE (namespace, kind)
);

-- One row per ref: the running attempt if there is one (token is set), else the waiting revision.
CREATE TABLE task (
    id INTEGER PRIMARY KEY,
    lane INTEGER NOT NULL,
    key TEXT NOT NULL,
    due INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    created INTEGER NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 0,
    snoozes INTEGER NOT NULL DEFAULT 0,
    lost INTEGER NOT NULL DEFAULT 0,
    nominal INTEGER NOT NULL DEFAULT 0,
    declared INTEGER NOT NULL DEFAULT 0,
    cancelled INTEGER NOT NULL DEFAULT 0,
    keep_ms INTEGER NOT NULL DEFAULT 0,
    rule TEXT NOT NULL DEFAULT '',
    reason TEXT NOT NULL DEFAULT '',
    token INTEGER,
    expires INTEGER,
    holder TEXT,
    headers BLOB NOT NULL DEFAULT x'',
    payload BLOB NOT NULL,
    UNIQUE (lane, key)
);
CREATE INDEX task_waiting ON task (lane, due) WHERE token IS NULL;
CREATE INDEX task_leased ON task (expires) WHERE token IS NOT NULL;

-- The revision that waits behind a running attempt, by the id of the attempt's row.
CREATE TABLE behind (
    id INTEGER PRIMARY KEY,
    lane INTEGER NOT NULL,
    key TEXT NOT NULL,
    due INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    created INTEGER NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 0,
    snoozes INTEGER NOT NULL DEFAULT 0,
    lost INTEGER NOT NULL DEFAULT 0,
    nominal INTEGER NOT NULL DEFAULT 0,
    declared INTEGER NOT NULL DEFAULT 0,
    cancelled INTEGER NOT NULL DEFAULT 0,
    keep_ms INTEGER NOT NULL DEFAULT 0,
    rule TEXT NOT NULL DEFAULT '',
    reason TEXT NOT NULL DEFAULT '',
    headers BLOB NOT NULL DEFAULT x'',
    payload BLOB NOT NULL
);

-- What has ended: dead letters for good, done and cancelled tasks until `until`.
CREATE TABLE ended (
    id INTEGER PRIMARY KEY,
    lane INTEGER NOT NULL,
    key TEXT NOT NULL,
    due INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    created INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    snoozes INTEGER NOT NULL,
    lost INTEGER NOT NULL,
    nominal INTEGER NOT NULL,
    declared INTEGER NOT NULL,
    cancelled INTEGER NOT NULL,
    keep_ms INTEGER NOT NULL,
    rule TEXT NOT NULL,
    reason TEXT NOT NULL,
    headers BLOB NOT NULL,
    payload BLOB NOT NULL,
    state TEXT NOT NULL,
    at INTEGER NOT NULL,
    until INTEGER,
    UNIQUE (lane, key, revision)
);
CREATE INDEX ended_state ON ended (state, lane, id);
CREATE INDEX ended_until ON ended (until) WHERE until IS NOT NULL;

-- The high-water mark of revisions, and who drew the block below it.
CREATE TABLE revision (upto INTEGER NOT NULL, owner INTEGER NOT NULL);
INSERT INTO revision VALUES (0, 0);

-- For people with a shell: every task by name.
CREATE VIEW tasks AS
    SELECT lane.namespace, lane.kind, task.key,
           CASE WHEN token IS NULL THEN 'scheduled' ELSE 'leased' END AS state,
           datetime(due / 1000, 'unixepoch') AS due_utc, due, revision, attempt, payload
    FROM task JOIN lane ON lane.id = task.lane;
