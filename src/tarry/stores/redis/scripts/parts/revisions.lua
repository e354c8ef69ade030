-- revisions: rev is the newest one given out. They follow the microseconds of the clock where that is
-- ahead, so that none is given out twice after a crash or a failover that forgot the newest writes.
local drawn = nil

local function draw()
  if not drawn then drawn = math.max(tonumber(redis.call('GET', P .. 'rev') or 0), now_us - 1) end
  drawn = drawn + 1
  return drawn
end

local function keep_drawn()
  if drawn then redis.call('SET', P .. 'rev', string.format('%.0f', drawn)) end
end
