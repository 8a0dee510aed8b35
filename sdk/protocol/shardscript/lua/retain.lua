-- RETAIN: what the stream's retention lets go of is removed from the old end of a shard, one
-- slice a call. What goes before a consumer group has acknowledged it is counted first, in
-- trimmed:<group>, and what was pending of it is acknowledged: nothing is left that points to a
-- body that is gone, and nobody counts it again.
-- ARGV[1]: rev, id, notAfter; epoch, count in force; policy (ACKED, MAX_AGE, MAX_LEN); maxAge
--          (ms), maxLen (entries); groups (registered ones that must be on the shard); most
--          (entries of a slice, absent: 1000)
-- Reply    removed, unacked (summed over the groups), more (there is another slice)
-- Codes: OK, RETIRED, NOTFENCED (another layout, or a change holds the shard), UNKNOWN
local refused = guard({epoch = true})
if refused then return reply(refused) end
if H.retired then return reply('RETIRED') end
if H.epoch ~= A.epoch or H.count ~= A.count or H.gate then return reply('NOTFENCED') end
local s = stream()
if not s then return reply('UNKNOWN', {error = 'the stream is missing'}) end

local MOST, BYTES = tonumber(A.most or '1000'), 1048576
local all, lost = groups(), {}
do
  local there = {}
  for _, g in ipairs(all) do there[g.name] = true end
  for _, name in ipairs(A.groups or {}) do
    if not there[name] then lost[#lost + 1] = name end
  end
end

-- goes says whether an entry goes, as the n-th oldest one.
local goes
if A.policy == 'ACKED' then
  if #lost > 0 then return reply('UNKNOWN', {error = 'consumer group ' .. lost[1] .. ' is missing'}) end
  if #all == 0 then return reply('OK') end -- somebody may come who wants it all
  local delivered, pending = MAX, nil
  for _, g in ipairs(all) do
    if idLess(g.last, delivered) then delivered = g.last end
    if g.pending > 0 then
      local first = redis.call('XPENDING', SHARD, g.name)[2]
      if not pending or idLess(first, pending) then pending = first end
    end
  end
  goes = function(id) return not idLess(delivered, id) and not (pending and not idLess(id, pending)) end
elseif A.policy == 'MAX_AGE' then
  local oldest = int(math.max(NOW - tonumber(A.maxAge), 0))
  goes = function(id) return numberLess(string.match(id, '^%d+'), oldest) end
elseif A.policy == 'MAX_LEN' then
  local over = s.length - tonumber(A.maxLen)
  goes = function(_, n) return n <= over end
else
  return redis.error_reply('ERR RETAIN does not know the policy ' .. tostring(A.policy))
end
if not s.first or not goes(s.first, 1) then return reply('OK') end

-- The ids of this slice, and the oldest one that stays. Entries are read as they are, so a slice
-- is bounded by their size as well; at least one entry is in it.
local ids, edge, more, bytes, from, chunk = {}, nil, false, 0, '-', 8
repeat
  local rows = redis.call('XRANGE', SHARD, from, '+', 'COUNT', chunk)
  for _, row in ipairs(rows) do
    local id = row[1]
    -- An entry with the highest id cannot be trimmed by what follows it.
    if id == MAX or not goes(id, #ids + 1) then
      edge = id
      break
    elseif #ids >= MOST or bytes >= BYTES then
      edge, more = id, true
      break
    end
    ids[#ids + 1] = id
    bytes = bytes + #id
    for _, text in ipairs(row[2]) do bytes = bytes + #text end
  end
  if not edge and #rows < chunk then edge = MAX end
  if not edge then
    from = '(' .. ids[#ids]
    chunk = math.max(1, math.min(256, math.floor((BYTES - bytes) * #ids / bytes)))
  end
until edge
if #ids == 0 then return reply('OK') end

-- give counts, of the ids, those that a group has not acknowledged, and acknowledges what is
-- pending of them.
local function give(g, at)
  local low, high = 0, #ids -- how many of them lie at or below the last delivered id
  while low < high do
    local middle = math.ceil((low + high) / 2)
    if idLess(g.last, ids[middle]) then high = middle - 1 else low = middle end
  end
  local n = #ids - low
  if g.pending == 0 then return n end
  local start = ids[1]
  repeat
    local rows, mine = redis.call('XPENDING', SHARD, g.name, start, ids[#ids], 1000), {}
    for _, row in ipairs(rows) do
      local i = at[row[1]]
      if i then
        mine[#mine + 1] = row[1]
        if i <= low then n = n + 1 end
      end
    end
    if #mine > 0 then redis.call('XACK', SHARD, g.name, unpack(mine)) end
    if #rows == 1000 then start = '(' .. rows[#rows][1] end
  until #rows < 1000
  return n
end

-- What a script did before it fails is not undone: nothing is counted or acknowledged that might
-- not go.
local function may(...) return not redis.acl_check_cmd or redis.acl_check_cmd(...) end
if not (may('XTRIM', SHARD, 'MINID', edge) and may('XPENDING', SHARD, '-') and may('XACK', SHARD, '-', edge)) then
  return redis.error_reply('NOPERM retention needs XTRIM, XPENDING and XACK, which the user may not run')
end

stamp('RETAIN')
local unacked = 0
if A.policy ~= 'ACKED' then
  local at = {}
  for i, id in ipairs(ids) do at[id] = i end
  local function note(name, n)
    if n == 0 then return end
    set('trimmed:' .. name, int(tonumber(H['trimmed:' .. name] or '0') + n))
    unacked = unacked + n
  end
  for _, g in ipairs(all) do note(g.name, give(g, at)) end
  -- A registered group that is lost begins anew with what is left.
  for _, name in ipairs(lost) do note(name, #ids) end
end
do
  -- Names that come and go must not fill the hash: what is neither here nor registered is told to nobody.
  local known = asSet(A.groups)
  for _, g in ipairs(all) do known[g.name] = true end
  for field in pairs(H) do
    local name = string.match(field, '^trimmed:(.*)$') or string.match(field, '^gone:(.*)$')
    if name and not known[name] then del(field) end
  end
end
local removed = redis.call('XTRIM', SHARD, 'MINID', edge)
lookAgain()
return reply('OK', {removed = int(removed), unacked = int(unacked), more = more or nil})
