-- pause: stop or resume claims of a kind.
-- ARGV: clock, call, kind, 1 to pause or 0 to resume. Answers one byte: whether it was paused before.
-- Uses: now calls heads
local known = remembered()
if known then return known end

local kind, before = ARGV[3], nil
if ARGV[4] == '1' then
  before = 1 - redis.call('SADD', P .. 'p', kind)
  redis.call('ZREM', P .. 'h', kind)
  redis.call('ZREM', P .. 'x', kind)
else
  before = redis.call('SREM', P .. 'p', kind)
  refresh_one('h', 'd:', kind)
  refresh_one('x', 'l:', kind)
  if before == 1 then
    for _, index in ipairs({'h', 'x'}) do
      local head = tonumber(redis.call('ZSCORE', P .. index, kind))
      if head and (not soonest or head < soonest) then soonest = head end
    end
    wake()
  end
end
return remember(before == 1 and '\1' or '\0')
