-- layout: say how the namespace is laid out, and settle it with its first use.
-- meta HASH: layout (version), shards. ARGV: version, shards. Answers both as they are.
-- A script that is refused one of its commands has done half of its work: whoever may not call all of them is refused here.
if redis.acl_check_cmd then
  for name in string.gmatch('DEL EXISTS GET HGETALL HLEN PEXPIRE SMEMBERS TIME ZCARD', '%u+') do
    if not redis.acl_check_cmd(name, P) then return redis.error_reply('NOPERM this user may not call ' .. name) end
  end
  for _, words in ipairs({
    {'SET', P, '1', 'PX', '1'}, {'HSET', P, '1', '1'}, {'HDEL', P, '1'}, {'HGET', P, '1'}, {'HMGET', P, '1'},
    {'HSCAN', P, '0'}, {'ZMSCORE', P, '1'}, {'SADD', P, '1'}, {'SREM', P, '1'}, {'SISMEMBER', P, '1'}, {'ZADD', P, '1', '1'}, {'ZREM', P, '1'},
    {'ZSCORE', P, '1'}, {'ZCOUNT', P, '0', '1'}, {'ZRANGE', P, '0', '1'}, {'ZRANGEBYSCORE', P, '0', '1'},
    {'ZRANGEBYLEX', P, '-', '+'}, {'ZREVRANGEBYLEX', P, '+', '-'}, {'ZREMRANGEBYRANK', P, '0', '1'}, {'$PUBLISH', P .. 'wake', '1'},
  }) do
    if not redis.acl_check_cmd(unpack(words)) then return redis.error_reply('NOPERM this user may not call ' .. words[1]) end
  end
end
if redis.call('EXISTS', P .. 'meta') == 0 then
  redis.call('HSET', P .. 'meta', 'layout', ARGV[1], 'shards', ARGV[2])
end
return redis.call('HMGET', P .. 'meta', 'layout', 'shards')
