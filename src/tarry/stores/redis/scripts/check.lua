-- check: do the orders agree with some records?
-- ARGV: kind, then keys of b:<kind>. Answers the keys whose record and orders disagree.
local kind, wrong = ARGV[1], {}
for i = 2, #ARGV do
  local key = ARGV[i]
  local record = redis.call('HGET', P .. 'b:' .. kind, key)
  if record then
    local due = redis.call('ZSCORE', P .. 'd:' .. kind, key)
    local token = redis.call('HGET', P .. 't:' .. kind, key)
    local lease = redis.call('ZSCORE', P .. 'l:' .. kind, key)
    local agrees
    if token then
      agrees = lease and not due
    else
      agrees = due and not lease and tonumber(due) == struct.unpack('>i8', record, 17)
    end
    if not agrees then wrong[#wrong + 1] = key end
  end
end
return wrong
