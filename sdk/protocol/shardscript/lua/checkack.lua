-- CHECKACK: does the caller still own the shard? If so, its entries are acknowledged.
--
-- KEYS[1]  the shard, KEYS[2] its control hash
-- ARGV     group, ownership epoch, member id, incarnation, consumer name, then ids
-- Reply    {'OK', acknowledged, pending under other names, pending under this name}
--          {'NOTOWNER', epoch}    a higher epoch, or the same one of another session
--          {'LOSTOWNER', epoch}   a lower one, or '' for none: the node lost writes
--          {'RETIRED'} {'NOSHARD'} {'NOGROUP'}
local SHARD, CONTROL = KEYS[1], KEYS[2]
local group, mine = ARGV[1], ARGV[5]
local c = redis.call('HMGET', CONTROL, 'owner:' .. group, 'retired')
if c[2] then return {'RETIRED'} end
if c[1] ~= ARGV[2] .. ' ' .. ARGV[3] .. ' ' .. ARGV[4] then
  local epoch = c[1] and string.match(c[1], '^%d+') or ''
  if epoch == '' or tonumber(epoch) < tonumber(ARGV[2]) then return {'LOSTOWNER', epoch} end
  return {'NOTOWNER', epoch}
end

local acked = 0
for i = 6, #ARGV, 1000 do -- unpack has a limit
  acked = acked + redis.call('XACK', SHARD, group, unpack(ARGV, i, math.min(i + 999, #ARGV)))
end
local p = redis.pcall('XPENDING', SHARD, group)
if p.err then
  if string.find(p.err, '^NOGROUP') == nil then return p end
  return {redis.call('EXISTS', SHARD) == 1 and 'NOGROUP' or 'NOSHARD'}
end
local own = 0
for _, row in ipairs(p[4] or {}) do
  if row[1] == mine then own = tonumber(row[2]) end
end
return {'OK', acked, p[1] - own, own}
