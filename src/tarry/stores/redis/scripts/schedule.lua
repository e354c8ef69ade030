-- schedule: place each request in its ref's waiting slot.
-- ARGV: clock, call, then for each kind: kind, count, plain (1 if none needs care, and no key comes twice; 2 if
--   besides there is no other kind), keeps (1 if history is kept
--   of some), how (2 bytes an item; empty where all are 0), first and last due (empty unless all are plain and fixed), then all keys, all
--   dues (+ before one from now on), all tails.
--   how: flags (2 max_wait, 4 if_revision, 8 needs care), mode
--   tail: the record from `place` on, from `due` on where first and last are given; with care before that >i8 i8 i8: max_wait_ms,
--   if_revision, nominal
--   k: SET of the kinds that ever kept history; a cancel need not look at the records of any other
-- Answers >B i8 i8: status, due, revision, in the order asked; or, where all were new, ALL_NEW, now and the first revision:
-- the others follow it one by one, and each due is what was asked for, from now on.

-- The common call, as short as it can be: one kind, nothing special, all refs new.
if ARGV[5] == '2' then
  local kind, call, known = ARGV[3], ARGV[2], false
  if call ~= '' then known = redis.call('GET', P .. 'c:' .. call) end
  local count, there = (#ARGV - 9) / 3, known
  -- While nothing of the kind runs, whatever is not in the order of dues is new: adding to it tells.
  local idle = redis.call('EXISTS', P .. 't:' .. kind) == 0
  if not idle and not known then
    local fronts = redis.call('HMGET', P .. 'b:' .. kind, unpack(ARGV, 10, 9 + count))
    for i = 1, count do there = there or fronts[i] end
  end
  if not there then
    local us = ARGV[1]
    if us == '' then
      local t = redis.call('TIME')
      us = t[1] * 1000000 + t[2]
    else
      us = tonumber(us)
    end
    local now, low = math.floor(us / 1000), tonumber(ARGV[8])
    if not low or (low >= now and tonumber(ARGV[9]) <= 253402300799999) then
      local first = us
      local newest = tonumber(redis.call('SET', P .. 'rev', string.format('%d', us + count), 'GET') or 0)
      if newest >= us then
        first = newest + 1
        redis.call('SET', P .. 'rev', string.format('%d', first + count))
      end
      local bodies, scores, head = {}, {}, struct.pack('>i8i8', first, now)
      if low then
        for i = 1, count do
          local key = ARGV[9 + i]
          bodies[i * 2 - 1], bodies[i * 2] = key, head .. ARGV[9 + count * 2 + i]
          scores[i * 2 - 1], scores[i * 2] = ARGV[9 + count + i], key
        end
      else
        local dues, heads = {}, {}
        for i = 1, count do
          local key, asked = ARGV[9 + i], ARGV[9 + count + i]
          if not dues[asked] then
            local due = tonumber(asked)
            if string.byte(asked) == 43 then due = due + now end
            if due < now then due = now elseif due > 253402300799999 then due = 253402300799999 end
            dues[asked], heads[asked] = string.format('%d', due), head .. struct.pack('>i8', due)
            if not low or due < low then low = due end
          end
          bodies[i * 2 - 1], bodies[i * 2] = key, heads[asked] .. ARGV[9 + count * 2 + i]
          scores[i * 2 - 1], scores[i * 2] = dues[asked], key
        end
      end
      -- If not all are new, those that are get their records below.
      if redis.call('ZADD', P .. 'd:' .. kind, 'NX', unpack(scores)) == count then
        redis.call('HSET', P .. 'b:' .. kind, unpack(bodies))
        if ARGV[6] == '1' then redis.call('SADD', P .. 'k', kind) end
        local lane = redis.call('ZSCORE', P .. 'h', kind)
        if lane and low < tonumber(lane) or not lane and redis.call('SISMEMBER', P .. 'p', kind) == 0 then
          local soonest = string.format('%d', low)
          redis.call('ZADD', P .. 'h', soonest, kind)
          if low - now <= 2000 then redis.call('$PUBLISH', P .. 'wake', soonest) end
        end
        local answers = struct.pack('>Bi8i8', 255, now, first)
        if call ~= '' then redis.call('SET', P .. 'c:' .. call, answers, 'PX', 30000) end
        return answers
      end
    end
  end
end

-- Uses: now calls revisions records heads lives
local CREATED, REPLACED, KEPT, CONFLICT, ALL_NEW = 0, 1, 2, 3, 255
local KEEP, EARLIEST, LATEST, FAIL = 1, 2, 3, 4
local PLUS = 43

local known = remembered()
if known then return known end

local text, pack, byte = string.format, struct.pack, string.byte

-- A due as a number, as the text of a score, and as it stands in a record.
local later = {}
local function due_of(asked)
  local known = later[asked]
  if not known then
    local due = resolve(byte(asked) == PLUS, tonumber(asked))
    known = {due, text('%d', due), pack('>i8', due)}
    later[asked] = known
  end
  return known[1], known[2], known[3]
end

local function carefully(kind, key, asked, flags, mode, tail)
  local max_wait, wanted, nominal = 0, 0, 0
  if flags >= 8 then
    max_wait, wanted, nominal = struct.unpack('>i8i8i8', tail)
    tail = string.sub(tail, 25)
  end
  local life = at(kind, key, load(kind, key))
  local old = life.waiting
  if (bit.band(flags, 4) ~= 0 and (not old or old.revision ~= wanted)) or (old and mode == FAIL) then
    return CONFLICT, old and old.due or 0, old and old.revision or 0
  end
  if old and mode == KEEP then return KEPT, old.due, old.revision end
  local due, created = due_of(asked), now
  if old and mode == EARLIEST then
    due, created = math.min(old.due, due), old.created
  elseif old and mode == LATEST then
    if bit.band(flags, 2) ~= 0 then due = math.min(due, old.created + max_wait) end
    due, created = math.max(old.due, due), old.created
  end
  local new = open(pack('>i8i8i8', 0, created, due) .. tail)
  new.revision = draw()
  new.nominal = nominal
  if new.rule ~= '' and nominal == 0 then new.nominal = due end
  local before = old or life.running
  if new.rule == '' and before and before.rule ~= '' and not (before.cancelled and not before.declared) then
    new.rule, new.nominal, new.declared = before.rule, before.nominal, before.declared
  end
  put(kind, key, life, {waiting = new, running = life.running, token = life.token})
  return old and REPLACED or CREATED, due, new.revision
end

-- New refs, which are most, are written together; what is answered of them is their dues, in `answers`.
local answers, all_new = {}, true

local function place_new(kind, count, fixed, keys, dues, tails)
  local bodies, scores, size = {}, {}, #answers
  local head, earliest = pack('>i8i8', first_of(), now), fixed
  for i = 1, count do
    local key, asked, tail = ARGV[keys + i], ARGV[dues + i], ARGV[tails + i]
    bodies[i * 2 - 1], scores[i * 2] = key, key
    if fixed then
      bodies[i * 2], scores[i * 2 - 1], answers[size + i] = head .. tail, asked, asked
    else
      local due, score, packed = due_of(asked)
      bodies[i * 2], scores[i * 2 - 1], answers[size + i] = head .. packed .. tail, score, due
      if not earliest or due < earliest then earliest = due end
    end
  end
  local lane = touch(kind)
  redis.call('HSET', P .. 'b:' .. kind, unpack(bodies))
  redis.call('ZADD', P .. 'd:' .. kind, unpack(scores))
  news(kind, earliest)
  if not lane.paused and (not lane.head or earliest < lane.head) then
    redis.call('ZADD', P .. 'h', text('%d', earliest), kind)
  end
end

local function in_full()
  for i = 1, #answers do answers[i] = pack('>Bi8i8', CREATED, tonumber(answers[i]), first_of() + i - 1) end
  all_new = false
end

local function any(values, count)
  for i = 1, count do
    if values[i] then return true end
  end
  return false
end

local place = 3
while ARGV[place] do
  local kind, count, hows = ARGV[place], tonumber(ARGV[place + 1]), ARGV[place + 4]
  local low, high = tonumber(ARGV[place + 5]), tonumber(ARGV[place + 6])
  local keys = place + 6
  local dues, tails = keys + count, keys + count * 2
  if ARGV[place + 3] == '1' then redis.call('SADD', P .. 'k', kind) end
  local there = redis.call('HMGET', P .. 'b:' .. kind, unpack(ARGV, keys + 1, dues))
  local fixed = low and low >= now and high <= LAST
  if all_new and ARGV[place + 2] ~= '0' and (fixed or not low) and not any(there, count) then
    place_new(kind, count, fixed and low, keys, dues, tails)
  else
    if all_new then in_full() end
    -- New refs, and plain waiting revisions that are replaced, are written together.
    local together, tokens = ARGV[place + 2] ~= '0', {}
    if together and redis.call('EXISTS', P .. 't:' .. kind) == 1 then
      tokens = redis.call('HMGET', P .. 't:' .. kind, unpack(ARGV, keys + 1, dues))
    end
    local bodies, scores, size, earliest = {}, {}, 0, nil
    for i = 1, count do
      local key, asked, tail, front = ARGV[keys + i], ARGV[dues + i], ARGV[tails + i], there[i]
      local flags, mode = 0, 0
      if hows ~= '' then flags, mode = byte(hows, i * 2 - 1, i * 2) end
      if low then tail = string.sub(tail, 9) end
      if together and (not front or (mode == 0 and not tokens[i] and byte(front, FLAGS) % HEADERS == 0)) then
        local due, score = due_of(asked)
        local revision = draw()
        size = size + 2
        bodies[size - 1], bodies[size] = key, pack('>i8i8i8I2', revision, now, due, 0) .. string.sub(tail, 3)
        scores[size - 1], scores[size] = score, key
        if not earliest or due < earliest then earliest = due end
        answers[#answers + 1] = pack('>Bi8i8', front and REPLACED or CREATED, due, revision)
      else
        answers[#answers + 1] = pack('>Bi8i8', carefully(kind, key, asked, flags, mode, tail))
      end
    end
    if earliest then
      touch(kind)
      redis.call('HSET', P .. 'b:' .. kind, unpack(bodies))
      redis.call('ZADD', P .. 'd:' .. kind, unpack(scores))
      news(kind, earliest)
    end
  end
  place = tails + count + 1
end
if all_new then
  wake()
  return remember(pack('>Bi8i8', ALL_NEW, now, first_of()))
end
refresh()
wake()
return remember(table.concat(answers))
