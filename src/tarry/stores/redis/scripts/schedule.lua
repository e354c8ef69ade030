-- schedule: place each request in its ref's waiting slot. Uses: now calls revisions records heads lives
-- ARGV: clock, call, then for each kind: kind, count, and for each item: key, how, tail.
--   how: >B B i8: flags (1 relative due, 2 max_wait, 4 if_revision, 8 needs care), mode, due; with care i8 i8 i8: max_wait_ms,
--   if_revision, nominal; tail: the record from `attempt` on. Answers >B i8 i8: status, due, revision, in the order asked.
local CREATED, REPLACED, KEPT, CONFLICT = 0, 1, 2, 3
local KEEP, EARLIEST, LATEST, FAIL = 1, 2, 3, 4

local known = remembered()
if known then return known end

local answers = {}
local function answer(status, due, revision)
  answers[#answers + 1] = struct.pack('>Bi8i8', status, due, revision)
end

local function carefully(kind, key, how, tail)
  local flags, mode, value, more = struct.unpack('>BBi8', how)
  local max_wait, wanted, nominal = 0, 0, 0
  if flags >= 8 then max_wait, wanted, nominal = struct.unpack('>i8i8i8', how, more) end
  local life = at(kind, key, load(kind, key))
  local old = life.waiting
  if (bit.band(flags, 4) ~= 0 and (not old or old.revision ~= wanted)) or (old and mode == FAIL) then
    return answer(CONFLICT, old and old.due or 0, old and old.revision or 0)
  end
  if old and mode == KEEP then return answer(KEPT, old.due, old.revision) end
  local due, created = resolve(bit.band(flags, 1) ~= 0, value), now
  if old and mode == EARLIEST then
    due, created = math.min(old.due, due), old.created
  elseif old and mode == LATEST then
    if bit.band(flags, 2) ~= 0 then due = math.min(due, old.created + max_wait) end
    due, created = math.max(old.due, due), old.created
  end
  local new = open(struct.pack('>i8i8i8', due, draw(), created) .. tail)
  new.nominal = nominal
  if new.rule ~= '' and nominal == 0 then new.nominal = due end
  local before = old or life.running
  if new.rule == '' and before and before.rule ~= '' and not (before.cancelled and not before.declared) then
    new.rule, new.nominal, new.declared = before.rule, before.nominal, before.declared
  end
  put(kind, key, life, {waiting = new, running = life.running, token = life.token})
  answer(old and REPLACED or CREATED, due, new.revision)
end

-- New refs, which are most, are written together.
local bodies, dues, first = {}, {}, nil
local function flush(kind)
  if not first then return end
  touch(kind)
  redis.call('HSET', P .. 'b:' .. kind, unpack(bodies))
  redis.call('ZADD', P .. 'd:' .. kind, unpack(dues))
  news(kind, first)
  bodies, dues, first = {}, {}, nil
end

local simple = true
local place = 3
while ARGV[place] do
  local kind, count = ARGV[place], tonumber(ARGV[place + 1])
  local keys, seen = {}, {}
  for i = 1, count do keys[i] = ARGV[place + i * 3 - 1] end
  local fronts = redis.call('HMGET', P .. 'b:' .. kind, unpack(keys))
  for i = 1, count do
    local key, how, tail = keys[i], ARGV[place + i * 3], ARGV[place + i * 3 + 1]
    local flags, _, value = struct.unpack('>BBi8', how)
    if fronts[i] or flags >= 8 or seen[key] then
      flush(kind)
      simple = false
      carefully(kind, key, how, tail)
    else
      local due, revision = resolve(flags % 2 == 1, value), draw()
      bodies[#bodies + 1] = key
      bodies[#bodies + 1] = struct.pack('>i8i8i8', due, revision, now) .. tail
      dues[#dues + 1] = due
      dues[#dues + 1] = key
      if not first or due < first then first = due end
      answer(CREATED, due, revision)
    end
    seen[key] = true
  end
  local earliest = first
  flush(kind)
  if simple then
    local lane = touch(kind)
    if not lane.paused and (not lane.head or earliest < lane.head) then
      redis.call('ZADD', P .. 'h', earliest, kind)
    end
  end
  place = place + 2 + count * 3
end
keep_drawn()
if not simple then refresh() end
wake()
return remember(table.concat(answers))
