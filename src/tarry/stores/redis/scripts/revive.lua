-- revive: make dead letters waiting tasks again, due now.
-- ARGV: clock, call, then for each item: kind, key, revision (0 for the newest). Answers one byte each.
-- Uses: now calls revisions records heads lives letters
local REVIVED, SKIPPED, ABSENT = '\0', '\1', '\2'

local known = remembered()
if known then return known end

local answers = {}
for place = 3, #ARGV, 3 do
  local kind, key = ARGV[place], ARGV[place + 1]
  local life = at(kind, key, load(kind, key))
  local dead, member = letter(kind, key, tonumber(ARGV[place + 2]))
  if not dead then
    answers[#answers + 1] = ABSENT
  elseif life.waiting or life.running then
    answers[#answers + 1] = SKIPPED
  else
    dead.due, dead.created, dead.revision = now, now, draw()
    dead.attempt, dead.snoozes, dead.lost, dead.reason, dead.ended = 0, 0, 0, '', 0
    dead.rule, dead.nominal, dead.declared, dead.cancelled = '', 0, false, false
    drop_letter(kind, member)
    put(kind, key, life, {waiting = dead})
    answers[#answers + 1] = REVIVED
  end
end
refresh()
wake()
return remember(table.concat(answers))
