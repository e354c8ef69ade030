-- Statements of the SQLite store. The columns of a record come in one order everywhere:
--   id, key, due, revision, created, attempt, snoozes, lost, nominal, declared, cancelled, keep_ms,
--   rule, reason, headers, payload

-- name: insert
INSERT INTO task (lane, key, due, revision, created, nominal, declared, keep_ms, rule, headers, payload)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- The same for one task, as long as the block of revisions is still the newest.
-- name: insert_owned
INSERT INTO task (lane, key, due, revision, created, nominal, declared, keep_ms, rule, headers, payload)
SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM revision WHERE owner = ? AND upto = ?;

-- In a caller's transaction: nothing is undone if it is not new.
-- name: insert_new
INSERT INTO task (lane, key, due, revision, created, nominal, declared, keep_ms, rule, headers, payload)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING id;

-- name: find
SELECT id, key, due, revision, created, attempt, snoozes, lost, nominal, declared, cancelled, keep_ms,
       rule, reason, headers, payload, token, holder, expires
FROM task WHERE lane = ? AND key = ?;

-- name: behind
SELECT id, key, due, revision, created, attempt, snoozes, lost, nominal, declared, cancelled, keep_ms,
       rule, reason, headers, payload
FROM behind WHERE id = ?;

-- name: any_behind
SELECT 1 FROM behind LIMIT 1;

-- name: put
INSERT INTO task (id, lane, key, due, revision, created, attempt, snoozes, lost, nominal, declared,
                  cancelled, keep_ms, rule, reason, headers, payload, token, holder, expires)
VALUES (:id, :lane, :key, :due, :revision, :created, :attempt, :snoozes, :lost, :nominal, :declared,
        :cancelled, :keep_ms, :rule, :reason, :headers, :payload, :token, :holder, :expires)
ON CONFLICT (id) DO UPDATE SET
    due = excluded.due, revision = excluded.revision, created = excluded.created,
    attempt = excluded.attempt, snoozes = excluded.snoozes, lost = excluded.lost,
    nominal = excluded.nominal, declared = excluded.declared, cancelled = excluded.cancelled,
    keep_ms = excluded.keep_ms, rule = excluded.rule, reason = excluded.reason,
    headers = excluded.headers, payload = excluded.payload,
    token = excluded.token, holder = excluded.holder, expires = excluded.expires;

-- name: move
UPDATE task SET due = ?, revision = ?, nominal = ?, cancelled = 0 WHERE id = ?;

-- name: delete
DELETE FROM task WHERE id = ?;

-- name: put_behind
INSERT OR REPLACE INTO behind (id, lane, key, due, revision, created, attempt, snoozes, lost, nominal,
                               declared, cancelled, keep_ms, rule, reason, headers, payload)
VALUES (:id, :lane, :key, :due, :revision, :created, :attempt, :snoozes, :lost, :nominal, :declared,
        :cancelled, :keep_ms, :rule, :reason, :headers, :payload);

-- name: delete_behind
DELETE FROM behind WHERE id = ?;

-- name: put_ended
INSERT OR REPLACE INTO ended (lane, key, due, revision, created, attempt, snoozes, lost, nominal,
                              declared, cancelled, keep_ms, rule, reason, headers, payload,
                              state, at, until)
VALUES (:lane, :key, :due, :revision, :created, :attempt, :snoozes, :lost, :nominal, :declared,
        :cancelled, :keep_ms, :rule, :reason, :headers, :payload, :state, :at, :until);

-- The earliest waiting due of each open lane, and (as lane -1) the earliest end of a lease in them.
-- Leases are few, their order is an index.
-- name: heads
SELECT lane.id, (SELECT min(due) FROM task WHERE task.lane = lane.id AND token IS NULL)
FROM lane WHERE lane.id IN (:lanes) AND NOT paused
UNION ALL
SELECT -1, (SELECT expires FROM task INDEXED BY task_leased
            WHERE token IS NOT NULL AND +lane IN (:lanes)
              AND NOT (SELECT paused FROM lane WHERE lane.id = task.lane)
            ORDER BY expires LIMIT 1);

-- name: expired
SELECT lane, key FROM task INDEXED BY task_leased
WHERE token IS NOT NULL AND expires <= ? AND +lane IN (SELECT value FROM json_each(?))
ORDER BY expires LIMIT ?;

-- name: due
SELECT id, due FROM task WHERE lane = ? AND token IS NULL AND due <= ? ORDER BY due LIMIT ? OFFSET ?;

-- name: claim_lane
UPDATE task SET token = :nonce + id, holder = :holder, expires = :expires, attempt = attempt + 1
WHERE id IN (SELECT id FROM task WHERE lane = :lane AND token IS NULL AND due <= :now
             ORDER BY due LIMIT :limit)
RETURNING id, key, due, revision, created, attempt, snoozes, lost, nominal, declared, cancelled,
          keep_ms, rule, reason, headers, payload, token, lane;

-- name: claim_ids
UPDATE task SET token = :nonce + id, holder = :holder, expires = :expires, attempt = attempt + 1
WHERE id IN (SELECT value FROM json_each(:ids))
RETURNING id, key, due, revision, created, attempt, snoozes, lost, nominal, declared, cancelled,
          keep_ms, rule, reason, headers, payload, token, lane;

-- Tokens are unique, so that a row that has one of the ids and one of the tokens has its own.
-- name: renew
UPDATE task SET expires = ?
WHERE id IN (SELECT value FROM json_each(?)) AND token IN (SELECT value FROM json_each(?))
RETURNING token, cancelled;

-- name: settle_done
DELETE FROM task
WHERE id IN (SELECT value FROM json_each(?)) AND token IN (SELECT value FROM json_each(?));

-- name: forget
DELETE FROM ended WHERE id IN (SELECT id FROM ended WHERE until <= ? ORDER BY until LIMIT 10);

-- name: newest_ended
SELECT id, key, due, revision, created, attempt, snoozes, lost, nominal, declared, cancelled, keep_ms,
       rule, reason, headers, payload, state, at
FROM ended WHERE lane = ? AND key = ? AND (until IS NULL OR until > ?)
ORDER BY revision DESC LIMIT 1;

-- name: dead
SELECT id, key, due, revision, created, attempt, snoozes, lost, nominal, declared, cancelled, keep_ms,
       rule, reason, headers, payload, state, at
FROM ended WHERE lane = ? AND key = ? AND state = 'dead' AND (revision = ? OR ? = 0)
ORDER BY revision DESC LIMIT 1;

-- name: dead_at
SELECT 1 FROM ended WHERE lane = ? AND key = ? AND state = 'dead' AND at = ?;

-- name: delete_ended
DELETE FROM ended WHERE id = ?;

-- name: scan_waiting
SELECT id, key, due, revision, created, attempt, snoozes, lost, nominal, declared, cancelled, keep_ms,
       rule, reason, headers, payload
FROM task
WHERE lane = :lane AND token IS NULL AND due >= :low AND due < :high AND (due, id) > (:due, :id)
ORDER BY due, id LIMIT :limit;

-- name: scan_leased
SELECT lane, key FROM task INDEXED BY task_leased
WHERE token IS NOT NULL AND +lane IN (SELECT value FROM json_each(?));

-- name: scan_ended
SELECT id, key, due, revision, created, attempt, snoozes, lost, nominal, declared, cancelled, keep_ms,
       rule, reason, headers, payload, state, at
FROM ended
WHERE lane = :lane AND state = :state AND id > :id AND (until IS NULL OR until > :now)
ORDER BY id LIMIT :limit;

-- name: count_waiting
SELECT count(*) FROM task WHERE lane = ? AND token IS NULL;

-- name: count_overdue
SELECT count(*), min(due) FROM task WHERE lane = ? AND token IS NULL AND due <= ?;

-- name: count_dead
SELECT count(*) FROM ended WHERE state = 'dead' AND lane = ?;

-- name: forecast
SELECT (max(due, :now) - :now) / :bucket AS place, count(*)
FROM task WHERE lane = :lane AND token IS NULL AND due < :end GROUP BY place;

-- name: lanes
SELECT id, kind, paused FROM lane WHERE namespace = ?;

-- name: add_lane
INSERT INTO lane (namespace, kind) VALUES (?, ?) ON CONFLICT DO NOTHING;

-- name: paused
SELECT paused FROM lane WHERE id = ?;

-- name: pause
UPDATE lane SET paused = ? WHERE id = ?;

-- name: block
SELECT upto, owner FROM revision;

-- name: draw_block
UPDATE revision SET upto = upto + ?, owner = ? RETURNING upto;

-- name: draw_joined
UPDATE revision SET upto = upto + ?, owner = 0 RETURNING upto;

-- Changes nothing, and takes the write lock.
-- name: lock_joined
DELETE FROM behind WHERE id IS NULL;

-- name: lane_joined
SELECT id FROM lane WHERE namespace = ? AND kind = ?;

-- name: any_stale
SELECT 1 FROM ended WHERE until <= ? LIMIT 1;

-- name: check_behind
SELECT count(*) FROM behind
WHERE NOT EXISTS (
    SELECT 1 FROM task
    WHERE task.id = behind.id AND task.lane = behind.lane AND task.key = behind.key AND token IS NOT NULL
);
