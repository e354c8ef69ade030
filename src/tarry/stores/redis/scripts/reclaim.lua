-- reclaim: end leases that have expired.
-- ARGV: clock, limit, then the kinds. Answers how many are left.
-- Uses: freeing now records heads lives
local limit, left = tonumber(ARGV[2]), 0
for i = 3, #ARGV do
  local kind = ARGV[i]
  local head = redis.call('ZSCORE', P .. 'x', kind)
  if head and tonumber(head) <= now then
    for _, key in ipairs(redis.call('ZRANGEBYSCORE', P .. 'l:' .. kind, '-inf', now, 'LIMIT', 0, math.max(limit, 0))) do
      at(kind, key, load(kind, key))
      limit = limit - 1
    end
    left = left + redis.call('ZCOUNT', P .. 'l:' .. kind, '-inf', now)
  end
end
refresh()
return left
