-- sound: do the orders and heads of some kinds agree, by number and by their first?
-- ARGV: kinds. Answers the kinds where they do not.
local function agrees(index, order, kind, paused)
  local head = redis.call('ZRANGE', P .. order .. kind, 0, 0, 'WITHSCORES')[2]
  local known = redis.call('ZSCORE', P .. index, kind)
  if paused then return not known end
  return tonumber(head) == tonumber(known)
end

local wrong = {}
for _, kind in ipairs(ARGV) do
  local records, waiting = redis.call('HLEN', P .. 'b:' .. kind), redis.call('ZCARD', P .. 'd:' .. kind)
  local running, tokens = redis.call('ZCARD', P .. 'l:' .. kind), redis.call('HLEN', P .. 't:' .. kind)
  local paused = redis.call('SISMEMBER', P .. 'p', kind) == 1
  if records ~= waiting + running or running ~= tokens or not agrees('h', 'd:', kind, paused)
      or not agrees('x', 'l:', kind, paused) then
    wrong[#wrong + 1] = kind
  end
end
return wrong
