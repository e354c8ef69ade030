-- counts: how many tasks of each kind there are.
-- ARGV: clock, then the kinds. Answers for each: waiting, running, behind, dead, overdue, oldest due, paused, leases that have ended.
-- Uses: now
local reply = {}
for i = 2, #ARGV do
  local kind = ARGV[i]
  local head = redis.call('ZRANGE', P .. 'd:' .. kind, 0, 0, 'WITHSCORES')
  reply[#reply + 1] = {
    redis.call('ZCARD', P .. 'd:' .. kind),
    redis.call('ZCARD', P .. 'l:' .. kind),
    redis.call('HLEN', P .. 'n:' .. kind),
    redis.call('ZCARD', P .. 'Dz:' .. kind),
    redis.call('ZCOUNT', P .. 'd:' .. kind, '-inf', now),
    head[2] or '',
    redis.call('SISMEMBER', P .. 'p', kind),
    redis.call('ZCOUNT', P .. 'l:' .. kind, '-inf', now),
  }
end
return reply
