-- renew: let leases end lease_ms from now. Uses: freeing now heads
-- ARGV: clock, lease_ms, then for each kind: kind, count, and for each lease: key, token. Answers one byte each.
local RENEWED, CANCELLED, LOST = '\0', '\1', '\2'
local expires = now + tonumber(ARGV[2])
local answers = {}
local place = 3
while ARGV[place] do
  local kind, count = ARGV[place], tonumber(ARGV[place + 1])
  local keys, ends = {}, {}
  for i = 1, count do keys[i] = ARGV[place + i * 2] end
  local tokens = redis.call('HMGET', P .. 't:' .. kind, unpack(keys))
  for i = 1, count do
    if tokens[i] and string.sub(tokens[i], 1, 8) == ARGV[place + i * 2 + 1] then
      ends[#ends + 1] = expires
      ends[#ends + 1] = keys[i]
      answers[#answers + 1] = #tokens[i] > 8 and CANCELLED or RENEWED
    else
      answers[#answers + 1] = LOST
    end
  end
  if #ends > 0 then
    redis.call('ZADD', P .. 'l:' .. kind, unpack(ends))
    if redis.call('ZSCORE', P .. 'x', kind) then refresh_one('x', 'l:', kind) end
  end
  place = place + 2 + count * 2
end
return table.concat(answers)
