-- renew: let leases end lease_ms from now.
-- ARGV: clock, lease_ms, then for each kind: kind, count, tokens (8 bytes a lease), and for each lease: key.
-- Answers one byte each.
-- Uses: freeing now heads
local RENEWED, CANCELLED, LOST = '\0', '\1', '\2'
local expires = string.format('%d', now + tonumber(ARGV[2]))
local answers = {}
local place = 3
while ARGV[place] do
  local kind, count, marks = ARGV[place], tonumber(ARGV[place + 1]), ARGV[place + 2]
  local keys, ends = {}, {}
  for i = 1, count do keys[i] = ARGV[place + 2 + i] end
  local tokens = redis.call('HMGET', P .. 't:' .. kind, unpack(keys))
  for i = 1, count do
    if tokens[i] and string.sub(tokens[i], 1, 8) == string.sub(marks, i * 8 - 7, i * 8) then
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
  place = place + 3 + count
end
return table.concat(answers)
