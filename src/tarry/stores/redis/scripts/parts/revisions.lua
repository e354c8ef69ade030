-- revisions: rev is the newest one given out. They follow the microseconds of the clock where that is
-- ahead, so that none is given out twice after a crash or a failover that forgot the newest writes.
-- A call takes more at once than it can need: from `first_of` on one for each of its words, and behind them those that are drawn.
local first, drawn = nil, nil

local function first_of()
  if not first then
    local most = 2 * #ARGV
    local newest = tonumber(redis.call('SET', P .. 'rev', string.format('%d', now_us + most), 'GET') or 0)
    first = now_us
    if newest >= first then
      first = newest + 1
      redis.call('SET', P .. 'rev', string.format('%d', first + most))
    end
    drawn = first + #ARGV
  end
  return first
end

local function draw()
  first_of()
  drawn = drawn + 1
  return drawn
end
