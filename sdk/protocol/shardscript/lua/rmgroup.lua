-- RMGROUP: the consumer group of a registration that was deleted goes, whatever is pending in it
-- or was not delivered to it, and what is counted of it. The shard then belongs to nobody ("-"),
-- under a higher epoch: a consumer who has not heard of the end yet neither takes it over nor
-- makes the group again. One that is registered anew is granted higher epochs still.
-- ARGV[1]: rev, id, notAfter; groups (one); owner {epoch: higher than any that was granted}
local refused = guard({})
if refused then return reply(refused) end
local name = A.groups[1]
local field = 'owner:' .. name
local NOBODY, DAY = '^(%d+) %- (%d+)$', 86400000

set('rev', A.rev, 'by', by('RMGROUP'))
local stored = tonumber(string.match(H[field] or '', '^%d+') or '-1')
local nobody = H[field] and string.match(H[field], NOBODY)
if not nobody or stored < tonumber(A.owner.epoch) then
  set(field, int(math.max(tonumber(A.owner.epoch), stored + 1)) .. ' - ' .. int(NOW))
end
del('trimmed:' .. name, 'gone:' .. name)
-- Nobody's marks are of no use when every consumer of that time has long lost its lease.
for other, value in pairs(H) do
  if string.sub(other, 1, 6) == 'owner:' then
    local _, since = string.match(value, NOBODY)
    if since and tonumber(since) < NOW - DAY then del(other) end
  end
end
-- What lies beside a tombstone is not ours.
if H.retired then return reply('RETIRED') end
if stream() then
  for _, g in ipairs(groups()) do
    if g.name == name then redis.call('XGROUP', 'DESTROY', SHARD, name) end
  end
end
return reply('OK')
