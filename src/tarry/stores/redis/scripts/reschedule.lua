-- reschedule: give waiting revisions a new due.
-- ARGV: clock, call, then for each kind: kind, count, distinct (1 if no key comes twice), how (26 bytes an item), then all keys.
--   how: >B B i8 i8 i8: flags (1 relative to now, 2 relative to the due, 4 if_revision, 8 nominal), only (1 earlier, 2 later),
--   due, if_revision, nominal. Answers >B i8 i8: status, due, revision.
-- Uses: now calls revisions records heads lives
local ABSENT, RUNNING, CONFLICT, UNCHANGED, MOVED = 0, 1, 2, 3, 4

local known = remembered()
if known then return known end

local function target(flags, value, old)
  if bit.band(flags, 2) ~= 0 then return math.min(math.max(old + value, now), LAST) end
  return resolve(flags % 2 == 1, value)
end

local function unwanted(only, due, old)
  return (only == 1 and due >= old) or (only == 2 and due <= old)
end

local function carefully(kind, key, flags, only, value, wanted, nominal)
  local life = at(kind, key, load(kind, key))
  local old = life.waiting
  if not old then return life.running and RUNNING or ABSENT, 0, 0 end
  if bit.band(flags, 4) ~= 0 and old.revision ~= wanted then return CONFLICT, old.due, old.revision end
  local due = target(flags, value, old.due)
  if unwanted(only, due, old.due) then return UNCHANGED, old.due, old.revision end
  local new = copy(old)
  new.due, new.revision, new.cancelled = due, draw(), false
  if bit.band(flags, 8) ~= 0 then new.nominal = nominal end
  put(kind, key, life, {waiting = new, running = life.running, token = life.token})
  return MOVED, due, new.revision
end

local text, pack, unpack_how, byte = string.format, struct.pack, struct.unpack, string.byte
local answers, _ = {}, nil
local place = 3
while ARGV[place] do
  local kind, count, hows = ARGV[place], tonumber(ARGV[place + 1]), ARGV[place + 3]
  local keys = place + 3
  local last = keys + count
  local fronts, tokens = {}, {}
  if ARGV[place + 2] == '1' then
    fronts = redis.call('HMGET', P .. 'b:' .. kind, unpack(ARGV, keys + 1, last))
    if redis.call('EXISTS', P .. 't:' .. kind) == 1 then
      tokens = redis.call('HMGET', P .. 't:' .. kind, unpack(ARGV, keys + 1, last))
    end
  end
  -- Plain waiting revisions, which are most, are written together: of their records only the beginning changes.
  local bodies, scores, size, first = {}, {}, 0, nil
  for i = 1, count do
    local key, front = ARGV[keys + i], fronts[i]
    local flags, only, value, wanted, nominal = unpack_how('>BBi8i8i8', hows, i * 26 - 25)
    local status, due, revision
    if not front or tokens[i] or flags >= 8 or byte(front, FLAGS) % 4 >= CANCELLED then
      status, due, revision = carefully(kind, key, flags, only, value, wanted, nominal)
    else
      local old, number
      revision, _, old, number = unpack_how('>i8i8i8I2', front)
      revision = revision + number
      due = target(flags, value, old)
      if bit.band(flags, 4) ~= 0 and revision ~= wanted then
        status, due = CONFLICT, old
      elseif unwanted(only, due, old) then
        status, due = UNCHANGED, old
      else
        status, revision, size = MOVED, draw(), size + 2
        bodies[size - 1], bodies[size] = key, pack('>i8', revision) .. string.sub(front, 9, 16) .. pack('>i8I2', due, 0) .. string.sub(front, 27)
        scores[size - 1], scores[size] = text('%d', due), key
        if not first or due < first then first = due end
      end
    end
    answers[#answers + 1] = pack('>Bi8i8', status, due, revision)
  end
  if first then
    touch(kind)
    redis.call('HSET', P .. 'b:' .. kind, unpack(bodies))
    redis.call('ZADD', P .. 'd:' .. kind, unpack(scores))
    news(kind, first)
  end
  place = last + 1
end
refresh()
wake()
return remember(table.concat(answers))
