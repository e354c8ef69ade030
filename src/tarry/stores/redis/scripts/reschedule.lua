-- reschedule: give waiting revisions a new due. Uses: now calls revisions records heads lives
-- ARGV: clock, call, then for each kind: kind, count, how (26 bytes an item), and for each item: key.
--   how: >B B i8 i8 i8: flags (1 relative to now, 2 relative to the due, 4 if_revision, 8 nominal), only (1 earlier, 2 later),
--   due, if_revision, nominal. Answers >B i8 i8: status, due, revision.
local ABSENT, RUNNING, CONFLICT, UNCHANGED, MOVED = 0, 1, 2, 3, 4

local known = remembered()
if known then return known end

local answers = {}
local function answer(status, due, revision)
  answers[#answers + 1] = struct.pack('>Bi8i8', status, due, revision)
end

local function target(flags, value, old)
  if bit.band(flags, 2) ~= 0 then return math.min(math.max(old + value, now), LAST) end
  return resolve(bit.band(flags, 1) ~= 0, value)
end

local function unwanted(only, due, old)
  return (only == 1 and due >= old) or (only == 2 and due <= old)
end

local function carefully(kind, key, hows, place)
  local flags, only, value, wanted, nominal = struct.unpack('>BBi8i8i8', hows, place)
  local life = at(kind, key, load(kind, key))
  local old = life.waiting
  if not old then return answer(life.running and RUNNING or ABSENT, 0, 0) end
  if bit.band(flags, 4) ~= 0 and old.revision ~= wanted then
    return answer(CONFLICT, old.due, old.revision)
  end
  local due = target(flags, value, old.due)
  if unwanted(only, due, old.due) then return answer(UNCHANGED, old.due, old.revision) end
  local new = copy(old)
  new.due, new.revision, new.cancelled = due, draw(), false
  if bit.band(flags, 8) ~= 0 then new.nominal = nominal end
  put(kind, key, life, {waiting = new, running = life.running, token = life.token})
  answer(MOVED, due, new.revision)
end

-- Plain waiting revisions, which are most, are written together: the first 16 bytes of a record are what changes.
local bodies, dues, first = {}, {}, nil
local function flush(kind)
  if not first then return end
  touch(kind)
  redis.call('HSET', P .. 'b:' .. kind, unpack(bodies))
  redis.call('ZADD', P .. 'd:' .. kind, unpack(dues))
  news(kind, first)
  bodies, dues, first = {}, {}, nil
end

local place = 3
while ARGV[place] do
  local kind, count, hows = ARGV[place], tonumber(ARGV[place + 1]), ARGV[place + 2]
  local keys, seen = {}, {}
  for i = 1, count do keys[i] = ARGV[place + 2 + i] end
  local fronts = redis.call('HMGET', P .. 'b:' .. kind, unpack(keys))
  local tokens = redis.call('HMGET', P .. 't:' .. kind, unpack(keys))
  for i = 1, count do
    local key, front = keys[i], fronts[i]
    local flags, only, value, wanted = struct.unpack('>BBi8i8', hows, i * 26 - 25)
    if tokens[i] or not front or seen[key] or flags >= 8 or bit.band(string.byte(front, 35), CANCELLED) ~= 0 then
      flush(kind)
      carefully(kind, key, hows, i * 26 - 25)
    else
      local old, revision = struct.unpack('>i8i8', front)
      local due = target(flags, value, old)
      if bit.band(flags, 4) ~= 0 and revision ~= wanted then
        answer(CONFLICT, old, revision)
      elseif unwanted(only, due, old) then
        answer(UNCHANGED, old, revision)
      else
        revision = draw()
        bodies[#bodies + 1] = key
        bodies[#bodies + 1] = struct.pack('>i8i8', due, revision) .. string.sub(front, 17)
        dues[#dues + 1] = due
        dues[#dues + 1] = key
        if not first or due < first then first = due end
        answer(MOVED, due, revision)
      end
    end
    seen[key] = true
  end
  flush(kind)
  place = place + 3 + count
end
keep_drawn()
refresh()
wake()
return remember(table.concat(answers))
