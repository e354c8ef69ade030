-- calls: ARGV[2] names the caller's call; c:<call> keeps its answers, so that a repeat changes nothing.
local call = ARGV[2]

local function remembered()
  if call == '' then return nil end
  local answers = redis.call('GET', P .. 'c:' .. call)
  -- Written again, so that a WAIT behind a repeat covers the first try.
  if answers then redis.call('PEXPIRE', P .. 'c:' .. call, 30000) end
  return answers
end

local function remember(answers)
  if call ~= '' then redis.call('SET', P .. 'c:' .. call, answers, 'PX', 30000) end
  return answers
end
