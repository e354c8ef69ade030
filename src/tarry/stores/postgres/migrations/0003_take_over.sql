-- Tasks and dead letters of another store come over with all they went through; only their revision is new.

-- Place records as another store had them. `ends`: when a dead letter ended, NULL for a task that waits. `over`: also where one
-- waits here. Answers 1 for each that was placed. A dead letter is not placed twice: one of its ref with the same end is the same.
CREATE FUNCTION tarry.take_over(
    space text, called text, clock bigint, over boolean, kinds text[], which int[], keys text[], ends bigint[], dues bigint[],
    creates bigint[], attempts int[], snoozes int[], losts int[], nominals bigint[], declares boolean[], cancels boolean[],
    keeps bigint[], rules text[], reasons text[], headers bytea[], payloads bytea[]
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
    n tarry.task;
    placed boolean;
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
    IF ends IS NOT NULL THEN
        -- Whoever brings letters of the same kind waits: each must see what the other has placed.
        PERFORM FROM tarry.lane l WHERE l.id = ANY (lanes) ORDER BY l.id FOR NO KEY UPDATE;
    END IF;
    FOR item IN
        SELECT lanes[coalesce(g.which, 1)] AS lane, g.key, g.ended, g.due, g.created, coalesce(g.attempt, 0) AS attempt,
               coalesce(g.snooze, 0) AS snoozes, coalesce(g.lost, 0) AS lost, coalesce(g.nominal, 0) AS nominal,
               coalesce(g.declared, false) AS declared, coalesce(g.cancelled, false) AS cancelled,
               coalesce(g.keep_ms, 0) AS keep_ms, coalesce(g.rule, '') AS rule, coalesce(g.reason, '') AS reason,
               coalesce(g.header, '') AS header, g.payload
        FROM unnest(which, keys, ends, dues, creates, attempts, snoozes, losts, nominals, declares, cancels, keeps, rules,
                    reasons, headers, payloads)
             g(which, key, ended, due, created, attempt, snooze, lost, nominal, declared, cancelled, keep_ms, rule, reason,
               header, payload)
    LOOP
        SELECT item.due, nextval('tarry.revision'), item.created, item.nominal, item.keep_ms, NULL, NULL, item.lane,
               item.attempt, item.snoozes, item.lost, item.declared, item.cancelled AND item.ended IS NOT NULL, false,
               item.key, item.rule, item.reason, item.header, item.payload
        INTO n;
        IF item.ended IS NOT NULL THEN
            placed := NOT EXISTS (SELECT FROM tarry.ended e
                WHERE e.lane = item.lane AND e.key = item.key AND e.state = 'dead' AND e.at = item.ended);
            PERFORM tarry.keep(n, 'dead', item.ended, item.reason) WHERE placed;
            answers := answers || placed::int::bigint;
            CONTINUE;
        END IF;
        LOOP
            SELECT * INTO t FROM tarry.task x WHERE x.lane = item.lane AND x.key = item.key FOR UPDATE;
            IF t.token IS NOT NULL AND t.expires <= now THEN
                t := tarry.expire(t, now);
            END IF;
            IF t.token IS NOT NULL THEN
                placed := over OR NOT t.behind;
                IF placed THEN
                    DELETE FROM tarry.behind x WHERE x.lane = item.lane AND x.key = item.key;
                    INSERT INTO tarry.behind (lane, key, due, revision, created, nominal, keep_ms, attempt, snoozes, lost,
                                              declared, rule, reason, headers, payload)
                    VALUES (n.lane, n.key, n.due, n.revision, n.created, n.nominal, n.keep_ms, n.attempt, n.snoozes, n.lost,
                            n.declared, n.rule, n.reason, n.headers, n.payload);
                    UPDATE tarry.task x SET behind = true WHERE x.lane = item.lane AND x.key = item.key AND NOT x.behind;
                END IF;
                EXIT;
            END IF;
            INSERT INTO tarry.task AS x VALUES (n.*)
            ON CONFLICT (lane, key) DO UPDATE SET
                due = excluded.due, revision = excluded.revision, created = excluded.created, nominal = excluded.nominal,
                keep_ms = excluded.keep_ms, attempt = excluded.attempt, snoozes = excluded.snoozes, lost = excluded.lost,
                declared = excluded.declared, cancelled = false, rule = excluded.rule, reason = excluded.reason,
                headers = excluded.headers, payload = excluded.payload
            WHERE over AND x.token IS NULL;
            placed := FOUND;
            IF placed AND n.due <= now + 2000 AND (soonest IS NULL OR n.due < soonest) AND tarry.is_open(item.lane) THEN
                soonest := n.due;
            END IF;
            -- Where somebody else was faster it is there now, and may run already.
            EXIT WHEN placed OR t.key IS NOT NULL;
        END LOOP;
        answers := answers || placed::int::bigint;
    END LOOP;
    IF soonest IS NOT NULL THEN
        PERFORM tarry.wake(space, soonest);
    END IF;
    IF called IS NOT NULL THEN
        PERFORM tarry.remember(called, now, answers);
    END IF;
    RETURN answers;
END $$;
