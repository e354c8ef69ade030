-- settle: record outcomes and end leases. Uses: freeing now calls revisions records heads lives
-- ARGV: clock, call, then for each kind: kind, count, how (34 bytes an item), and for each item: key, and its reason if it has one.
--   how: token (8 bytes), >B B i8 i8 i8: flags (1 relative due, 2 successor, 4 plainly over: nothing is kept or placed, 8 has a
--   reason), outcome (0 done, 1 dead, 2 retry, 3 snooze, 4 release), due, successor's due, successor's nominal.
-- Answers one byte each.
local SETTLED, SUPERSEDED, LEASE_LOST = '\0', '\1', '\2'
local DONE, DEAD, RETRY, SNOOZE, RELEASE = 0, 1, 2, 3, 4

local known = remembered()
if known then return known end

local answers = {}

local function again(life, flags, outcome, value, reason)
  local record = copy(life.running)
  if outcome == RELEASE then return record end
  record.due, record.reason = resolve(flags % 2 == 1, value), reason
  if outcome == RETRY then
    record.attempt = record.attempt + 1
  else
    record.snoozes = record.snoozes + 1
  end
  return record
end

local function successor(record, due, nominal)
  local new = copy(record)
  new.due, new.nominal, new.created, new.revision = math.max(due, now), nominal, now, draw()
  new.attempt, new.snoozes, new.lost, new.reason, new.cancelled = 0, 0, 0, '', false
  return new
end

local function carefully(kind, key, hows, place, reason)
  local life = load(kind, key)
  if not life.token or string.sub(life.token, 1, 8) ~= string.sub(hows, place, place + 7) then return LEASE_LOST end
  local flags, outcome, value, next_due, nominal = struct.unpack('>BBi8i8i8', hows, place + 8)
  local cancelled = #life.token > 8
  if outcome == DONE then
    ended('K', kind, key, tried(life.running), reason, false)
  elseif outcome == DEAD then
    ended('D', kind, key, tried(life.running), reason, false)
  elseif cancelled then
    ended('K', kind, key, tried(life.running), reason, true)
  end
  if life.waiting then
    put(kind, key, life, {waiting = life.waiting})
    return SUPERSEDED
  end
  local waiting = nil
  if outcome >= RETRY and not cancelled then
    waiting = again(life, flags, outcome, value, reason)
  elseif bit.band(flags, 2) ~= 0 and (not cancelled or life.running.declared) then
    waiting = successor(life.running, next_due, nominal)
  end
  put(kind, key, life, {waiting = waiting})
  return SETTLED
end

-- What is plainly over, which is most, goes together.
local gone = {}
local function flush(kind)
  if #gone == 0 then return end
  touch(kind).leases = true
  redis.call('HDEL', P .. 'b:' .. kind, unpack(gone))
  redis.call('HDEL', P .. 't:' .. kind, unpack(gone))
  redis.call('ZREM', P .. 'l:' .. kind, unpack(gone))
  gone = {}
end

local place = 3
while ARGV[place] do
  local kind, count, hows = ARGV[place], tonumber(ARGV[place + 1]), ARGV[place + 2]
  local keys, reasons, seen = {}, {}, {}
  place = place + 3
  for i = 1, count do
    keys[i] = ARGV[place]
    place = place + 1
    if string.byte(hows, i * 34 - 25) >= 8 then
      reasons[i] = ARGV[place]
      place = place + 1
    end
  end
  local tokens = redis.call('HMGET', P .. 't:' .. kind, unpack(keys))
  local behind = redis.call('EXISTS', P .. 'n:' .. kind) == 1
  for i = 1, count do
    local key, how = keys[i], i * 34 - 33
    if tokens[i] == string.sub(hows, how, how + 7) and bit.band(string.byte(hows, how + 8), 4) ~= 0
        and not behind and not seen[key] then
      gone[#gone + 1] = key
      answers[#answers + 1] = SETTLED
    else
      flush(kind)
      answers[#answers + 1] = carefully(kind, key, hows, how, reasons[i] or '')
    end
    seen[key] = true
  end
  flush(kind)
end

-- History that was kept long enough is forgotten, a few records with each settlement.
for _, member in ipairs(redis.call('ZRANGEBYSCORE', P .. 'ks', '-inf', now, 'LIMIT', 0, 10)) do
  local cut = string.find(member, '\0', 1, true)
  local kind, record = string.sub(member, 1, cut - 1), string.sub(member, cut + 1)
  redis.call('ZREM', P .. 'ks', member)
  redis.call('ZREM', P .. 'Kz:' .. kind, record)
  redis.call('HDEL', P .. 'Kb:' .. kind, record)
  if redis.call('EXISTS', P .. 'Kz:' .. kind, P .. 'Dz:' .. kind) == 0 then redis.call('ZREM', P .. 'e', kind) end
end
keep_drawn()
refresh()
wake()
return remember(table.concat(answers))
