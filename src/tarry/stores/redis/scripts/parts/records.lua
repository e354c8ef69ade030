-- records: one string per task. >i8 due, i8 revision, i8 created, I4 attempt, I4 snoozes, I2 lost, B flags;
-- with MORE: i8 nominal, i8 keep_ms, i8 ended, I2 + rule, I2 + reason; with HEADERS: I4 + headers; then the payload.
-- `attempt` counts the attempts before the one that runs: a claim leaves the record as it is.
local DECLARED, CANCELLED, MORE, HEADERS, GAVE_UP = 1, 2, 4, 8, 16

local function open(text)
  local r, flags, at = {}, 0, 0
  r.due, r.revision, r.created, r.attempt, r.snoozes, r.lost, flags, at =
    struct.unpack('>i8i8i8I4I4I2B', text)
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
  local head = struct.pack('>i8i8i8I4I4I2B', r.due, r.revision, r.created, r.attempt, r.snoozes,
    math.min(r.lost, 65535), flags)
  if more then
    head = head .. struct.pack('>i8i8i8I2c0I2c0', r.nominal, r.keep, r.ended, #r.rule, r.rule,
      #r.reason, r.reason)
  end
  return head .. r.rest
end
