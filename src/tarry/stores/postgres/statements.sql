-- Reading statements of the PostgreSQL store; `x.RECORD` stands for the columns of a record.

-- name: get
SELECT n.now, NULL, t.RECORD, t.token, t.expires, b.RECORD, e.RECORD, e.state, e.at, NULL
FROM unnest($3, $4) WITH ORDINALITY g(kind, key, place)
CROSS JOIN (SELECT tarry.clock_us($2) / 1000 AS now OFFSET 0) n
LEFT JOIN tarry.lane l ON l.namespace = $1 AND l.kind = g.kind
LEFT JOIN tarry.task t ON t.lane = l.id AND t.key = g.key
LEFT JOIN tarry.behind b ON t.behind AND b.lane = t.lane AND b.key = t.key
LEFT JOIN LATERAL (
    SELECT * FROM tarry.ended x
    WHERE x.lane = l.id AND x.key = g.key AND (x.until IS NULL OR x.until > n.now)
    ORDER BY x.revision DESC LIMIT 1
) e ON true
ORDER BY g.place;

-- name: lanes
SELECT l.id, l.kind, l.paused FROM tarry.lane l WHERE l.namespace = $1;

-- name: waiting
SELECT NULL, NULL, t.RECORD, t.token
FROM tarry.task t
WHERE t.lane = $1 AND (t.due, t.key) > ($2, $3) AND t.due >= $4 AND t.due < $5
ORDER BY t.due, t.key LIMIT $6;

-- name: running
SELECT NULL, NULL, t.RECORD, t.token, t.expires, b.RECORD, n.now
FROM (SELECT tarry.clock_us($4) / 1000 AS now OFFSET 0) n
CROSS JOIN LATERAL (
    SELECT * FROM tarry.task x
    WHERE x.lane = $1 AND (x.due, x.key) >= ($2, $3) AND x.due <= n.now
    ORDER BY x.due, x.key LIMIT $5
) t
LEFT JOIN tarry.behind b ON t.behind AND b.lane = t.lane AND b.key = t.key
ORDER BY t.due, t.key;

-- name: ended
SELECT e.id, e.state, e.RECORD, e.at
FROM tarry.ended e
WHERE e.lane = $1 AND e.state = $2 AND e.id > $3 AND (e.until IS NULL OR e.until > tarry.clock_us($4) / 1000)
ORDER BY e.id LIMIT $5;

-- A lease that has expired is counted as what it will be found to be.
-- name: counts
SELECT l.kind, l.paused, coalesce(a.waiting, 0) + coalesce(b.waiting, 0), coalesce(a.leased, 0), coalesce(e.dead, 0),
       coalesce(a.overdue, 0) + coalesce(b.overdue, 0), least(a.oldest, b.oldest)
FROM (SELECT tarry.clock_us($2) / 1000 AS now OFFSET 0) n
CROSS JOIN tarry.lane l
LEFT JOIN LATERAL (
    SELECT count(*) FILTER (WHERE t.waits) AS waiting, count(*) FILTER (WHERE t.leased) AS leased,
           count(*) FILTER (WHERE t.waits AND t.due <= n.now) AS overdue,
           min(t.due) FILTER (WHERE t.waits AND t.due <= n.now) AS oldest
    FROM (
        SELECT x.due, x.token IS NOT NULL AND x.expires > n.now AS leased,
               x.token IS NULL OR x.expires <= n.now AND NOT x.behind AND (x.declared OR NOT x.cancelled) AS waits
        FROM tarry.task x WHERE x.lane = l.id
    ) t
) a ON true
LEFT JOIN LATERAL (
    SELECT count(*) AS waiting, count(*) FILTER (WHERE x.due <= n.now) AS overdue,
           min(x.due) FILTER (WHERE x.due <= n.now) AS oldest
    FROM tarry.behind x WHERE x.lane = l.id
) b ON true
LEFT JOIN LATERAL (
    SELECT count(*) AS dead FROM tarry.ended x WHERE x.lane = l.id AND x.state = 'dead'
) e ON true
WHERE l.namespace = $1;

-- name: forecast
SELECT ((greatest(w.due, n.now) - n.now) / $3)::int AS place, count(*)
FROM (SELECT tarry.clock_us($2) / 1000 AS now OFFSET 0) n
CROSS JOIN tarry.lane l
CROSS JOIN LATERAL (
    SELECT x.due FROM tarry.task x
    WHERE x.lane = l.id AND x.due < n.now + $3 * $4
      AND (x.token IS NULL OR x.expires <= n.now AND NOT x.behind AND (x.declared OR NOT x.cancelled))
    UNION ALL
    SELECT x.due FROM tarry.behind x WHERE x.lane = l.id AND x.due < n.now + $3 * $4
) w
WHERE l.namespace = $1 GROUP BY place;

-- name: soonest
SELECT min(t.due) FROM tarry.lane l CROSS JOIN LATERAL (
    SELECT x.due FROM tarry.task x WHERE x.lane = l.id AND x.token IS NULL ORDER BY x.due LIMIT 1
) t WHERE l.namespace = $1 AND NOT l.paused;

-- name: check
SELECT (SELECT count(*) FROM tarry.behind b JOIN tarry.lane l ON l.id = b.lane WHERE l.namespace = $1 AND NOT EXISTS (
            SELECT FROM tarry.task t WHERE t.lane = b.lane AND t.key = b.key AND t.behind AND t.token IS NOT NULL)),
       (SELECT count(*) FROM tarry.task t JOIN tarry.lane l ON l.id = t.lane WHERE l.namespace = $1 AND t.behind
            AND NOT EXISTS (SELECT FROM tarry.behind b WHERE b.lane = t.lane AND b.key = t.key)),
       (SELECT count(*) FROM tarry.task t JOIN tarry.lane l ON l.id = t.lane WHERE l.namespace = $1
            AND (t.token IS NULL) <> (t.expires IS NULL));

-- name: abandon
WITH gone AS (DELETE FROM tarry.lane l WHERE l.namespace = $1 RETURNING l.id),
     tasks AS (DELETE FROM tarry.task t USING gone WHERE t.lane = gone.id),
     behinds AS (DELETE FROM tarry.behind b USING gone WHERE b.lane = gone.id),
     ends AS (DELETE FROM tarry.ended e USING gone WHERE e.lane = gone.id),
     holders AS (DELETE FROM tarry.holder h WHERE h.namespace = $1)
SELECT count(*) FROM gone;
