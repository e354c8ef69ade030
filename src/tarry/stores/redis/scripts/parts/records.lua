-- records: one string per task. >i8 base, i8 created, i8 due, I2 place, I4 attempt, I4 snoozes, I2 lost, B flags (the byte FLAGS);
-- its revision is base + place: what was scheduled in one call has one base, so that a record is put together without packing numbers.
-- with MORE: i8 nominal, i8 keep_ms, i8 ended, I2 + rule, I2 + reason; with HEADERS: I4 + headers; then the payload.
-- `attempt` counts the attempts before the one that runs: a claim leaves the record as it is.
local FLAGS, DECLARED, CANCELLED, MORE, HEADERS, GAVE_UP = 37, 1, 2, 4, 8, 16

local function open(text)
  local r, base, place, flags, at = {}, 0, 0, 0, 0
  base, r.created, r.due, place, r.attempt, r.snoozes, r.lost, flags, at =
    struct.unpack('>i8i8i8I2I4I4I2B', text)
  r.revision = base + place
  r.declared = bit.band(flags, DECLARED) ~= 0
  r.cancelled = bit.band(flags, CANCELLED) ~= 0
  r.gave_up = bit.band(flags, GAVE_UP) ~= 0
  r.headers = bit.band(flags, HEADERS)
  r.nominal, r.keep, r.ended, r.rule, r.reason = 0, 0, 0, '', ''
  if bit.band(flags, MORE) ~= 0 then
    r.nominal, r.keep, r.ended, r.rule, r.reason, at = struct.unpack('>i8i8i8I2c0I2c0', text, at)
  end
  r.rest = string.sub(text, at)
  return r
end

local function close(r)
  local more = r.nominal ~= 0 or r.keep ~= 0 or r.ended ~= 0 or r.rule ~= '' or r.reason ~= ''
  local flags = r.headers + (r.declared and DECLARED or 0) + (r.cancelled and CANCELLED or 0)
    + (r.gave_up and GAVE_UP or 0) + (more and MORE or 0)
  local head = struct.pack('>i8i8i8I2I4I4I2B', r.revision, r.created, r.due, 0, r.attempt, r.snoozes,
    math.min(r.lost, 65535), flags)
  if more then
    head = head .. struct.pack('>i8i8i8I2c0I2c0', r.nominal, r.keep, r.ended, #r.rule, r.rule,
      #r.reason, r.reason)
  end
  return head .. r.rest
end
