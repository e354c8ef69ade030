-- revisions: rev is the newest one given out. They follow the microseconds of the clock where that is
-- ahead, so that none is given out twice after a crash or a failover that forgot the newest writes.
-- A call takes as many at once as it has words, which is more than it can need.
local drawn = nil

local function draw()
  if not drawn then
    local ahead = string.format('%d', now_us - 1 + #ARGV)
    local newest = tonumber(redis.call('SET', P .. 'rev', ahead, 'GET') or 0)
    drawn = now_us - 1
    if newest > drawn then
      drawn = newest
      redis.call('SET', P .. 'rev', string.format('%d', newest + #ARGV))
    end
  end
  drawn = drawn + 1
  return drawn
end
