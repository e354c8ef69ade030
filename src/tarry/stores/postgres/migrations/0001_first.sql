-- Tasks in PostgreSQL. Whoever installs this elsewhere than in the schema `tarry` has each `tarry.` replaced.
--
-- Every verb is one function, so that a call is one statement: of the store's own connection, where it is a transaction by
-- itself, or of a caller's transaction, with which it commits or rolls back. The rules are those of the two-slot life of a ref.
-- Instants are milliseconds, clocks are microseconds. A due that is negative is a delay d, written as -1 - d.

-- A lane is one kind of one namespace; rows carry its small number instead of both names.
CREATE TABLE tarry.lane (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    paused boolean NOT NULL DEFAULT false,
    UNIQUE (namespace, kind)
);

-- Revisions grow over all refs and for ever.
CREATE SEQUENCE tarry.revision;

-- One row per ref: the running attempt if there is one (token is set), else the waiting revision.
-- No index has a column of the lease: a claim and a renewal are updates within a page, which leave every index alone.
-- Half of each page is left free for that: tasks that were scheduled together are claimed together, a page at a time.
CREATE TABLE tarry.task (
    due bigint NOT NULL,
    revision bigint NOT NULL,
    created bigint NOT NULL,
    nominal bigint NOT NULL DEFAULT 0,
    keep_ms bigint NOT NULL DEFAULT 0,
    token bigint,
    expires bigint,
    lane int NOT NULL,
    attempt int NOT NULL DEFAULT 0,
    snoozes int NOT NULL DEFAULT 0,
    lost int NOT NULL DEFAULT 0,
    declared boolean NOT NULL DEFAULT false,
    cancelled boolean NOT NULL DEFAULT false,
    behind boolean NOT NULL DEFAULT false,
    key text COLLATE "C" NOT NULL,
    rule text NOT NULL DEFAULT '',
    reason text NOT NULL DEFAULT '',
    headers bytea NOT NULL DEFAULT '',
    payload bytea NOT NULL,
    CONSTRAINT task_ref PRIMARY KEY (lane, key)
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.1
);
CREATE INDEX task_due ON tarry.task (lane, due, key);

-- The revision that waits behind a running attempt (task.behind).
CREATE TABLE tarry.behind (
    due bigint NOT NULL,
    revision bigint NOT NULL,
    created bigint NOT NULL,
    nominal bigint NOT NULL,
    keep_ms bigint NOT NULL,
    lane int NOT NULL,
    attempt int NOT NULL DEFAULT 0,
    snoozes int NOT NULL DEFAULT 0,
    lost int NOT NULL DEFAULT 0,
    declared boolean NOT NULL,
    cancelled boolean NOT NULL DEFAULT false,
    key text COLLATE "C" NOT NULL,
    rule text NOT NULL,
    reason text NOT NULL DEFAULT '',
    headers bytea NOT NULL,
    payload bytea NOT NULL,
    PRIMARY KEY (lane, key)
);

-- What has ended: dead letters for good, done and cancelled tasks until `until`.
CREATE TABLE tarry.ended (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    state text NOT NULL,
    at bigint NOT NULL,
    until bigint,
    due bigint NOT NULL,
    revision bigint NOT NULL,
    created bigint NOT NULL,
    nominal bigint NOT NULL,
    keep_ms bigint NOT NULL,
    lane int NOT NULL,
    attempt int NOT NULL,
    snoozes int NOT NULL,
    lost int NOT NULL,
    declared boolean NOT NULL,
    cancelled boolean NOT NULL,
    key text COLLATE "C" NOT NULL,
    rule text NOT NULL,
    reason text NOT NULL,
    headers bytea NOT NULL,
    payload bytea NOT NULL,
    UNIQUE (lane, key, revision)
);
CREATE INDEX ended_state ON tarry.ended (lane, state, id);
CREATE INDEX ended_until ON tarry.ended (until) WHERE until IS NOT NULL;

-- Calls of the last seconds with their answers, so that a repeat changes nothing. Emptied from time to time: see `remember`.
CREATE TABLE tarry.call (
    id text COLLATE "C" PRIMARY KEY,
    at bigint NOT NULL,
    answers bigint[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- The newest claim of each holder: its leases are those of `lanes` between `lows` and `high` whose token is base + revision.
CREATE TABLE tarry.holder (
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    base bigint NOT NULL,
    lanes int[] NOT NULL,
    lows bigint[] NOT NULL,
    high bigint NOT NULL,
    PRIMARY KEY (namespace, name)
) WITH (fillfactor = 30, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0);

-- ---- what the verbs have in common

-- The store's now in microseconds: the server's clock, unless another stands in for it.
CREATE FUNCTION tarry.clock_us(given bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(given, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
$$;

-- A due as it was asked for, at `now`: never in the past, never after the year 9999.
CREATE FUNCTION tarry.resolve(asked bigint, now bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT least(greatest(CASE WHEN asked < 0 THEN now - 1 - asked ELSE asked END, now), 253402300799999)
$$;

-- The lanes of some kinds in order; those that have none yet are made.
CREATE FUNCTION tarry.lanes_of(space text, kinds text[]) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
    found int[];
BEGIN
    IF cardinality(kinds) = 1 THEN
        SELECT ARRAY[l.id] INTO found FROM tarry.lane l WHERE l.namespace = space AND l.kind = kinds[1];
        IF found IS NOT NULL THEN
            RETURN found;
        END IF;
    END IF;
    FOR tries IN 1..2 LOOP
        SELECT array_agg(l.id ORDER BY k.place) INTO found
        FROM unnest(kinds) WITH ORDINALITY k(kind, place)
        LEFT JOIN tarry.lane l ON l.namespace = space AND l.kind = k.kind;
        EXIT WHEN array_position(found, NULL) IS NULL;
        INSERT INTO tarry.lane (namespace, kind)
        SELECT DISTINCT space, k.kind FROM unnest(kinds) k(kind)
        WHERE NOT EXISTS (SELECT FROM tarry.lane l WHERE l.namespace = space AND l.kind = k.kind)
        ORDER BY k.kind
        ON CONFLICT DO NOTHING;
    END LOOP;
    RETURN found;
END $$;

-- The answers of a call that was made before. One try at a time: a repeat waits for the try before it.
CREATE FUNCTION tarry.recall(called text) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    known bigint[];
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(called, 0));
    SELECT c.answers INTO known FROM tarry.call c WHERE c.id = called;
    RETURN known;
END $$;

-- Keep the answers of a call for at least 30 s; one call in some hundred clears away what is older than a minute.
CREATE FUNCTION tarry.remember(called text, now bigint, given bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO tarry.call (id, at, answers) VALUES (called, now, given);
    IF random() < 0.002 THEN
        DELETE FROM tarry.call c WHERE c.ctid = ANY (ARRAY(
            SELECT old.ctid FROM tarry.call old WHERE old.at < now - 60000 LIMIT 5000 FOR UPDATE SKIP LOCKED));
    END IF;
END $$;

CREATE FUNCTION tarry.channel(space text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT 'tarry_' || md5($q$tarry.$q$ || space)
$$;

-- Wake the workers, after commit, for what is due within two seconds.
CREATE FUNCTION tarry.wake(space text, soonest bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify(tarry.channel(space), soonest::text);
END $$;

CREATE FUNCTION tarry.is_open(of_lane int) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT NOT l.paused FROM tarry.lane l WHERE l.id = of_lane
$$;

-- Keep the record of an end: dead letters for good, others as long as the task asks for.
CREATE FUNCTION tarry.keep(t tarry.task, end_state text, now bigint, why text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF end_state <> 'dead' AND t.keep_ms = 0 THEN
        RETURN;
    END IF;
    INSERT INTO tarry.ended AS e (state, at, until, due, revision, created, nominal, keep_ms, lane, attempt, snoozes, lost,
                                  declared, cancelled, key, rule, reason, headers, payload)
    VALUES (end_state, now, CASE WHEN end_state <> 'dead' THEN now + t.keep_ms END, t.due, t.revision, t.created, t.nominal,
            t.keep_ms, t.lane, t.attempt, t.snoozes, t.lost, t.declared, t.cancelled, t.key, t.rule, why, t.headers, t.payload)
    ON CONFLICT (lane, key, revision) DO UPDATE SET
        state = excluded.state, at = excluded.at, until = excluded.until, due = excluded.due, nominal = excluded.nominal,
        attempt = excluded.attempt, snoozes = excluded.snoozes, lost = excluded.lost,
        cancelled = excluded.cancelled, reason = excluded.reason;
END $$;

-- Let the revision behind an attempt that ends take its row.
CREATE FUNCTION tarry.free(t tarry.task) RETURNS tarry.task LANGUAGE plpgsql AS $$
DECLARE
    b tarry.behind;
    freed tarry.task;
BEGIN
    DELETE FROM tarry.behind x WHERE x.lane = t.lane AND x.key = t.key RETURNING * INTO b;
    UPDATE tarry.task x SET
        due = b.due, revision = b.revision, created = b.created, nominal = b.nominal, keep_ms = b.keep_ms, token = NULL,
        expires = NULL, attempt = b.attempt, snoozes = b.snoozes, lost = b.lost, declared = b.declared,
        cancelled = b.cancelled, behind = false, rule = b.rule, reason = b.reason, headers = b.headers, payload = b.payload
    WHERE x.lane = t.lane AND x.key = t.key
    RETURNING * INTO freed;
    RETURN freed;
END $$;

-- The ref of a locked row as callers and claims see it: a lease that has expired has ended. NULL: nothing is left.
CREATE FUNCTION tarry.expire(t tarry.task, now bigint) RETURNS tarry.task LANGUAGE plpgsql AS $$
DECLARE
    again tarry.task;
BEGIN
    IF t.cancelled AND (t.behind OR NOT t.declared) THEN
        PERFORM tarry.keep(t, 'cancelled', now, '');
    END IF;
    IF t.behind THEN
        RETURN tarry.free(t);
    END IF;
    IF t.cancelled AND NOT t.declared THEN
        DELETE FROM tarry.task x WHERE x.lane = t.lane AND x.key = t.key;
        RETURN NULL;
    END IF;
    UPDATE tarry.task x SET token = NULL, expires = NULL, lost = x.lost + 1
    WHERE x.lane = t.lane AND x.key = t.key
    RETURNING * INTO again;
    RETURN again;
END $$;

-- ---- the callers' verbs

-- Place each request in its ref's waiting slot. `which` says whose of `kinds` each item is; NULL: all are of the first.
-- `apart`: no ref comes twice, and none has an `if_revision`. Modes: 0 replace, 1 keep, 2 earliest, 3 latest, 4 fail.
-- Answers {0, now, first}: all are new, with revisions from `first` on; {1, now, revision...}: all are new;
-- else {2, now, (status, due, revision)...}: 0 created, 1 replaced, 2 kept, 3 conflict.
CREATE FUNCTION tarry.schedule(
    space text, called text, clock bigint, apart boolean, kinds text[], which int[], keys text[], dues bigint[],
    payloads bytea[], headers bytea[], modes int[], max_waits bigint[], revisions bigint[], rules text[],
    nominals bigint[], declares boolean[], keeps bigint[]
) RETURNS bigint[] LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    now bigint;
    lanes int[];
    answers bigint[];
    drawn bigint[];
    put_lanes int[];
    put_keys text[];
    put_dues bigint[];
    put_fresh boolean[];
    put int := 0;
    next_put int := 1;
    size int := cardinality(keys);
    fresh int := 0;
    soonest bigint;
    item record;
    t tarry.task;
    b tarry.behind;
    there boolean;
    running boolean;
    old_due bigint;
    old_revision bigint;
    old_created bigint;
    new_due bigint;
    new_created bigint;
    new_revision bigint;
    inherits boolean;
BEGIN
    IF called IS NOT NULL THEN
        answers := tarry.recall(called);
        IF answers IS NOT NULL THEN
            RETURN answers;
        END IF;
    END IF;
    lanes := tarry.lanes_of(space, kinds);
    now := tarry.clock_us(clock) / 1000;
    IF apart THEN
        -- What is new, and what replaces a revision that waits. Rows come back in the order they were given in.
        WITH put AS (
            INSERT INTO tarry.task AS t (lane, key, due, revision, created, nominal, declared, keep_ms, rule, headers, payload)
            SELECT lanes[coalesce(g.which, 1)], g.key, tarry.resolve(g.due, now), nextval('tarry.revision'), now,
                   CASE WHEN g.rule <> '' AND coalesce(g.nominal, 0) = 0 THEN tarry.resolve(g.due, now)
                        ELSE coalesce(g.nominal, 0) END,
                   coalesce(g.declared, false), coalesce(g.keep_ms, 0), coalesce(g.rule, ''), coalesce(g.header, ''), g.payload
            FROM unnest(which, keys, dues, payloads, headers, rules, nominals, declares, keeps)
                 g(which, key, due, payload, header, rule, nominal, declared, keep_ms)
            ON CONFLICT (lane, key) DO UPDATE SET
                due = excluded.due, revision = nextval('tarry.revision'), created = excluded.created, attempt = 0, snoozes = 0,
                lost = 0, nominal = excluded.nominal, declared = excluded.declared, cancelled = false,
                keep_ms = excluded.keep_ms, rule = excluded.rule, reason = '', headers = excluded.headers,
                payload = excluded.payload
            WHERE modes IS NULL AND t.token IS NULL AND (t.rule = '' OR excluded.rule <> '')
            RETURNING t.lane, t.key, t.due, t.revision, t.xmax = 0 AS fresh
        )
        SELECT count(*), count(*) FILTER (WHERE fresh), min(due), array_agg(revision), array_agg(lane), array_agg(key),
               array_agg(due), array_agg(fresh)
        INTO put, fresh, soonest, drawn, put_lanes, put_keys, put_dues, put_fresh FROM put;
        IF fresh = size THEN
            IF drawn[size] - drawn[1] = size - 1 THEN
                answers := ARRAY[0, now, drawn[1]];
            ELSE
                answers := ARRAY[1::bigint, now] || drawn;
            END IF;
        END IF;
        IF soonest <= now + 2000 THEN
            SELECT min(x.due) INTO soonest
            FROM (SELECT p.lane, min(p.due) AS due FROM unnest(put_lanes, put_dues) p(lane, due) GROUP BY p.lane) x
            WHERE tarry.is_open(x.lane);
        END IF;
    END IF;
    IF answers IS NULL THEN
        answers := ARRAY[2::bigint, now];
        FOR item IN
            SELECT lanes[coalesce(g.which, 1)] AS lane, g.key, g.due, g.payload, coalesce(g.header, '') AS header,
                   coalesce(g.mode, 0) AS mode, g.max_wait, g.revision, coalesce(g.rule, '') AS rule,
                   coalesce(g.nominal, 0) AS nominal, coalesce(g.declared, false) AS declared, coalesce(g.keep_ms, 0) AS keep_ms
            FROM unnest(which, keys, dues, payloads, headers, modes, max_waits, revisions, rules, nominals, declares, keeps)
                 g(which, key, due, payload, header, mode, max_wait, revision, rule, nominal, declared, keep_ms)
        LOOP
            IF next_put <= put AND put_lanes[next_put] = item.lane AND put_keys[next_put] = item.key THEN
                answers := answers || ARRAY[CASE WHEN put_fresh[next_put] THEN 0 ELSE 1 END, put_dues[next_put], drawn[next_put]];
                next_put := next_put + 1;
                CONTINUE;
            END IF;
            LOOP
                SELECT * INTO t FROM tarry.task x WHERE x.lane = item.lane AND x.key = item.key FOR UPDATE;
                IF t.token IS NOT NULL AND t.expires <= now THEN
                    t := tarry.expire(t, now);
                END IF;
                there := t.key IS NOT NULL;
                running := there AND t.token IS NOT NULL;
                old_due := NULL;
                b := NULL;
                IF running AND t.behind THEN
                    SELECT * INTO b FROM tarry.behind x WHERE x.lane = item.lane AND x.key = item.key;
                    old_due := b.due; old_revision := b.revision; old_created := b.created;
                ELSIF there AND NOT running THEN
                    old_due := t.due; old_revision := t.revision; old_created := t.created;
                END IF;
                IF item.revision IS NOT NULL AND (old_due IS NULL OR old_revision <> item.revision)
                   OR old_due IS NOT NULL AND item.mode = 4 THEN
                    answers := answers || CASE WHEN old_due IS NULL THEN ARRAY[3::bigint, 0, 0]
                                               ELSE ARRAY[3, old_due, old_revision] END;
                    EXIT;
                END IF;
                IF old_due IS NOT NULL AND item.mode = 1 THEN
                    answers := answers || ARRAY[2, old_due, old_revision];
                    EXIT;
                END IF;
                new_due := tarry.resolve(item.due, now);
                new_created := now;
                IF old_due IS NOT NULL AND item.mode = 2 THEN
                    new_due := least(old_due, new_due); new_created := old_created;
                ELSIF old_due IS NOT NULL AND item.mode = 3 THEN
                    new_due := greatest(old_due, least(new_due, old_created + item.max_wait)); new_created := old_created;
                END IF;
                IF item.rule <> '' AND item.nominal = 0 THEN
                    item.nominal := new_due;
                END IF;
                -- A schedule without a rule of its own takes over the series that was there, unless that was cancelled.
                IF item.rule = '' AND b.key IS NOT NULL THEN
                    inherits := b.rule <> '' AND (b.declared OR NOT b.cancelled);
                    IF inherits THEN
                        item.rule := b.rule; item.nominal := b.nominal; item.declared := b.declared;
                    END IF;
                ELSIF item.rule = '' AND there THEN
                    inherits := t.rule <> '' AND (t.declared OR NOT t.cancelled);
                    IF inherits THEN
                        item.rule := t.rule; item.nominal := t.nominal; item.declared := t.declared;
                    END IF;
                END IF;
                IF running THEN
                    INSERT INTO tarry.behind AS x (lane, key, due, revision, created, nominal, declared, keep_ms, rule, headers,
                                                   payload)
                    VALUES (item.lane, item.key, new_due, nextval('tarry.revision'), new_created, item.nominal, item.declared,
                            item.keep_ms, item.rule, item.header, item.payload)
                    ON CONFLICT (lane, key) DO UPDATE SET
                        due = excluded.due, revision = excluded.revision, created = excluded.created, attempt = 0, snoozes = 0,
                        lost = 0, nominal = excluded.nominal, declared = excluded.declared, cancelled = false,
                        keep_ms = excluded.keep_ms, rule = excluded.rule, reason = '', headers = excluded.headers,
                        payload = excluded.payload
                    RETURNING x.revision INTO new_revision;
                    IF NOT t.behind THEN
                        UPDATE tarry.task x SET behind = true WHERE x.lane = item.lane AND x.key = item.key;
                    END IF;
                ELSIF there THEN
                    UPDATE tarry.task x SET
                        due = new_due, revision = nextval('tarry.revision'), created = new_created, attempt = 0, snoozes = 0,
                        lost = 0, nominal = item.nominal, declared = item.declared, cancelled = false,
                        keep_ms = item.keep_ms, rule = item.rule, reason = '', headers = item.header, payload = item.payload
                    WHERE x.lane = item.lane AND x.key = item.key
                    RETURNING x.revision INTO new_revision;
                ELSE
                    INSERT INTO tarry.task AS x (lane, key, due, revision, created, nominal, declared, keep_ms, rule, headers,
                                                 payload)
                    VALUES (item.lane, item.key, new_due, nextval('tarry.revision'), new_created, item.nominal, item.declared,
                            item.keep_ms, item.rule, item.header, item.payload)
                    ON CONFLICT DO NOTHING
                    RETURNING x.revision INTO new_revision;
                    -- Somebody else was faster: it is there now.
                    CONTINUE WHEN NOT FOUND;
                END IF;
                answers := answers || ARRAY[CASE WHEN old_due IS NULL THEN 0 ELSE 1 END, new_due, new_revision];
                IF NOT running AND new_due <= now + 2000 AND (soonest IS NULL OR new_due < soonest)
                   AND tarry.is_open(item.lane) THEN
                    soonest := new_due;
                END IF;
                EXIT;
            END LOOP;
        END LOOP;
    END IF;
    IF soonest <= now + 2000 THEN
        PERFORM tarry.wake(space, soonest);
    END IF;
    IF called IS NOT NULL THEN
        PERFORM tarry.remember(called, now, answers);
    END IF;
    RETURN answers;
END $$;

-- Give waiting tasks a new due. `shifts`: the due is relative to the present one. Only: 0 any, 1 earlier, 2 later.
-- Answers (status, due, revision)...: 0 absent, 1 running, 2 conflict, 3 unchanged, 4 moved.
CREATE FUNCTION tarry.reschedule(
    space text, called text, clock bigint, kinds text[], which int[], keys text[], dues bigint[], shifts boolean[],
    onlies int[], revisions bigint[], nominals bigint[]
) RETURNS bigint[] LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    now bigint;
    lanes int[];
    answers bigint[] := '{}';
    soonest bigint;
    item record;
    t tarry.task;
    running boolean;
    old_due bigint;
    old_revision bigint;
    new_due bigint;
    new_revision bigint;
BEGIN
    IF called IS NOT NULL THEN
        answers := tarry.recall(called);
        IF answers IS NOT NULL THEN
            RETURN answers;
        END IF;
        answers := '{}';
    END IF;
    lanes := tarry.lanes_of(space, kinds);
    now := tarry.clock_us(clock) / 1000;
    FOR item IN
        SELECT lanes[coalesce(g.which, 1)] AS lane, g.key, g.due, coalesce(g.shift, false) AS shift,
               coalesce(g.wish, 0) AS wish, g.revision, g.nominal
        FROM unnest(which, keys, dues, shifts, onlies, revisions, nominals) g(which, key, due, shift, wish, revision, nominal)
    LOOP
        SELECT * INTO t FROM tarry.task x WHERE x.lane = item.lane AND x.key = item.key FOR UPDATE;
        IF t.token IS NOT NULL AND t.expires <= now THEN
            t := tarry.expire(t, now);
        END IF;
        running := t.token IS NOT NULL;
        IF t.key IS NULL OR running AND NOT t.behind THEN
            answers := answers || ARRAY[CASE WHEN running THEN 1 ELSE 0 END::bigint, 0, 0];
            CONTINUE;
        END IF;
        old_due := t.due;
        old_revision := t.revision;
        IF running THEN
            SELECT x.due, x.revision INTO old_due, old_revision
            FROM tarry.behind x WHERE x.lane = item.lane AND x.key = item.key;
        END IF;
        IF item.revision IS NOT NULL AND item.revision <> old_revision THEN
            answers := answers || ARRAY[2, old_due, old_revision];
            CONTINUE;
        END IF;
        IF item.shift THEN
            new_due := least(greatest(old_due + item.due, now), 253402300799999);
        ELSE
            new_due := tarry.resolve(item.due, now);
        END IF;
        IF item.wish = 1 AND new_due >= old_due OR item.wish = 2 AND new_due <= old_due THEN
            answers := answers || ARRAY[3, old_due, old_revision];
            CONTINUE;
        END IF;
        IF running THEN
            UPDATE tarry.behind x SET
                due = new_due, revision = nextval('tarry.revision'), nominal = coalesce(item.nominal, x.nominal),
                cancelled = false
            WHERE x.lane = item.lane AND x.key = item.key RETURNING x.revision INTO new_revision;
        ELSE
            UPDATE tarry.task x SET
                due = new_due, revision = nextval('tarry.revision'), nominal = coalesce(item.nominal, x.nominal),
                cancelled = false
            WHERE x.lane = item.lane AND x.key = item.key RETURNING x.revision INTO new_revision;
            IF new_due <= now + 2000 AND (soonest IS NULL OR new_due < soonest) AND tarry.is_open(item.lane) THEN
                soonest := new_due;
            END IF;
        END IF;
        answers := answers || ARRAY[4, new_due, new_revision];
    END LOOP;
    IF soonest IS NOT NULL THEN
        PERFORM tarry.wake(space, soonest);
    END IF;
    IF called IS NOT NULL THEN
        PERFORM tarry.remember(called, now, answers);
    END IF;
    RETURN answers;
END $$;

-- Empty the waiting slots and mark the attempts in flight. Answers one number each: 0 cancelled, 1 running, 2 absent, 3 conflict.
CREATE FUNCTION tarry.cancel(
    space text, called text, clock bigint, kinds text[], which int[], keys text[], revisions bigint[], only_running boolean[]
) RETURNS bigint[] LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    now bigint;
    lanes int[];
    answers bigint[] := '{}';
    item record;
    t tarry.task;
    b tarry.task;
    running boolean;
    newest bigint;
BEGIN
    IF called IS NOT NULL THEN
        answers := tarry.recall(called);
        IF answers IS NOT NULL THEN
            RETURN answers;
        END IF;
        answers := '{}';
    END IF;
    lanes := tarry.lanes_of(space, kinds);
    now := tarry.clock_us(clock) / 1000;
    FOR item IN
        SELECT lanes[coalesce(g.which, 1)] AS lane, g.key, g.revision, coalesce(g.only_running, false) AS only_running
        FROM unnest(which, keys, revisions, only_running) g(which, key, revision, only_running)
    LOOP
        SELECT * INTO t FROM tarry.task x WHERE x.lane = item.lane AND x.key = item.key FOR UPDATE;
        IF t.token IS NOT NULL AND t.expires <= now THEN
            t := tarry.expire(t, now);
        END IF;
        IF t.key IS NULL THEN
            answers := answers || 2::bigint;
            CONTINUE;
        END IF;
        running := t.token IS NOT NULL;
        newest := t.revision;
        b := t;
        IF running AND t.behind THEN
            SELECT x.due, x.revision, x.created, x.nominal, x.keep_ms, NULL, NULL, x.lane, x.attempt, x.snoozes, x.lost,
                   x.declared, x.cancelled, false, x.key, x.rule, x.reason, x.headers, x.payload
            INTO b FROM tarry.behind x WHERE x.lane = item.lane AND x.key = item.key;
            newest := b.revision;
        END IF;
        IF item.revision IS NOT NULL AND item.revision <> newest OR item.only_running AND NOT running THEN
            answers := answers || 3::bigint;
            CONTINUE;
        END IF;
        IF NOT running THEN
            PERFORM tarry.keep(t, 'cancelled', now, '') WHERE t.keep_ms > 0;
            DELETE FROM tarry.task x WHERE x.lane = item.lane AND x.key = item.key;
            answers := answers || 0::bigint;
            CONTINUE;
        END IF;
        IF t.behind THEN
            PERFORM tarry.keep(b, 'cancelled', now, '');
            DELETE FROM tarry.behind x WHERE x.lane = item.lane AND x.key = item.key;
        END IF;
        UPDATE tarry.task x SET cancelled = true, behind = false WHERE x.lane = item.lane AND x.key = item.key;
        answers := answers || 1::bigint;
    END LOOP;
    IF called IS NOT NULL THEN
        PERFORM tarry.remember(called, now, answers);
    END IF;
    RETURN answers;
END $$;

-- Make dead letters waiting tasks again, due now. Answers one number each: 0 revived, 1 skipped, 2 absent.
CREATE FUNCTION tarry.revive(
    space text, called text, clock bigint, kinds text[], which int[], keys text[], revisions bigint[]
) RETURNS bigint[] LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    now bigint;
    lanes int[];
    answers bigint[] := '{}';
    soonest bigint;
    item record;
    t tarry.task;
    e tarry.ended;
BEGIN
    IF called IS NOT NULL THEN
        answers := tarry.recall(called);
        IF answers IS NOT NULL THEN
            RETURN answers;
        END IF;
        answers := '{}';
    END IF;
    lanes := tarry.lanes_of(space, kinds);
    now := tarry.clock_us(clock) / 1000;
    FOR item IN
        SELECT lanes[coalesce(g.which, 1)] AS lane, g.key, g.revision FROM unnest(which, keys, revisions) g(which, key, revision)
    LOOP
        SELECT * INTO t FROM tarry.task x WHERE x.lane = item.lane AND x.key = item.key FOR UPDATE;
        IF t.token IS NOT NULL AND t.expires <= now THEN
            t := tarry.expire(t, now);
        END IF;
        SELECT * INTO e FROM tarry.ended x
        WHERE x.lane = item.lane AND x.key = item.key AND x.state = 'dead'
          AND (item.revision = 0 OR x.revision = item.revision)
        ORDER BY x.revision DESC LIMIT 1 FOR UPDATE;
        IF e.id IS NULL THEN
            answers := answers || 2::bigint;
            CONTINUE;
        END IF;
        IF t.key IS NULL THEN
            INSERT INTO tarry.task (lane, key, due, revision, created, keep_ms, headers, payload)
            VALUES (item.lane, item.key, now, nextval('tarry.revision'), now, e.keep_ms, e.headers, e.payload)
            ON CONFLICT DO NOTHING;
        END IF;
        IF t.key IS NOT NULL OR NOT FOUND THEN
            answers := answers || 1::bigint;
            CONTINUE;
        END IF;
        DELETE FROM tarry.ended x WHERE x.id = e.id;
        answers := answers || 0::bigint;
        IF tarry.is_open(item.lane) THEN
            soonest := now;
        END IF;
    END LOOP;
    IF soonest IS NOT NULL THEN
        PERFORM tarry.wake(space, soonest);
    END IF;
    IF called IS NOT NULL THEN
        PERFORM tarry.remember(called, now, answers);
    END IF;
    RETURN answers;
END $$;

-- Delete dead letters. Answers 1 for each that was there.
CREATE FUNCTION tarry.purge(
    space text, called text, clock bigint, kinds text[], which int[], keys text[], revisions bigint[]
) RETURNS bigint[] LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    lanes int[];
    answers bigint[] := '{}';
    item record;
BEGIN
    IF called IS NOT NULL THEN
        answers := tarry.recall(called);
        IF answers IS NOT NULL THEN
            RETURN answers;
        END IF;
        answers := '{}';
    END IF;
    lanes := tarry.lanes_of(space, kinds);
    FOR item IN
        SELECT lanes[coalesce(g.which, 1)] AS lane, g.key, g.revision FROM unnest(which, keys, revisions) g(which, key, revision)
    LOOP
        DELETE FROM tarry.ended e WHERE e.id = (
            SELECT x.id FROM tarry.ended x
            WHERE x.lane = item.lane AND x.key = item.key AND x.state = 'dead'
              AND (item.revision = 0 OR x.revision = item.revision)
            ORDER BY x.revision DESC LIMIT 1 FOR UPDATE);
        answers := answers || CASE WHEN FOUND THEN 1 ELSE 0 END::bigint;
    END LOOP;
    IF called IS NOT NULL THEN
        PERFORM tarry.remember(called, tarry.clock_us(clock) / 1000, answers);
    END IF;
    RETURN answers;
END $$;

-- Stop or resume claims of a kind. Answers 1 if it was paused before.
CREATE FUNCTION tarry.pause(space text, called text, clock bigint, of_kind text, stop boolean) RETURNS bigint[]
LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    now bigint;
    lanes int[];
    answers bigint[];
    was boolean;
    soonest bigint;
BEGIN
    IF called IS NOT NULL THEN
        answers := tarry.recall(called);
        IF answers IS NOT NULL THEN
            RETURN answers;
        END IF;
    END IF;
    lanes := tarry.lanes_of(space, ARRAY[of_kind]);
    now := tarry.clock_us(clock) / 1000;
    SELECT l.paused INTO was FROM tarry.lane l WHERE l.id = lanes[1] FOR UPDATE;
    UPDATE tarry.lane l SET paused = stop WHERE l.id = lanes[1] AND l.paused <> stop;
    IF was AND NOT stop THEN
        SELECT min(CASE WHEN t.token IS NULL THEN t.due ELSE t.expires END) INTO soonest
        FROM tarry.task t WHERE t.lane = lanes[1] AND t.due <= now + 2000;
        IF soonest <= now + 2000 THEN
            PERFORM tarry.wake(space, soonest);
        END IF;
    END IF;
    answers := ARRAY[was::int::bigint];
    IF called IS NOT NULL THEN
        PERFORM tarry.remember(called, now, answers);
    END IF;
    RETURN answers;
END $$;

-- ---- the workers' verbs

-- Lease due tasks of some kinds, whose rows are looked at behind `lows` and `low_keys`. The tokens are `base` + revision.
-- `back`: also look for leases that have ended, among so many of the first rows of each kind. `insist`: write down the number of
-- the claim though nothing was taken. The last row has no place: its `due` is the next due, `expires` the earliest end of a lease,
-- `created` the clock, `attempt` 1 if this claim was made before, `lost` the number of leases that were seen.
CREATE FUNCTION tarry.claim(
    space text, clock bigint, kinds text[], lows bigint[], low_keys text[], most int, lease_ms bigint, who text, number bigint, base bigint,
    turn bigint, back int, insist boolean
) RETURNS TABLE (
    place tid, which int, key text, due bigint, revision bigint, created bigint, attempt int, snoozes int, lost int,
    nominal bigint, declared boolean, cancelled boolean, keep_ms bigint, rule text, reason text, headers bytea, payload bytea,
    token bigint, expires bigint
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_sort = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    now_us bigint := tarry.clock_us(clock);
    now bigint := now_us / 1000;
    lanes int[];
    froms bigint[];
    from_keys text[];
    heads bigint[];
    whiches int[];
    ready int[];
    h tarry.holder;
    order_of int[];
    counts int[];
    part int;
    rest int;
    taken int := 0;
    next_due bigint;
    ends bigint;
    leases int := 0;
    expired record;
    t tarry.task;
BEGIN
    IF number > 0 THEN
        PERFORM pg_advisory_xact_lock(hashtextextended(space || ' ' || who, 1));
        SELECT * INTO h FROM tarry.holder x WHERE x.namespace = space AND x.name = who;
    END IF;
    SELECT array_agg(l.id), array_agg(k.low), array_agg(k.low_key), array_agg(k.place::int)
    INTO lanes, froms, from_keys, whiches
    FROM unnest(kinds, lows, low_keys) WITH ORDINALITY k(kind, low, low_key, place)
    JOIN tarry.lane l ON l.namespace = space AND l.kind = k.kind AND NOT l.paused;

    IF h.number >= number THEN
        IF h.number = number THEN
            -- Only what was asked for can have been taken; paused kinds are shown, too.
            RETURN QUERY
            SELECT t.ctid, k.place::int, t.key, t.due, t.revision, t.created, t.attempt, t.snoozes, t.lost, t.nominal,
                   t.declared, t.cancelled, t.keep_ms, t.rule, t.reason, t.headers, t.payload, t.token, t.expires
            FROM unnest(h.lanes, h.lows) r(lane, low)
            JOIN tarry.task t ON t.lane = r.lane AND t.due >= r.low AND t.due <= h.high
            JOIN tarry.lane l ON l.id = t.lane
            JOIN unnest(kinds) WITH ORDINALITY k(kind, place) ON k.kind = l.kind
            WHERE t.token = h.base + t.revision AND t.expires > now
            ORDER BY t.due;
        END IF;
        attempt := 1;
    END IF;

    IF back IS NOT NULL AND lanes IS NOT NULL THEN
        FOR tries IN 1..2 LOOP
            SELECT min(x.expires), count(*) INTO ends, leases
            FROM unnest(lanes) o(lane) CROSS JOIN LATERAL (
                SELECT s.token, s.expires FROM tarry.task s WHERE s.lane = o.lane AND s.due <= now ORDER BY s.due LIMIT back
            ) x WHERE x.token IS NOT NULL;
            EXIT WHEN tries = 2 OR ends IS NULL OR ends > now OR h.number >= number;
            FOR expired IN
                SELECT x.lane, x.key FROM unnest(lanes) o(lane) CROSS JOIN LATERAL (
                    SELECT s.lane, s.key, s.token, s.expires FROM tarry.task s
                    WHERE s.lane = o.lane AND s.due <= now ORDER BY s.due LIMIT back
                ) x WHERE x.token IS NOT NULL AND x.expires <= now LIMIT 500
            LOOP
                SELECT * INTO t FROM tarry.task s
                WHERE s.lane = expired.lane AND s.key = expired.key AND s.token IS NOT NULL AND s.expires <= now
                FOR UPDATE SKIP LOCKED;
                IF FOUND THEN
                    PERFORM tarry.expire(t, now);
                END IF;
            END LOOP;
        END LOOP;
    END IF;

    SELECT array_agg(x.due ORDER BY o.nth) INTO heads
    FROM unnest(lanes, froms, from_keys) WITH ORDINALITY o(lane, low, low_key, nth) LEFT JOIN LATERAL (
        SELECT s.due FROM tarry.task s
        WHERE s.lane = o.lane AND (s.due, s.key) > (o.low, o.low_key) AND s.token IS NULL ORDER BY s.due, s.key LIMIT 1
    ) x ON true;
    SELECT array_agg(o.nth ORDER BY o.nth) INTO ready
    FROM unnest(heads) WITH ORDINALITY o(head, nth) WHERE o.head <= now;

    IF most > 0 AND ready IS NOT NULL AND attempt IS NULL THEN
        IF cardinality(ready) = 1 THEN
            order_of := ready;
            counts := ARRAY[most];
        ELSE
            -- An even part of each lane that has something due, in turn; then the rest by earliest due.
            SELECT array_agg(r.nth ORDER BY (r.at - 1 - turn % cardinality(ready) + cardinality(ready)) % cardinality(ready))
            INTO order_of FROM unnest(ready) WITH ORDINALITY r(nth, at);
            order_of := order_of[1:most];
            part := most / cardinality(order_of);
            SELECT array_agg((
                SELECT count(*) FROM (
                    SELECT FROM tarry.task s
                    WHERE s.lane = lanes[o.nth] AND (s.due, s.key) > (froms[o.nth], from_keys[o.nth]) AND s.due <= now
                      AND s.token IS NULL ORDER BY s.due, s.key LIMIT part) x)::int ORDER BY o.at) INTO counts
            FROM unnest(order_of) WITH ORDINALITY o(nth, at);
            SELECT most - sum(c) INTO rest FROM unnest(counts) c;
            IF rest > 0 THEN
                SELECT array_agg(o.c + (
                    SELECT count(*) FROM (
                        SELECT f.at FROM unnest(order_of, counts) WITH ORDINALITY f(nth, c, at) CROSS JOIN LATERAL (
                            SELECT s.due FROM tarry.task s
                            WHERE s.lane = lanes[f.nth] AND (s.due, s.key) > (froms[f.nth], from_keys[f.nth]) AND s.due <= now
                              AND s.token IS NULL ORDER BY s.due, s.key LIMIT rest OFFSET part
                        ) m WHERE f.c = part ORDER BY m.due LIMIT rest) n WHERE n.at = o.at)::int ORDER BY o.at) INTO counts
                FROM unnest(counts) WITH ORDINALITY o(c, at);
            END IF;
        END IF;
        RETURN QUERY
        UPDATE tarry.task s SET token = base + s.revision, expires = now + lease_ms, attempt = s.attempt + 1
        WHERE s.ctid = ANY (ARRAY(
            SELECT x.ctid FROM unnest(order_of, counts) o(nth, c) CROSS JOIN LATERAL (
                SELECT y.ctid FROM tarry.task y
                WHERE y.lane = lanes[o.nth] AND (y.due, y.key) > (froms[o.nth], from_keys[o.nth]) AND y.due <= now
                  AND y.token IS NULL
                ORDER BY y.due, y.key LIMIT o.c FOR UPDATE SKIP LOCKED) x))
        RETURNING s.ctid, whiches[array_position(lanes, s.lane)], s.key, s.due, s.revision, s.created, s.attempt, s.snoozes,
                  s.lost, s.nominal, s.declared, s.cancelled, s.keep_ms, s.rule, s.reason, s.headers, s.payload, s.token,
                  s.expires;
        GET DIAGNOSTICS taken = ROW_COUNT;
        -- What was not ready has its head still; what was has another one.
        SELECT min(CASE WHEN o.nth = ANY (order_of) THEN x.due ELSE heads[o.nth] END) INTO next_due
        FROM unnest(lanes, froms, from_keys) WITH ORDINALITY o(lane, low, low_key, nth) LEFT JOIN LATERAL (
            SELECT s.due FROM tarry.task s
            WHERE o.nth = ANY (order_of) AND s.lane = o.lane AND (s.due, s.key) > (o.low, o.low_key) AND s.token IS NULL
            ORDER BY s.due, s.key LIMIT 1
        ) x ON true;
        now_us := tarry.clock_us(clock);
    ELSE
        SELECT min(d) INTO next_due FROM unnest(heads) d;
    END IF;
    IF number > 0 AND attempt IS NULL AND (taken > 0 OR insist) THEN
        INSERT INTO tarry.holder AS x (namespace, name, number, base, lanes, lows, high)
        VALUES (space, who, number, base, coalesce(lanes, '{}'), coalesce(froms, '{}'), now)
        ON CONFLICT (namespace, name) DO UPDATE SET
            number = excluded.number, base = excluded.base, lanes = excluded.lanes, lows = excluded.lows, high = excluded.high;
    END IF;
    place := NULL; which := NULL; key := NULL; revision := NULL; snoozes := NULL; nominal := NULL; declared := NULL;
    cancelled := NULL; keep_ms := NULL; rule := NULL; reason := NULL; headers := NULL; payload := NULL; token := NULL;
    due := next_due;
    expires := ends;
    created := now_us;
    attempt := coalesce(attempt, 0);
    lost := leases;
    RETURN NEXT;
END $$;

-- Let leases end lease_ms from now. Answers one number each: 0 renewed, 1 cancelled, 2 lost.
CREATE FUNCTION tarry.renew(
    space text, clock bigint, lease_ms bigint, kinds text[], which int[], keys text[], tokens bigint[]
) RETURNS bigint[] LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    lanes int[] := tarry.lanes_of(space, kinds);
    ends bigint := tarry.clock_us(clock) / 1000 + lease_ms;
    answers bigint[] := array_fill(2::bigint, ARRAY[cardinality(keys)]);
    held record;
BEGIN
    FOR held IN
        UPDATE tarry.task t SET expires = ends
        FROM unnest(which, keys, tokens) WITH ORDINALITY g(which, key, token, place)
        WHERE t.lane = lanes[coalesce(g.which, 1)] AND t.key = g.key AND t.token = g.token
        RETURNING g.place, t.cancelled
    LOOP
        answers[held.place] := held.cancelled::int;
    END LOOP;
    PERFORM set_config('synchronous_commit', 'off', true);
    RETURN answers;
END $$;

-- Record outcomes and end leases: 0 done, 1 skip, 2 dead, 3 retry, 4 snooze, 5 release. NULL: all are done.
-- `relaxed`: what a crash of the server forgets is attempted again. Answers one number each: 0 settled, 1 superseded, 2 lease
-- lost; {}: all are settled.
CREATE FUNCTION tarry.settle(
    space text, called text, clock bigint, relaxed boolean, kinds text[], which int[], keys text[], places tid[],
    tokens bigint[], outcomes int[], dues bigint[], reasons text[], next_dues bigint[], next_nominals bigint[]
) RETURNS bigint[] LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    now bigint;
    lanes int[];
    answers bigint[] := '{}';
    size int := cardinality(tokens);
    gone bigint[];
    soonest bigint;
    freed bigint;
    item record;
    t tarry.task;
BEGIN
    IF called IS NOT NULL THEN
        answers := tarry.recall(called);
        IF answers IS NOT NULL THEN
            RETURN answers;
        END IF;
        answers := '{}';
    END IF;
    now := tarry.clock_us(clock) / 1000;
    -- Where nothing is left behind, and the row is where the claim left it.
    IF outcomes IS NULL THEN
        WITH done AS (
            DELETE FROM tarry.task t USING unnest(places, tokens) g(place, token)
            WHERE t.ctid = g.place AND t.token = g.token AND NOT t.behind AND t.keep_ms = 0
            RETURNING g.token
        )
        SELECT array_agg(token) INTO gone FROM done;
    END IF;
    IF gone IS NULL OR cardinality(gone) < size THEN
        lanes := tarry.lanes_of(space, kinds);
        FOR item IN
            SELECT lanes[coalesce(g.which, 1)] AS lane, g.key, g.token, coalesce(g.outcome, 0) AS outcome, g.due,
                   coalesce(g.reason, '') AS reason, g.next_due, g.next_nominal
            FROM unnest(which, keys, tokens, outcomes, dues, reasons, next_dues, next_nominals)
                 g(which, key, token, outcome, due, reason, next_due, next_nominal)
        LOOP
            IF item.token = ANY (gone) THEN
                answers := answers || 0::bigint;
                CONTINUE;
            END IF;
            SELECT * INTO t FROM tarry.task x
            WHERE x.lane = item.lane AND x.key = item.key AND x.token = item.token FOR UPDATE;
            IF t.key IS NULL THEN
                answers := answers || 2::bigint;
                CONTINUE;
            END IF;
            IF item.outcome <= 1 THEN
                PERFORM tarry.keep(t, 'done', now, item.reason);
            ELSIF item.outcome = 2 THEN
                PERFORM tarry.keep(t, 'dead', now, item.reason);
            ELSIF t.cancelled THEN
                PERFORM tarry.keep(t, 'cancelled', now, item.reason);
            END IF;
            freed := NULL;
            IF t.behind THEN
                t := tarry.free(t);
                freed := t.due;
                answers := answers || 1::bigint;
            ELSE
                answers := answers || 0::bigint;
                IF item.outcome > 2 AND NOT t.cancelled THEN
                    freed := CASE WHEN item.outcome = 5 THEN t.due ELSE tarry.resolve(item.due, now) END;
                    UPDATE tarry.task x SET
                        token = NULL, expires = NULL, due = freed,
                        attempt = x.attempt - CASE WHEN item.outcome = 3 THEN 0 ELSE 1 END,
                        snoozes = x.snoozes + CASE WHEN item.outcome = 4 THEN 1 ELSE 0 END,
                        reason = CASE WHEN item.outcome = 5 THEN x.reason ELSE item.reason END
                    WHERE x.lane = item.lane AND x.key = item.key;
                ELSIF item.next_due IS NOT NULL AND (t.declared OR NOT t.cancelled) THEN
                    freed := greatest(item.next_due, now);
                    UPDATE tarry.task x SET
                        token = NULL, expires = NULL, due = freed, nominal = item.next_nominal, created = now,
                        revision = nextval('tarry.revision'), attempt = 0, snoozes = 0, lost = 0, reason = '',
                        cancelled = false
                    WHERE x.lane = item.lane AND x.key = item.key;
                    -- A revision that was given out must not be given out again.
                    relaxed := false;
                ELSE
                    DELETE FROM tarry.task x WHERE x.lane = item.lane AND x.key = item.key;
                END IF;
            END IF;
            IF freed <= now + 2000 AND (soonest IS NULL OR freed < soonest) AND tarry.is_open(item.lane) THEN
                soonest := freed;
            END IF;
        END LOOP;
        IF answers = array_fill(0::bigint, ARRAY[size]) THEN
            answers := '{}';
        END IF;
    END IF;
    IF soonest IS NOT NULL THEN
        PERFORM tarry.wake(space, soonest);
    END IF;
    -- History that was kept long enough goes, a few records at a time.
    IF EXISTS (SELECT FROM tarry.ended e WHERE e.until <= now) THEN
        DELETE FROM tarry.ended e WHERE e.id IN (
            SELECT x.id FROM tarry.ended x WHERE x.until <= now ORDER BY x.until LIMIT 10 FOR UPDATE SKIP LOCKED);
    END IF;
    IF called IS NOT NULL THEN
        PERFORM tarry.remember(called, now, answers);
    END IF;
    IF relaxed THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    RETURN answers;
END $$;
