-- APPEND: entries of one batch, if the producer's layout is the one in force on this shard.
--
-- KEYS[1]  the shard, KEYS[2] its control hash
-- ARGV     epoch, count; MAXLEN ~ after each append, or ''; number of entries; then for each
--          entry the number of its strings and the strings: field, value, …
-- Reply    {'OK', id, …}
--          {'FAILED', error text, id, …}  the ids landed, the rest did not
--          {code, epoch, count, gate, until, hold, server time in ms}  nothing landed; '' is missing
-- No entries: only the checks are made, and that the stream is there.
local SHARD, CONTROL = KEYS[1], KEYS[2]
local c = redis.pcall('HMGET', CONTROL, 'epoch', 'count', 'retired', 'until', 'hold', 'gate')

local function now()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

local function refuse(code)
  return {code, c[1] or '', c[2] or '', c[6] or '', c[4] or '', c[5] or '', string.format('%.0f', now())}
end

local function number(text) return not text or string.find(text, '^%d+$') end

-- damaged: a key of another type, or something else where a number belongs, tells of no layout.
local function damaged()
  if c.err and string.find(c.err, 'WRONGTYPE', 1, true) ~= 1 then return c end
  c = {}
  return refuse('UNFENCED')
end
if c.err then return damaged() end
if not c[1] or not c[2] then return refuse('UNFENCED') end
if c[3] then return refuse('RETIRED') end
if c[1] ~= ARGV[1] or c[2] ~= ARGV[2] then
  if not number(c[1]) or not number(c[2]) then return damaged() end
  return refuse(tonumber(c[1]) < tonumber(ARGV[1]) and 'BEHIND' or 'STALE')
end
if c[4] or c[5] then
  local t = now()
  if not number(c[4]) or not number(c[5]) then return damaged() end
  local pending = (c[4] and t < tonumber(c[4])) or (c[5] and t < tonumber(c[5]))
  return refuse(pending and 'SEALED' or 'OVERDUE')
end

-- Globals cost in a loop that runs for each entry.
local argv, pcall, unpack, type, maxlen = ARGV, redis.pcall, unpack, type, ARGV[3]
local n, at, reply = tonumber(argv[4]), 5, {'OK'}
if n == 0 and redis.call('EXISTS', SHARD) == 0 then return refuse('NOSHARD') end
for i = 1, n do
  local last = at + argv[at]
  local id
  if maxlen == '' then
    id = pcall('XADD', SHARD, 'NOMKSTREAM', '*', unpack(argv, at + 1, last))
  else
    id = pcall('XADD', SHARD, 'NOMKSTREAM', 'MAXLEN', '~', maxlen, '*', unpack(argv, at + 1, last))
  end
  if type(id) ~= 'string' then
    if not id then return refuse('NOSHARD') end -- only the first: nothing else runs meanwhile
    if i == 1 and string.find(id.err, 'exhausted', 1, true) then return refuse('SEALED') end
    table.insert(reply, 2, id.err)
    reply[1] = 'FAILED'
    return reply
  end
  reply[i + 1] = id
  at = last + 1
end
return reply
