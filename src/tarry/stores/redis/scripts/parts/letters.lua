-- letters: find and drop dead letters.
local function letter(kind, key, revision)
  local member = key .. '\0' .. struct.pack('>i8', revision)
  if revision == 0 then
    local newest = redis.call('ZREVRANGEBYLEX', P .. 'Dz:' .. kind, '(' .. key .. '\1', '[' .. key .. '\0', 'LIMIT', 0, 1)
    if not newest[1] then return nil end
    member = newest[1]
  end
  local record = redis.call('HGET', P .. 'Db:' .. kind, member)
  if record then return open(record), member end
end

local function drop_letter(kind, member)
  redis.call('ZREM', P .. 'Dz:' .. kind, member)
  redis.call('HDEL', P .. 'Db:' .. kind, member)
  if redis.call('EXISTS', P .. 'Kz:' .. kind, P .. 'Dz:' .. kind) == 0 then redis.call('ZREM', P .. 'e', kind) end
end
