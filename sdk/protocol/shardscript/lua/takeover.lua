-- TAKEOVER: the caller becomes the owner of a shard for one group, or still is, and takes
-- over a slice of what is pending, under whatever name.
--
-- ARGV[1]  JSON: group; epoch (ownership); member, incarnation; consumer (name); max (ids of
--          this slice, at most 1000); after (last id of the slice before, absent: from the start)
-- Reply    {'OK', server time in ms, JSON {next, lost, deleted}, {{id, deliveries, {field, value, …}}, …}}
--            next     argument `after` of the next slice, absent when this was the last
--            lost     ids whose bodies are gone; they are acknowledged, and counted in field
--                     gone:<group> of the control hash, each of them once: nothing is pending of
--                     it any more
--            deleted  consumer names that were removed, with nothing pending
--          else {code, server time in ms, JSON {owner: the stored epoch}, {}}:
--          NOTOWNER, RETIRED, NOSHARD, NOGROUP
local function answer(code, more, entries)
  return {code, int(NOW), cjson.encode(more or {}), entries or {}}
end

local field = 'owner:' .. A.group
if H.retired then return answer('RETIRED') end
if not stream() then return answer('NOSHARD') end
local present = false
for _, g in ipairs(groups()) do present = present or g.name == A.group end
if not present then return answer('NOGROUP') end
local owner = A.epoch .. ' ' .. A.member .. ' ' .. A.incarnation
local stored = H[field] and string.match(H[field], '^%d+')
if stored and H[field] ~= owner and tonumber(A.epoch) <= tonumber(stored) then
  return answer('NOTOWNER', {owner = stored})
end
set(field, owner)

local max = math.min(tonumber(A.max), 1000)
local rows = {}
if A.after ~= MAX then
  rows = redis.call('XPENDING', SHARD, A.group, A.after and '(' .. A.after or '-', '+', max)
end
local ids, deliveries, names = {}, {}, {}
for i, row in ipairs(rows) do
  ids[i] = row[1]
  deliveries[row[1]] = row[4] + 1 -- the claim is one more
  names[row[2]] = true
end

local entries, lost = {}, {}
if #ids > 0 then
  local claimed = {}
  for _, entry in ipairs(redis.call('XCLAIM', SHARD, A.group, A.consumer, 0, unpack(ids))) do
    if entry and entry[2] then
      claimed[entry[1]] = true
      entries[#entries + 1] = {entry[1], deliveries[entry[1]], entry[2]}
    end
  end
  for _, id in ipairs(ids) do
    if not claimed[id] then lost[#lost + 1] = id end
  end
  if #lost > 0 then
    set('gone:' .. A.group, int(tonumber(H['gone:' .. A.group] or '0') + #lost))
    redis.call('XACK', SHARD, A.group, unpack(lost))
  end
end

-- Names that this emptied, and those of earlier ownerships that were left empty.
local deleted = {}
for _, flat in ipairs(redis.call('XINFO', 'CONSUMERS', SHARD, A.group)) do
  local f = {}
  for i = 1, #flat, 2 do f[flat[i]] = flat[i + 1] end
  local earlier = string.match(f.name, '~(%d+)$')
  earlier = earlier and tonumber(earlier) < tonumber(A.epoch)
  if f.name ~= A.consumer and f.pending == 0 and (names[f.name] or earlier) then
    redis.call('XGROUP', 'DELCONSUMER', SHARD, A.group, f.name)
    deleted[#deleted + 1] = f.name
  end
end
return answer('OK', {
  next = #rows == max and ids[#ids] or nil,
  lost = #lost > 0 and lost or nil,
  deleted = #deleted > 0 and deleted or nil,
}, entries)
