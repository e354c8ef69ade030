-- take_over: place tasks as another store had them, under revisions of this one.
-- ARGV: clock, call, replace (1: also where one waits), then for each item: kind, key, dead (1 or 0), record.
-- Answers one byte each: 1 if it was placed. A dead letter is not placed twice: one of its ref with the same end is the same.
-- Uses: now calls revisions records heads lives letters
local known = remembered()
if known then return known end

local function has_letter(kind, key, ended)
  local members = redis.call('ZRANGEBYLEX', P .. 'Dz:' .. kind, '[' .. key .. '\0', '(' .. key .. '\1')
  for _, member in ipairs(members) do
    if open(redis.call('HGET', P .. 'Db:' .. kind, member)).ended == ended then return true end
  end
  return false
end

local answers = {}
for place = 4, #ARGV, 4 do
  local kind, key, new = ARGV[place], ARGV[place + 1], open(ARGV[place + 3])
  local placed = false
  if ARGV[place + 2] == '1' then
    if not has_letter(kind, key, new.ended) then
      new.revision, placed = draw(), true
      store_ended('D', kind, key, new)
    end
  else
    local life = at(kind, key, load(kind, key))
    if not life.waiting or ARGV[3] == '1' then
      new.revision, placed = draw(), true
      if new.keep ~= 0 then redis.call('SADD', P .. 'k', kind) end
      put(kind, key, life, {waiting = new, running = life.running, token = life.token})
    end
  end
  answers[#answers + 1] = placed and '\1' or '\0'
end
refresh()
wake()
return remember(table.concat(answers))
