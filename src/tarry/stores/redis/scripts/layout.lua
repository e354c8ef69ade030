-- layout: say how the namespace is laid out, and settle it with its first use. Uses:
-- meta HASH: layout (version), shards. ARGV: version, shards. Answers both as they are.
if redis.call('EXISTS', P .. 'meta') == 0 then
  redis.call('HSET', P .. 'meta', 'layout', ARGV[1], 'shards', ARGV[2])
end
return redis.call('HMGET', P .. 'meta', 'layout', 'shards')
