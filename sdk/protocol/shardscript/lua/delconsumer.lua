-- DELCONSUMER: a consumer name goes, but only while nothing is pending under it.
--
-- KEYS[1]  the shard, KEYS[2] its control hash
-- ARGV     group, consumer name
-- Reply    {'OK', 0} gone, or never there; {'BUSY', pending}; {'RETIRED', 0} {'NOSHARD', 0} {'NOGROUP', 0}
if redis.call('HEXISTS', KEYS[2], 'retired') == 1 then return {'RETIRED', 0} end
local consumers = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])
if consumers.err then
  if string.find(consumers.err, '^NOGROUP') then return {'NOGROUP', 0} end
  if string.find(consumers.err, 'no such key', 1, true) then return {'NOSHARD', 0} end
  return consumers
end
for _, flat in ipairs(consumers) do
  local f = {}
  for i = 1, #flat, 2 do f[flat[i]] = flat[i + 1] end
  if f.name == ARGV[2] then
    if f.pending > 0 then return {'BUSY', f.pending} end
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
  end
end
return {'OK', 0}
