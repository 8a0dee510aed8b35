-- Common part of the scripts beside a shard. Rules: docs/protocol/resharding.md 1.3 and 1.4.
--
-- KEYS[1]  the shard (a stream), KEYS[2] its control hash (same slot)
-- ARGV[1]  JSON object. Every number in it is a decimal string, so that what is stored is what
--          was sent: Lua would turn 1700000000000 into 1.7e+12.
-- Reply    {code, server time in ms, JSON object}; the object has
--            control  the control hash after the script
--            exists, sealed (as a fact), length, added, last   of the stream; last is the kept id while sealed
--            barrier  XSETID or LEASE (the user may not run XSETID)
--            error    text of a Redis error, why a verdict is UNKNOWN, or what is wrong with a control hash
--            verdict, groups   of the drain evidence, where it was taken
--          Any script answers DAMAGED, and does nothing, when the control hash is of another type or
--          has something else where a number belongs.
--          Fields of the control hash that name a group (owner:, trimmed:, gone:) are left out; the
--          last two are in the evidence of the group.
local SHARD, CONTROL = KEYS[1], KEYS[2]
local MAX = '18446744073709551615-18446744073709551615'
local A = cjson.decode(ARGV[1])
local BARRIER = 'XSETID'

local TIME = redis.call('TIME')
local NOW = tonumber(TIME[1]) * 1000 + math.floor(tonumber(TIME[2]) / 1000)

local function int(n) return string.format('%.0f', n) end

-- Order of decimal numbers of up to 20 digits, which no Lua number holds, and of ids.
local function numberLess(a, b)
  if #a ~= #b then return #a < #b end
  return a < b
end

local function idLess(a, b)
  local am, as = string.match(a, '^(%d+)-(%d+)$')
  local bm, bs = string.match(b, '^(%d+)-(%d+)$')
  if am ~= bm then return numberLess(am, bm) end
  return numberLess(as, bs)
end

-- H is the control hash, kept equal to what is stored. A field that is missing is nil.
local H = {}
do
  local DAMAGED -- what is wrong with a hash that nothing can be concluded from
  local flat = redis.pcall('HGETALL', CONTROL)
  if flat.err then
    if string.find(flat.err, 'WRONGTYPE', 1, true) ~= 1 then return flat end
    DAMAGED = 'it is a ' .. redis.call('TYPE', CONTROL).ok
    flat = {}
  end
  for i = 1, #flat, 2 do
    local field, value = flat[i], flat[i + 1]
    H[field] = value
    local number = field == 'epoch' or field == 'count' or field == 'rev' or field == 'until' or field == 'hold'
      or field == 'high' or string.find(field, '^trimmed:') or string.find(field, '^gone:')
    if number and (#value > 18 or not string.find(value, '^%d+$'))
      or field == 'sealedLastId' and not string.find(value, '^%d+%-%d+$') then
      DAMAGED = 'its field ' .. field .. ' is no ' .. (number and 'number' or 'id')
    end
  end
  if DAMAGED then
    -- What is missing is never interpreted, and what is wrong is not either: nothing is done.
    return {'DAMAGED', int(NOW), cjson.encode({control = {}, error = DAMAGED})}
  end
end
local FENCED = H.epoch ~= nil and H.count ~= nil -- a layout is known; half of one is none
local WIPE = false

-- A hash that only waits for its expiry (PURGE) belongs to a stream that was deleted. A new
-- stream of that name begins without its fields; the revision still guards.
local function beginAnew()
  if not H.purged then return end
  H = {rev = H.rev}
  FENCED, WIPE = false, true
end

local function set(...)
  if WIPE then
    WIPE = false
    redis.call('DEL', CONTROL) -- the expiry goes with it
    if H.rev then redis.call('HSET', CONTROL, 'rev', H.rev) end
  end
  redis.call('HSET', CONTROL, ...)
  local list = {...}
  for i = 1, #list, 2 do H[list[i]] = list[i + 1] end
end

local function del(...)
  local there = {}
  for _, field in ipairs({...}) do
    if H[field] then
      there[#there + 1] = field
      H[field] = nil
    end
  end
  if #there > 0 and not WIPE then redis.call('HDEL', CONTROL, unpack(there)) end
end

-- S is the stream: nil until it is looked at, false when there is none.
local S
local OTHER_TYPE = false -- the key is there but is no stream

local function streamAt(key)
  local info, f = redis.call('XINFO', 'STREAM', key), {}
  for i = 1, #info, 2 do f[info[i]] = info[i + 1] end
  return {
    last = f['last-generated-id'], length = f['length'], added = f['entries-added'],
    deleted = f['max-deleted-entry-id'], top = f['last-entry'] and f['last-entry'][1],
    first = f['first-entry'] and f['first-entry'][1],
  }
end

local function stream()
  if S ~= nil then return S end
  local kind = redis.call('TYPE', SHARD).ok
  if kind ~= 'stream' then
    OTHER_TYPE = kind ~= 'none'
    S = false
    return S
  end
  S = streamAt(SHARD)
  return S
end

local function lookAgain()
  S = nil
  return stream()
end

-- groups of the stream (or of the one at key): a list of {name, pending, last, lag}; lag is nil where Redis does not know it.
local function groups(key)
  local list = {}
  for _, flat in ipairs(redis.call('XINFO', 'GROUPS', key or SHARD)) do
    local f = {}
    for i = 1, #flat, 2 do f[flat[i]] = flat[i + 1] end
    list[#list + 1] = {
      name = f['name'], pending = f['pending'], last = f['last-delivered-id'], lag = f['lag'] or nil,
    }
  end
  return list
end

local function reply(code, more)
  local r = more or {}
  r.control = {}
  for field, value in pairs(H) do
    if not string.find(field, ':', 1, true) then r.control[field] = value end
  end
  -- A refusal must reach the caller even where the stream cannot be looked at.
  local seen, s = pcall(stream)
  if seen and s then
    r.exists, r.sealed, r.length, r.added = true, s.last == MAX, int(s.length), int(s.added)
    r.last = s.last ~= MAX and s.last or H.sealedLastId or s.top or '0-0'
  end
  r.barrier = BARRIER
  return {code, int(NOW), cjson.encode(r)}
end

-- guard runs the checks that all scripts of the coordinator have in common, and returns the
-- code of the refusal, or nil. o.epoch: the epoch argument may not be below the shard's, else
-- o.behind (AHEAD). o.unfenced: a shard without a layout is accepted.
local function guard(o)
  if H.rev and tonumber(A.rev) < tonumber(H.rev) then return 'AHEAD' end
  if o.epoch and FENCED and tonumber(A.epoch) < tonumber(H.epoch) then return o.behind or 'AHEAD' end
  if not FENCED and not o.unfenced then return 'UNFENCED' end
  if NOW >= tonumber(A.notAfter) then return 'LATE' end
end

local function by(script) return (A.id or '-') .. '/' .. script end

-- stamp leaves the revision behind; a repeat does so too, so that WAIT has something to wait for.
local function stamp(script) set('rev', A.rev, 'by', by(script)) end

local function mayStampId()
  return not redis.acl_check_cmd or redis.acl_check_cmd('XSETID', SHARD, MAX)
end

-- closed: nothing can be appended any more, or, where the user may not seal, nothing fenced can.
local function closed(index)
  local s = stream()
  if not s then return false end
  if s.last == MAX then return true end
  if mayStampId() then return false end
  BARRIER = 'LEASE'
  return (H['until'] or H.hold or (FENCED and index >= tonumber(H.count))) and true or false
end

-- restore gives a sealed stream its ids back. The kept id alone is not trusted: it may be lost,
-- or something may have moved past it.
local function restore(s)
  if s.top == MAX then return 'EXHAUSTED', 'the newest entry has the highest possible id' end
  -- Trimmed entries leave no other trace than that they are not from the future. The whole of
  -- this millisecond may have been used.
  local clock = int(NOW) .. '-18446744073709551615'
  local all, id = groups(), H.sealedLastId or clock
  local function atLeast(other)
    if other and other ~= MAX and idLess(id, other) then id = other end
  end
  if id == MAX then id = clock end
  atLeast(s.top)
  atLeast(s.deleted)
  for _, g in ipairs(all) do atLeast(g.last) end
  if not mayStampId() then
    BARRIER = 'LEASE'
    return 'SEALERR', 'the user may not run XSETID'
  end
  local r = redis.pcall('XSETID', SHARD, id)
  if r.err then return s.deleted == MAX and 'EXHAUSTED' or 'SEALERR', r.err end
  s.last = id
  for _, g in ipairs(all) do
    -- Made at $ while sealed: it would be deaf for ever.
    if g.last == MAX then redis.call('XGROUP', 'SETID', SHARD, g.name, id, 'ENTRIESREAD', int(s.added)) end
  end
  del('sealedLastId')
end

-- settle makes the shard sealed exactly when its control hash says so: until or hold is
-- present, or the index is outside the layout. Returns nil, or a code and the text.
local function settle(index)
  local s = stream()
  if not s then return del('sealedLastId') end
  local sealed = s.last == MAX
  if H['until'] or H.hold or index >= tonumber(H.count) then
    if sealed then return end -- a second seal must not overwrite the kept id
    if not mayStampId() then
      BARRIER = 'LEASE'
      return del('sealedLastId')
    end
    set('sealedLastId', s.last)
    local r = redis.pcall('XSETID', SHARD, MAX)
    if r.err then
      del('sealedLastId')
      return 'SEALERR', r.err
    end
    s.last = MAX
  elseif sealed then
    return restore(s)
  else
    del('sealedLastId') -- of a seal that was lost: never used
  end
end

-- settled is the reply of a script that ends with settle.
local function settled(code, index)
  local failed, text = settle(index)
  if failed then return reply(failed, {error = text}) end
  return reply(code)
end

local function asSet(list)
  local is = {}
  for _, name in ipairs(list or {}) do is[name] = true end
  return is
end

-- Redis counts entries for nobody who does not read them. TOREAD is how many bytes of them a script
-- may still read for that, over all groups; COUNTED is what it has found, by the id it began at.
local TOREAD, COUNTED = 4194304, {}

-- undelivered counts the entries after an id that is not the last: exactly up to most, or as far as
-- may be read; from there on only "more".
local function undelivered(s, last, most)
  if s.first and idLess(last, s.first) then return s.length, false end
  if COUNTED[last] then return unpack(COUNTED[last]) end
  local n, more, from, chunk = 0, nil, '(' .. last, 1
  repeat
    local want, bytes = math.min(chunk, most + 1 - n), 0
    local rows = redis.call('XRANGE', SHARD, from, '+', 'COUNT', want)
    for _, row in ipairs(rows) do
      bytes = bytes + #row[1]
      for _, text in ipairs(row[2]) do bytes = bytes + #text end
    end
    n, TOREAD = n + #rows, TOREAD - bytes
    if n > most then
      n, more = most, true
    elseif #rows < want or rows[#rows][1] == s.top then
      more = false
    elseif TOREAD <= 0 then
      more = true
    else
      from = '(' .. rows[#rows][1]
      chunk = math.max(1, math.min(1000, math.floor(TOREAD * #rows / bytes)))
    end
  until more ~= nil
  COUNTED[last] = {n, more}
  return n, more
end

-- evidence is one look at all groups: the verdict and the object of the reply. Redis's lag is
-- shown, never used for the verdict: it is often unknown or too high. Where it is higher than
-- what is left to deliver, the difference went (trimmed, deleted) before it was delivered.
local function evidence()
  local s = stream()
  if not s then return 'UNKNOWN', {verdict = 'UNKNOWN', error = 'the stream is missing'} end
  local ignored, there, busy, list = asSet(A.ignored), {}, false, {}
  local most = tonumber(A.most or '0')
  if most == 0 then most = 100 end
  for _, g in ipairs(groups()) do
    there[g.name] = true
    -- The newest entry decides: if it was delivered, nothing lies after the last delivered id.
    local after = s.top and idLess(g.last, s.top) or false
    if (g.pending > 0 or after) and not ignored[g.name] then busy = true end
    local left, more = 0, false
    if after then left, more = undelivered(s, g.last, most) end
    list[#list + 1] = {
      name = g.name, pending = int(g.pending), last = g.last, after = after,
      left = int(left), more = more, lag = g.lag and int(g.lag), ignored = ignored[g.name],
      missed = g.lag and not more and int(math.max(g.lag - left, 0)) or nil,
      trimmed = H['trimmed:' .. g.name], gone = H['gone:' .. g.name],
    }
  end
  local r = {verdict = busy and 'BUSY' or 'DRAINED', groups = #list > 0 and list or nil}
  for _, name in ipairs(A.groups or {}) do
    if not there[name] and not ignored[name] then
      r.verdict, r.error = 'UNKNOWN', 'consumer group ' .. name .. ' is missing'
      break
    end
  end
  return r.verdict, r
end

-- forgetLosses: what was counted of a stream that is no more says nothing of the one that is made.
local function forgetLosses()
  for field in pairs(H) do
    if string.find(field, '^trimmed:') or string.find(field, '^gone:') then del(field) end
  end
end

-- makeGroups creates the stream, if need be, and the groups that are missing, at start.
local function makeGroups(names, start)
  local there, made = {}, false
  if not stream() then forgetLosses() end
  if stream() then
    for _, g in ipairs(groups()) do there[g.name] = true end
  end
  for _, name in ipairs(names or {}) do
    if not there[name] then
      redis.call('XGROUP', 'CREATE', SHARD, name, start, 'MKSTREAM')
      there[name], made = true, true
    end
  end
  if not made and not S then
    -- An empty stream without groups has no command of its own.
    redis.call('XGROUP', 'CREATE', SHARD, '-', '0', 'MKSTREAM')
    redis.call('XGROUP', 'DESTROY', SHARD, '-')
  end
  return lookAgain()
end

local function raise(field, value)
  if value and (not H[field] or tonumber(H[field]) < tonumber(value)) then set(field, value) end
end

