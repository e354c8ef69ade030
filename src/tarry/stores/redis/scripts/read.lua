-- read: run one reading command of a shard.
-- ARGV: command, key behind the shard's prefix, arguments. Answers what the command does.
return redis.call(ARGV[1], P .. ARGV[2], unpack(ARGV, 3))
