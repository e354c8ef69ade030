-- heads: h (kind -> first due) and x (kind -> first end of a lease) of the kinds that are not paused.
-- A wake-up is published once per call, unless an earlier head of the same kind was there already.
local touched, soonest = {}, nil

local function touch(kind)
  local seen = touched[kind]
  if not seen then
    local head = redis.call('ZSCORE', P .. 'h', kind)
    seen = {head = tonumber(head), paused = not head and redis.call('SISMEMBER', P .. 'p', kind) == 1}
    touched[kind] = seen
  end
  return seen
end

local function news(kind, due)
  local seen = touch(kind)
  if not seen.paused and (not seen.head or due < seen.head) and (not soonest or due < soonest) then
    soonest = due
  end
end

local function refresh_one(index, order, kind)
  local head = redis.call('ZRANGE', P .. order .. kind, 0, 0, 'WITHSCORES')
  if head[1] then
    redis.call('ZADD', P .. index, head[2], kind)
  else
    redis.call('ZREM', P .. index, kind)
  end
end

local function refresh()
  for kind, seen in pairs(touched) do
    if not seen.paused then
      refresh_one('h', 'd:', kind)
      if seen.leases then refresh_one('x', 'l:', kind) end
    end
  end
end

local function wake()
  if soonest and soonest - now <= 2000 then
    redis.call('$PUBLISH', P .. 'wake', string.format('%d', soonest))
  end
end
