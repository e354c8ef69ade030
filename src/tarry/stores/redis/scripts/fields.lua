-- fields: some fields of a hash, without their values.
-- ARGV: key behind the shard's prefix, cursor, count. Answers: cursor, fields.
local found = redis.call('HSCAN', P .. ARGV[1], ARGV[2], 'COUNT', ARGV[3])
local fields = {}
for i = 1, #found[2], 2 do fields[#fields + 1] = found[2][i] end
return {found[1], fields}
