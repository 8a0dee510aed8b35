-- RETIRE: a removed shard goes, if it is drained at this moment. The control hash stays as
-- its tombstone.
-- ARGV[1]: rev, id, notAfter; epoch, count; index; ignored, groups (the expected ones);
--          archive (id; absent: the stream is unlinked)
local refused = guard({epoch = true})
if refused then return reply(refused) end
local s = stream()
if H.retired and not s then
  stamp('RETIRE')
  return reply('OK')
end
local index = tonumber(A.index)
if H.epoch ~= A.epoch or H.count ~= A.count or index < tonumber(H.count) then return reply('NOTFENCED') end
if not closed(index) then return reply('UNSEALED') end
local verdict, found = evidence()
if verdict ~= 'DRAINED' then return reply(verdict, found) end
-- Built here and not declared: while its slot moves, a key that does not exist would hold up the script.
local archive = A.archive and '{' .. SHARD .. '}:archived:' .. A.archive
if archive and redis.call('EXISTS', archive) == 1 then return reply('EXISTS') end

set('rev', A.rev, 'by', by('RETIRE'), 'retired', A.id)
if archive then redis.call('RENAMENX', SHARD, archive) else redis.call('UNLINK', SHARD) end
del('gate', 'until', 'hold', 'sealedLastId')
S = false
return reply('OK', found)
