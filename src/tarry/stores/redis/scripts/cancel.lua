-- cancel: empty waiting slots, and mark attempts in flight. Uses: freeing now calls records heads lives
-- ARGV: clock, call, then for each kind: kind, count, how (9 bytes an item), and for each item: key.
--   how: >B i8: flags (1 if_revision, 2 only what runs), if_revision.
-- Answers one byte each.
local CANCELLED_, RUNNING, ABSENT, CONFLICT = '\0', '\1', '\2', '\3'

local known = remembered()
if known then return known end

local answers = {}

local function carefully(kind, key, flags, wanted)
  local life = at(kind, key, load(kind, key))
  local newest = life.waiting or life.running
  if not newest then return ABSENT end
  if flags % 2 == 1 and wanted ~= newest.revision then return CONFLICT end
  if flags >= 2 and not life.running then return CONFLICT end
  if life.waiting then ended('K', kind, key, life.waiting, '', true) end
  if not life.running then
    put(kind, key, life, {})
    return CANCELLED_
  end
  local marked = copy(life.running)
  marked.cancelled = true
  put(kind, key, life, {running = marked, token = string.sub(life.token, 1, 8) .. 'c'})
  return RUNNING
end

-- Plain waiting revisions, which are most, go together.
local gone = {}
local function flush(kind)
  if #gone == 0 then return end
  touch(kind)
  redis.call('HDEL', P .. 'b:' .. kind, unpack(gone))
  redis.call('ZREM', P .. 'd:' .. kind, unpack(gone))
  gone = {}
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
    local flags, wanted = struct.unpack('>Bi8', hows, i * 9 - 8)
    if tokens[i] or seen[key] or flags ~= 0 or (front and bit.band(string.byte(front, 35), MORE) ~= 0) then
      flush(kind)
      answers[#answers + 1] = carefully(kind, key, flags, wanted)
    elseif front then
      gone[#gone + 1] = key
      answers[#answers + 1] = CANCELLED_
    else
      answers[#answers + 1] = ABSENT
    end
    seen[key] = true
  end
  flush(kind)
  place = place + 3 + count
end
refresh()
wake()
return remember(table.concat(answers))
