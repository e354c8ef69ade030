-- waiting: a page of what waits to be claimed, by due and key, as it is stored.
-- ARGV: kind, from (a due, or -inf), after ('' or the key behind which to go on at that due), before (a due, or +inf), limit.
-- Answers: keys, records.
-- Bytes, as the order itself compares them; what Lua's < does depends on the server's locale.
local function is_after(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x > y end
  end
  return #a > #b
end

local kind, after, limit = ARGV[1], ARGV[3], tonumber(ARGV[5])
local order = P .. 'd:' .. kind
local rank = 0
if ARGV[2] ~= '-inf' then
  -- The place of (due, key), whether or not that task is still there.
  local low, high = redis.call('ZCOUNT', order, '-inf', '(' .. ARGV[2]), 0
  high = low + (after ~= '' and redis.call('ZCOUNT', order, ARGV[2], ARGV[2]) or 0)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if is_after(redis.call('ZRANGE', order, middle, middle)[1], after) then high = middle else low = middle + 1 end
  end
  rank = low
end
local keys = redis.call('ZRANGE', order, rank, rank + limit - 1)
if ARGV[4] ~= '+inf' then
  local most = redis.call('ZCOUNT', order, '-inf', '(' .. ARGV[4]) - rank
  while #keys > math.max(most, 0) do keys[#keys] = nil end
end
if #keys == 0 then return {keys, {}} end
return {keys, redis.call('HMGET', P .. 'b:' .. kind, unpack(keys))}
