-- For people with a SQL shell, and for programs in any language: every task by name, and a task scheduled by one statement.

CREATE VIEW tarry.tasks AS
    SELECT l.namespace, l.kind, t.key,
           CASE WHEN t.token IS NULL THEN 'scheduled' ELSE 'leased' END AS state,
           to_timestamp(t.due / 1000.0) AS due, t.revision, t.attempt,
           convert_from(t.payload, 'UTF8') AS payload
    FROM tarry.task t JOIN tarry.lane l ON l.id = t.lane;

-- SELECT tarry.later('shop', 'order.cancel', 'order:42', interval '30 minutes', '{"order_id": 42}');
-- Part of the transaction it is called in; a task that waits under this key is replaced. Returns the revision.
CREATE FUNCTION tarry.later(
    in_namespace text, of_kind text, with_key text, delay interval, payload jsonb DEFAULT '{}'
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    answers bigint[];
BEGIN
    IF in_namespace !~ '^[A-Za-z0-9_.-]{1,64}$' OR of_kind !~ '^[A-Za-z0-9_.:-]{1,128}$'
       OR octet_length(with_key) NOT BETWEEN 1 AND 512 OR with_key ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION 'namespace, kind or key is not allowed: %, %, %', in_namespace, of_kind, with_key
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF delay < interval '0' THEN
        RAISE EXCEPTION 'a delay is never negative: %', delay USING ERRCODE = 'invalid_parameter_value';
    END IF;
    answers := tarry.schedule(in_namespace, NULL, NULL, true, ARRAY[of_kind], NULL, ARRAY[with_key],
        ARRAY[-1 - (extract(epoch FROM delay) * 1000)::bigint], ARRAY[convert_to(payload::text, 'UTF8')],
        NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    RETURN CASE WHEN answers[1] = 2 THEN answers[5] ELSE answers[3] END;
END $$;
