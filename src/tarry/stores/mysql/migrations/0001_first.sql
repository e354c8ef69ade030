-- Every statement may be repeated: there are no transactions around changes of a schema here, and
-- one that was interrupted is taken up where it stood.

-- A lane is one kind of one namespace; rows carry its small number instead of both names.
CREATE TABLE IF NOT EXISTS tarry_lane (
    id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
    namespace VARBINARY(64) NOT NULL,
    kind VARBINARY(128) NOT NULL,
    paused TINYINT NOT NULL DEFAULT 0,
    UNIQUE KEY name (namespace, kind)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- One row per ref. Its own columns hold the running attempt if there is one (leased = 1), else the
-- waiting revision; the columns b_… hold the revision that waits behind a running attempt.
--   at        when a claim may find it: its due, or the end of its lease
--   revision  0: id * 4096, the first one that a new row draws
--   base      what further revisions are counted from (0: id), and drawn, how many there were
--   said      what the last schedule of it answered: see upsert.py
--   token     0 while it waits; a claim changes no column's length, or the row would have to move
CREATE TABLE IF NOT EXISTS tarry_task (
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    lane INT UNSIGNED NOT NULL,
    `key` VARBINARY(512) NOT NULL,
    leased TINYINT NOT NULL DEFAULT 0,
    at BIGINT NOT NULL,
    due BIGINT NOT NULL,
    revision BIGINT NOT NULL DEFAULT 0,
    base BIGINT NOT NULL DEFAULT 0,
    drawn SMALLINT NOT NULL DEFAULT 0,
    said TINYINT NOT NULL DEFAULT 0,
    created BIGINT NOT NULL,
    attempt INT NOT NULL DEFAULT 0,
    snoozes INT NOT NULL DEFAULT 0,
    lost INT NOT NULL DEFAULT 0,
    nominal BIGINT NOT NULL DEFAULT 0,
    declared TINYINT NOT NULL DEFAULT 0,
    cancelled TINYINT NOT NULL DEFAULT 0,
    keep_ms BIGINT NOT NULL DEFAULT 0,
    token BIGINT NOT NULL DEFAULT 0,
    b_due BIGINT,
    b_revision BIGINT,
    b_created BIGINT,
    b_nominal BIGINT,
    b_declared TINYINT,
    b_keep_ms BIGINT,
    rule BLOB NOT NULL,
    reason MEDIUMBLOB NOT NULL,
    headers MEDIUMBLOB NOT NULL,
    payload LONGBLOB NOT NULL,
    b_rule BLOB,
    b_headers MEDIUMBLOB,
    b_payload LONGBLOB,
    UNIQUE KEY ref (lane, `key`),
    KEY turn (lane, leased, at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- What has ended: dead letters for good (until is NULL), done and cancelled tasks until then.
CREATE TABLE IF NOT EXISTS tarry_ended (
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    lane INT UNSIGNED NOT NULL,
    `key` VARBINARY(512) NOT NULL,
    state VARBINARY(16) NOT NULL,
    at BIGINT NOT NULL,
    until BIGINT,
    due BIGINT NOT NULL,
    revision BIGINT NOT NULL,
    created BIGINT NOT NULL,
    attempt INT NOT NULL,
    snoozes INT NOT NULL,
    lost INT NOT NULL,
    nominal BIGINT NOT NULL,
    declared TINYINT NOT NULL,
    cancelled TINYINT NOT NULL,
    keep_ms BIGINT NOT NULL,
    rule BLOB NOT NULL,
    reason MEDIUMBLOB NOT NULL,
    headers MEDIUMBLOB NOT NULL,
    payload LONGBLOB NOT NULL,
    UNIQUE KEY ref (lane, `key`, revision),
    KEY state (state, lane, id),
    KEY until (until)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- The calls of the last half minute, with their answers: a repeat changes nothing.
CREATE TABLE IF NOT EXISTS tarry_call (
    id BINARY(16) NOT NULL PRIMARY KEY,
    until BIGINT NOT NULL,
    answers LONGBLOB NOT NULL,
    KEY until (until)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- The newest claim of each holder that took something: a repeat returns the same leases.
CREATE TABLE IF NOT EXISTS tarry_claim (
    holder BINARY(16) NOT NULL PRIMARY KEY,
    number BIGINT NOT NULL,
    nonce BIGINT NOT NULL,
    taken LONGBLOB NOT NULL,
    until BIGINT NOT NULL,
    KEY until (until)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- For people with a shell: every task by name.
CREATE OR REPLACE VIEW tarry_tasks AS
    SELECT CONVERT(l.namespace USING utf8mb4) AS namespace, CONVERT(l.kind USING utf8mb4) AS kind,
           CONVERT(t.`key` USING utf8mb4) AS `key`, IF(t.leased, 'leased', 'scheduled') AS state,
           TIMESTAMPADD(SECOND, t.due DIV 1000, '1970-01-01') AS due_utc, t.due,
           IF(t.revision = 0, t.id * 4096, t.revision) AS revision, t.attempt, t.payload
    FROM tarry_task t JOIN tarry_lane l ON l.id = t.lane;
