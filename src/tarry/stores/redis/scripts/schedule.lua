-- schedule: place each request in its ref's waiting slot. Uses: now calls revisions records heads lives
-- ARGV: clock, call, then for each kind: kind, count, how (10 bytes an item), and for each item: key, tail.
--   how: >B B i8: flags (1 relative due, 2 max_wait, 4 if_revision, 8 needs care), mode, due
--   tail: the record from `attempt` on; with care before that >i8 i8 i8: max_wait_ms, if_revision, nominal
-- Answers >B i8 i8: status, due, revision, in the order asked; or, where all were new, ALL_NEW, now and the first revision:
-- the others follow it one by one, and each due is what was asked for, from now on.
local CREATED, REPLACED, KEPT, CONFLICT, ALL_NEW = 0, 1, 2, 3, 255
local KEEP, EARLIEST, LATEST, FAIL = 1, 2, 3, 4

local known = remembered()
if known then return known end

local answers, all_new = {}, true
local function answer(status, due, revision)
  answers[#answers + 1] = struct.pack('>Bi8i8', status, due, revision)
end

local function carefully(kind, key, flags, mode, value, tail)
  local max_wait, wanted, nominal = 0, 0, 0
  if flags >= 8 then
    max_wait, wanted, nominal = struct.unpack('>i8i8i8', tail)
    tail = string.sub(tail, 25)
  end
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
local bodies, dues, size, first = {}, {}, 0, nil
local function flush(kind)
  if not first then return end
  touch(kind)
  redis.call('HSET', P .. 'b:' .. kind, unpack(bodies))
  redis.call('ZADD', P .. 'd:' .. kind, unpack(dues))
  news(kind, first)
  bodies, dues, size, first = {}, {}, 0, nil
end

-- The text of a due is dear to make: a batch often has one due for all.
local texts = {}
local function text(due)
  local known = texts[due]
  if not known then
    known = string.format('%.0f', due)
    texts[due] = known
  end
  return known
end

local unpack_how, pack_head = struct.unpack, struct.pack
local first_revision
local place = 3
while ARGV[place] do
  local kind, count, hows = ARGV[place], tonumber(ARGV[place + 1]), ARGV[place + 2]
  local keys, seen, simple = {}, {}, true
  for i = 1, count do keys[i] = ARGV[place + 1 + i * 2] end
  local fronts = redis.call('HMGET', P .. 'b:' .. kind, unpack(keys))
  for i = 1, count do
    local key, tail = keys[i], ARGV[place + 2 + i * 2]
    local flags, mode, value = unpack_how('>BBi8', hows, i * 10 - 9)
    if fronts[i] or flags >= 8 or seen[key] then
      flush(kind)
      if all_new then
        -- What was answered in short until now is answered in full.
        all_new = false
        for j = 1, #answers do answers[j] = struct.pack('>Bi8i8', CREATED, answers[j], first_revision + j - 1) end
      end
      simple = false
      carefully(kind, key, flags, mode, value, tail)
    else
      local due, revision = resolve(flags % 2 == 1, value), draw()
      size = size + 2
      bodies[size - 1], bodies[size] = key, pack_head('>i8i8i8', due, revision, now) .. tail
      dues[size - 1], dues[size] = text(due), key
      if not first or due < first then first = due end
      if all_new then
        first_revision = first_revision or revision
        answers[#answers + 1] = due
      else
        answer(CREATED, due, revision)
      end
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
  place = place + 3 + count * 2
end
keep_drawn()
if all_new then
  wake()
  return remember(struct.pack('>Bi8i8', ALL_NEW, now, first_revision))
end
refresh()
wake()
return remember(table.concat(answers))
