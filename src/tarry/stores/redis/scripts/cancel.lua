-- cancel: empty waiting slots, and mark attempts in flight. Uses: freeing now calls records heads lives
-- ARGV: clock, call, then for each kind: kind, count, and for each item: key, if_revision ('' for any).
-- Answers one byte each.
local CANCELLED_, RUNNING, ABSENT, CONFLICT = '\0', '\1', '\2', '\3'

local known = remembered()
if known then return known end

local answers = {}

local function carefully(kind, key, wanted)
  local life = at(kind, key, load(kind, key))
  local newest = life.waiting or life.running
  if not newest then return ABSENT end
  if wanted ~= '' and tonumber(wanted) ~= newest.revision then return CONFLICT end
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
  local kind, count = ARGV[place], tonumber(ARGV[place + 1])
  local keys, seen = {}, {}
  for i = 1, count do keys[i] = ARGV[place + i * 2] end
  local fronts = redis.call('HMGET', P .. 'b:' .. kind, unpack(keys))
  local tokens = redis.call('HMGET', P .. 't:' .. kind, unpack(keys))
  for i = 1, count do
    local key, wanted, front = keys[i], ARGV[place + i * 2 + 1], fronts[i]
    if tokens[i] or seen[key] or wanted ~= '' or (front and bit.band(string.byte(front, 35), MORE) ~= 0) then
      flush(kind)
      answers[#answers + 1] = carefully(kind, key, wanted)
    elseif front then
      gone[#gone + 1] = key
      answers[#answers + 1] = CANCELLED_
    else
      answers[#answers + 1] = ABSENT
    end
    seen[key] = true
  end
  flush(kind)
  place = place + 2 + count * 2
end
refresh()
wake()
return remember(table.concat(answers))
