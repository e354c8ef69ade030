-- now: the store's clock. ARGV[1] is empty, or the microseconds of a clock that stands in for it.
local now_us = tonumber(ARGV[1])
if not now_us then
  local t = redis.call('TIME')
  now_us = t[1] * 1000000 + t[2]
end
local now = math.floor(now_us / 1000)
local LAST = 253402300799999

local function resolve(relative, value)
  local due = relative and now + value or value
  if due < now then return now end
  if due > LAST then return LAST end
  return due
end
