-- claim: lease due tasks.
-- ARGV: clock, holder, call, round, limit, lease_ms, tokens (8 bytes each, the first 6 of all alike), turn, flags (1 to tell what is left, 2 to go on
--   though leases have expired), then the kinds.
--   m:<holder>: the holder's newest claim, {call, round, kind, nonce, keys, kind, nonce, keys, ...}: a repeat finds its leases there, for
--     as long as they can last and a late request may come.
-- Answers: now_us, next due ('' for none), 1 if it was made before or 2 if leases have expired and nothing was taken, how many more are
-- due, then for each kind: kind, keys, records, and in a repeat the tokens and the ends of the leases; else they are the next of the tokens, and now + lease_ms.
-- Uses: freeing now
local EXPIRED = 2
local CANCELLED, FLAGS = 2, 37
local holder, number, round = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local limit, lease_ms, marks, turn = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8])
local nonce, tells, goes_on = string.sub(marks, 1, 6), ARGV[9] % 2 == 1, ARGV[9] - 1 > 0
local FEW, OVER = 8, 9

local asked, kinds = {}, {}
for i = 10, #ARGV do
  if not asked[ARGV[i]] then
    asked[ARGV[i]] = true
    kinds[#kinds + 1] = ARGV[i]
  end
end

-- The asked kinds whose head in an index has been reached.
local function reached(index)
  local found = {}
  if #kinds <= FEW then
    for _, kind in ipairs(kinds) do
      local head = redis.call('ZSCORE', P .. index, kind)
      if head and tonumber(head) <= now then found[#found + 1] = kind end
    end
    return found
  end
  for _, kind in ipairs(redis.call('ZRANGEBYSCORE', P .. index, '-inf', now)) do
    if asked[kind] then found[#found + 1] = kind end
  end
  return found
end

local function first(index)
  if #kinds <= FEW then
    local least
    for _, kind in ipairs(kinds) do
      local head = tonumber(redis.call('ZSCORE', P .. index, kind))
      if head and (not least or head < least) then least = head end
    end
    return least
  end
  local from = 0
  while true do
    local heads = redis.call('ZRANGE', P .. index, from, from + 99, 'WITHSCORES')
    for i = 1, #heads, 2 do
      if asked[heads[i]] then return tonumber(heads[i + 1]) end
    end
    if #heads < 200 then return nil end
    from = from + 100
  end
end

local reply = {now_us, '', 0, 0}
local function finish()
  local due, lease = first('h'), first('x')
  local next_due = due and lease and math.min(due, lease) or due or lease
  if next_due then reply[2] = string.format('%d', next_due) end
  reply[1] = string.format('%d', now_us)
  return reply
end

local claimed = {number, round}
if number > 0 then
  local newest = redis.call('GET', P .. 'm:' .. holder)
  newest = newest and cmsgpack.unpack(newest) or {0, 0}
  if number < newest[1] then
    reply[3] = 1
    return finish()
  end
  if number == newest[1] then
    claimed = newest
    if round <= newest[2] then
      reply[3] = 1
      -- Only the first round of a try asks for what the tries before it took.
      if round > 1 then return finish() end
      -- A second round of such a try may still be on its way: it must not take what nobody would know of.
      if tells and newest[2] < OVER then
        newest[2] = OVER
        redis.call('SET', P .. 'm:' .. holder, cmsgpack.pack(newest), 'PX', lease_ms + 60000)
      end
      for i = 3, #newest, 3 do
        local kind, keys = newest[i], newest[i + 2]
        local tokens = redis.call('HMGET', P .. 't:' .. kind, unpack(keys))
        local held, records, found, ends = {}, {}, {}, {}
        for j, key in ipairs(keys) do
          local expires = tonumber(redis.call('ZSCORE', P .. 'l:' .. kind, key))
          if tokens[j] and string.sub(tokens[j], 1, 6) == newest[i + 1] and expires > now then
            held[#held + 1] = key
            records[#records + 1] = redis.call('HGET', P .. 'b:' .. kind, key)
            found[#found + 1] = string.sub(tokens[j], 1, 8)
            ends[#ends + 1] = string.format('%d', expires)
          end
        end
        reply[#reply + 1] = {kind, held, records, table.concat(found), ends}
      end
      return finish()
    end
    claimed[2] = round
  end
end

-- Leases that have expired are ended first, by another script.
if not goes_on and #reached('x') > 0 then
  reply[3] = EXPIRED
  return finish()
end

-- Kinds are lanes: an even part of each, then the rest by earliest due. What is taken of a lane is its beginning.
local due, lanes, count = reached('h'), {}, {}
if limit > 0 then lanes = due end
if #lanes == 1 then
  count[lanes[1]] = limit
elseif #lanes > 1 then
  local order = {}
  for i = 0, math.min(#lanes, limit) - 1 do order[i + 1] = lanes[(turn + i) % #lanes + 1] end
  local part, taken, more = math.floor(limit / #order), 0, {}
  for _, kind in ipairs(order) do
    local there = redis.call('ZRANGEBYSCORE', P .. 'd:' .. kind, '-inf', now, 'LIMIT', 0, part)
    count[kind] = #there
    taken = taken + #there
  end
  local rest = limit - taken
  if rest > 0 then
    for _, kind in ipairs(order) do
      if count[kind] == part then
        local there = redis.call('ZRANGEBYSCORE', P .. 'd:' .. kind, '-inf', now, 'WITHSCORES', 'LIMIT', part, rest)
        for i = 2, #there, 2 do more[#more + 1] = {tonumber(there[i]), kind} end
      end
    end
    table.sort(more, function(a, b) return a[1] < b[1] end)
    for i = 1, math.min(rest, #more) do count[more[i][2]] = count[more[i][2]] + 1 end
  end
  lanes = order
end

local expires, index = string.format('%d', now + lease_ms), 0
for _, kind in ipairs(lanes) do
  local keys = {}
  if count[kind] > 0 then
    keys = redis.call('ZRANGEBYSCORE', P .. 'd:' .. kind, '-inf', now, 'LIMIT', 0, count[kind])
  end
  if #keys > 0 then
    local ends, tokens = {}, {}
    local records = redis.call('HMGET', P .. 'b:' .. kind, unpack(keys))
    for i, key in ipairs(keys) do
      index = index + 1
      local mark = string.sub(marks, index * 8 - 7, index * 8)
      ends[i * 2 - 1], ends[i * 2] = expires, key
      -- An occurrence of a declared series that was cancelled is handed out marked.
      if string.byte(records[i], FLAGS) % 4 >= CANCELLED then mark = mark .. 'c' end
      tokens[i * 2 - 1], tokens[i * 2] = key, mark
    end
    redis.call('ZREMRANGEBYRANK', P .. 'd:' .. kind, 0, #keys - 1)
    redis.call('ZADD', P .. 'l:' .. kind, unpack(ends))
    redis.call('HSET', P .. 't:' .. kind, unpack(tokens))
    local head = redis.call('ZRANGE', P .. 'd:' .. kind, 0, 0, 'WITHSCORES')
    if head[1] then redis.call('ZADD', P .. 'h', head[2], kind) else redis.call('ZREM', P .. 'h', kind) end
    redis.call('ZADD', P .. 'x', 'LT', expires, kind)
    reply[#reply + 1] = {kind, keys, records}
    claimed[#claimed + 1], claimed[#claimed + 2], claimed[#claimed + 3] = kind, nonce, keys
  end
end
if tells and index == limit then
  for _, kind in ipairs(due) do reply[4] = reply[4] + redis.call('ZCOUNT', P .. 'd:' .. kind, '-inf', now) end
end
if number > 0 then
  redis.call('SET', P .. 'm:' .. holder, cmsgpack.pack(claimed), 'PX', lease_ms + 60000)
end
return finish()
