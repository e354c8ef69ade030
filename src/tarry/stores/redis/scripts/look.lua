-- look: show lives and what has ended, as they are stored.
-- ARGV: clock, then for each item: kind, key. Answers: now, then for each item:
-- front record, token, end of the lease, record behind, newest dead letter, newest of the history; false for what is not there.
-- Uses: now
local reply = {string.format('%d', now)}

local function newest(letter, kind, key)
  local found = redis.call('ZREVRANGEBYLEX', P .. letter .. 'z:' .. kind, '(' .. key .. '\1', '[' .. key .. '\0', 'LIMIT', 0, 1)
  return found[1] and redis.call('HGET', P .. letter .. 'b:' .. kind, found[1])
end

for place = 2, #ARGV, 2 do
  local kind, key = ARGV[place], ARGV[place + 1]
  local front = redis.call('HGET', P .. 'b:' .. kind, key)
  local token = front and redis.call('HGET', P .. 't:' .. kind, key)
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = front, token, false, false
  if token then
    reply[n + 3] = redis.call('ZSCORE', P .. 'l:' .. kind, key)
    reply[n + 4] = redis.call('HGET', P .. 'n:' .. kind, key)
  end
  reply[n + 5], reply[n + 6] = newest('D', kind, key) or false, newest('K', kind, key) or false
end
return reply
