-- cancel: empty waiting slots, and mark attempts in flight.
-- ARGV: clock, call, then for each kind: kind, count, how (9 bytes an item; empty where all are plain, and no key comes twice), then all keys.
--   how: >B i8: flags (1 if_revision, 2 only what runs), if_revision.
-- Answers one byte each.
-- Uses: freeing now calls records heads lives
local CANCELLED_, RUNNING, ABSENT, CONFLICT = '\0', '\1', '\2', '\3'

local known = remembered()
if known then return known end

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

local function all(values, count)
  for i = 1, count do
    if not values[i] then return false end
  end
  return true
end

local answers = {}
local place = 3
while ARGV[place] do
  local kind, count, hows = ARGV[place], tonumber(ARGV[place + 1]), ARGV[place + 2]
  local first, last = place + 3, place + 2 + count
  local plain = hows == '' and redis.call('SISMEMBER', P .. 'k', kind) == 0
  -- What can be claimed waits and has no attempt before it: if that is all, it goes together.
  if plain and all(redis.call('ZMSCORE', P .. 'd:' .. kind, unpack(ARGV, first, last)), count) then
    touch(kind)
    redis.call('HDEL', P .. 'b:' .. kind, unpack(ARGV, first, last))
    redis.call('ZREM', P .. 'd:' .. kind, unpack(ARGV, first, last))
    answers[#answers + 1] = string.rep(CANCELLED_, count)
  else
    for i = 1, count do
      local flags, wanted = 0, 0
      if hows ~= '' then flags, wanted = struct.unpack('>Bi8', hows, i * 9 - 8) end
      answers[#answers + 1] = carefully(kind, ARGV[place + 2 + i], flags, wanted)
    end
  end
  place = last + 1
end
refresh()
wake()
return remember(table.concat(answers))
