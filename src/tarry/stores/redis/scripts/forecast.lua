-- forecast: count what waits by due, in spans of bucket_ms from now on; the first holds the overdue.
-- ARGV: clock, bucket_ms, first bucket, buckets, then the kinds. Answers: now, then a count for each bucket.
-- Uses: now
local bucket, from, buckets = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local reply = {string.format('%d', now)}
for i = from, from + buckets - 1 do
  local count, low = 0, i == 0 and '-inf' or string.format('%d', now + i * bucket)
  for k = 5, #ARGV do
    count = count + redis.call('ZCOUNT', P .. 'd:' .. ARGV[k], low, '(' .. string.format('%d', now + (i + 1) * bucket))
  end
  reply[#reply + 1] = count
end
return reply
