-- abandon: remove all that a shard keeps, but what expires by itself: remembered calls and claims.
local kinds = {}
for _, index in ipairs({'h', 'x', 'e'}) do
  for _, kind in ipairs(redis.call('ZRANGE', P .. index, 0, -1)) do kinds[kind] = true end
end
for _, kind in ipairs(redis.call('SMEMBERS', P .. 'p')) do kinds[kind] = true end
for kind in pairs(kinds) do
  for _, name in ipairs({'b:', 'd:', 'l:', 't:', 'n:', 'Dz:', 'Db:', 'Kz:', 'Kb:'}) do
    redis.call('UNLINK', P .. name .. kind)
  end
end
for _, name in ipairs({'h', 'x', 'e', 'p', 'k', 'ks', 'rev', 'meta'}) do redis.call('UNLINK', P .. name) end
return 1
