-- UNDO: a new shard is taken away again. One that never was gets the stamp, which the late
-- PROVISION then meets.
-- ARGV[1]: rev, id, notAfter; epoch, count in force
beginAnew()
local refused = guard({epoch = true, behind = 'DECIDED', unfenced = true})
if refused then return reply(refused) end
local s = stream()
if OTHER_TYPE or (s and not FENCED) then
  set('rev', A.rev, 'by', by('UNDO'), 'aborted', A.id) -- foreign, and stays so: no layout beside it
  return reply('OK')
end
if s and s.added > 0 then return reply('NOTEMPTY') end

set('rev', A.rev, 'by', by('UNDO'), 'retired', A.id, 'aborted', A.id)
if not FENCED then set('epoch', A.epoch, 'count', A.count) end
del('gate', 'until', 'sealedLastId')
if s then redis.call('UNLINK', SHARD) end
S = false
return reply('OK')
