-- lives: the two slots of a ref, as tarry.life has them.
--   b:<kind> HASH key -> record of the running attempt, or of the waiting revision where none runs
--   d:<kind> ZSET key -> due, of waiting revisions that can be claimed
--   l:<kind> ZSET key -> end of the lease     t:<kind> HASH key -> its token, longer by a byte once cancelled
--   n:<kind> HASH key -> record of the revision that waits behind the running attempt
-- and of what has ended (Z = D for dead letters, K for history), member = key \0 revision:
--   Zz:<kind> ZSET in order of member   Zb:<kind> HASH member -> record   e ZSET of kinds that have any
--   ks ZSET kind \0 member -> when its history may be forgotten
local function load(kind, key, front, token)
  if front == nil then front = redis.call('HGET', P .. 'b:' .. kind, key) end
  if not front then return {} end
  if token == nil then token = redis.call('HGET', P .. 't:' .. kind, key) end
  if not token then return {waiting = open(front)} end
  local behind = redis.call('HGET', P .. 'n:' .. kind, key)
  return {
    running = open(front),
    token = token,
    expires = tonumber(redis.call('ZSCORE', P .. 'l:' .. kind, key)),
    waiting = behind and open(behind) or nil,
  }
end

local function put(kind, key, old, new)
  local seen = touch(kind)
  if new.running then
    if new.running ~= old.running then
      redis.call('HSET', P .. 'b:' .. kind, key, close(new.running))
      redis.call('HSET', P .. 't:' .. kind, key, new.token)
    end
    if new.waiting then
      redis.call('HSET', P .. 'n:' .. kind, key, close(new.waiting))
    elseif old.waiting then
      redis.call('HDEL', P .. 'n:' .. kind, key)
    end
    return
  end
  if old.running then
    seen.leases = true
    redis.call('ZREM', P .. 'l:' .. kind, key)
    redis.call('HDEL', P .. 't:' .. kind, key)
    if old.waiting then redis.call('HDEL', P .. 'n:' .. kind, key) end
  end
  local waiting = new.waiting
  if waiting then
    redis.call('HSET', P .. 'b:' .. kind, key, close(waiting))
    redis.call('ZADD', P .. 'd:' .. kind, string.format('%d', waiting.due), key)
    if old.running or not old.waiting or old.waiting.due ~= waiting.due
        or old.waiting.revision ~= waiting.revision then
      news(kind, waiting.due)
    end
  else
    redis.call('HDEL', P .. 'b:' .. kind, key)
    if old.waiting and not old.running then redis.call('ZREM', P .. 'd:' .. kind, key) end
  end
end

local function copy(record)
  local new = {}
  for name, value in pairs(record) do new[name] = value end
  return new
end

local function store_ended(letter, kind, key, record)
  local member = key .. '\0' .. struct.pack('>i8', record.revision)
  redis.call('ZADD', P .. letter .. 'z:' .. kind, 0, member)
  redis.call('HSET', P .. letter .. 'b:' .. kind, member, close(record))
  redis.call('ZADD', P .. 'e', 0, kind)
  if letter == 'K' then
    redis.call('ZADD', P .. 'ks', now + record.keep, kind .. '\0' .. member)
  end
end

local function ended(letter, kind, key, record, reason, gave_up)
  if letter == 'K' and record.keep == 0 then return end
  record = copy(record)
  record.ended, record.reason, record.gave_up = now, reason, gave_up
  store_ended(letter, kind, key, record)
end

local function tried(running)
  local record = copy(running)
  record.attempt = record.attempt + 1
  return record
end

-- The life as callers and claims see it now: a lease that has expired has ended. Written at once.
local function at(kind, key, life)
  if not life.running or life.expires > now then return life end
  local cancelled = #life.token > 8
  local new = {waiting = life.waiting}
  if cancelled and (life.waiting or not life.running.declared) then
    ended('K', kind, key, tried(life.running), '', true)
  elseif not life.waiting then
    new.waiting = tried(life.running)
    new.waiting.lost = new.waiting.lost + 1
  end
  put(kind, key, life, new)
  return new
end
