-- settle: record outcomes and end leases.
-- ARGV: clock, call, then for each kind: kind, count, plain (1 if all are plainly over, and no key comes twice; 2 if
--   besides there is no other kind), tokens (8 bytes an item),
--   how (26 bytes an item, empty where all are plain), then all keys, then the reasons of those that have one.
--   how: >B B i8 i8 i8: flags (1 relative due, 2 successor, 8 has a reason), outcome (0 done, 1 dead, 2 retry, 3 snooze, 4 release), due,
--   successor's due, successor's nominal. Plainly over: done, and nothing is kept or placed.
-- Answers one byte each.
-- What ends tasks goes on when the server is out of memory: Redis refuses only a script's first write for that.
redis.call('DEL', KEYS[2])

-- The common call, as short as it can be: one kind, all plainly over, nothing behind them, no history of anything.
if ARGV[5] == '2' and redis.call('EXISTS', P .. 'n:' .. ARGV[3], P .. 'ks') == 0 then
  local kind, call, known = ARGV[3], ARGV[2], false
  if call ~= '' then known = redis.call('GET', P .. 'c:' .. call) end
  local held = known or redis.call('HMGET', P .. 't:' .. kind, unpack(ARGV, 8))
  local all = not known
  for i = 1, #ARGV - 7 do all = all and held[i] end
  if all and table.concat(held) == ARGV[6] then
    redis.call('HDEL', P .. 'b:' .. kind, unpack(ARGV, 8))
    redis.call('HDEL', P .. 't:' .. kind, unpack(ARGV, 8))
    redis.call('ZREM', P .. 'l:' .. kind, unpack(ARGV, 8))
    -- A kind that is paused has no head.
    if redis.call('ZSCORE', P .. 'x', kind) then
      local head = redis.call('ZRANGE', P .. 'l:' .. kind, 0, 0, 'WITHSCORES')
      if head[1] then redis.call('ZADD', P .. 'x', head[2], kind) else redis.call('ZREM', P .. 'x', kind) end
    end
    local answers = string.rep('\0', #ARGV - 7)
    if call ~= '' then redis.call('SET', P .. 'c:' .. call, answers, 'PX', 30000) end
    return answers
  end
end

-- Uses: now calls revisions records heads lives
local SETTLED, SUPERSEDED, LEASE_LOST = '\0', '\1', '\2'
local DONE, DEAD, RETRY, SNOOZE, RELEASE = 0, 1, 2, 3, 4

local known = remembered()
if known then return known end

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

local function carefully(kind, key, token, flags, outcome, value, next_due, nominal, reason)
  local life = load(kind, key)
  if not life.token or string.sub(life.token, 1, 8) ~= token then return LEASE_LOST end
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

-- Whether these are exactly those tokens; one of a cancelled attempt is longer, and so is not.
local function are(held, count, tokens)
  for i = 1, count do
    if not held[i] then return false end
  end
  return table.concat(held) == tokens
end

local answers = {}
local place = 3
while ARGV[place] do
  local kind, count, tokens, hows = ARGV[place], tonumber(ARGV[place + 1]), ARGV[place + 3], ARGV[place + 4]
  local first, last = place + 5, place + 4 + count
  -- What is plainly over, which is most, goes together.
  if ARGV[place + 2] ~= '0' and redis.call('EXISTS', P .. 'n:' .. kind) == 0
      and are(redis.call('HMGET', P .. 't:' .. kind, unpack(ARGV, first, last)), count, tokens) then
    touch(kind).leases = true
    redis.call('HDEL', P .. 'b:' .. kind, unpack(ARGV, first, last))
    redis.call('HDEL', P .. 't:' .. kind, unpack(ARGV, first, last))
    redis.call('ZREM', P .. 'l:' .. kind, unpack(ARGV, first, last))
    answers[#answers + 1] = string.rep(SETTLED, count)
  else
    for i = 1, count do
      local flags, outcome, value, next_due, nominal, reason = 0, DONE, 0, 0, 0, ''
      if hows ~= '' then flags, outcome, value, next_due, nominal = struct.unpack('>BBi8i8i8', hows, i * 26 - 25) end
      if flags >= 8 then
        last = last + 1
        reason = ARGV[last]
      end
      answers[#answers + 1] = carefully(kind, ARGV[place + 4 + i], string.sub(tokens, i * 8 - 7, i * 8), flags,
        outcome, value, next_due, nominal, reason)
    end
  end
  place = last + 1
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
refresh()
wake()
return remember(table.concat(answers))
