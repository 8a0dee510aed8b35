-- DECIDE: on shard 0, the one moment at which the layout changes.
-- ARGV[1]: rev, id, notAfter; epoch in force; toEpoch, toCount; quiesced, drained (wanted);
--          ignored, groups (the expected ones)
if FENCED and H.epoch == A.toEpoch and H.count == A.toCount then
  set('by', by('DECIDE'))
  return reply('DECIDED')
end
local refused = guard({epoch = true})
if refused then return reply(refused) end
if H.aborted == A.id then return reply('ABORTED') end
if H.gate ~= A.id then return reply('NOTHELD') end
if tonumber(H.epoch) < tonumber(A.epoch) then return reply('NOTHELD') end
if H['until'] and NOW >= tonumber(H['until']) then return reply('LATE') end
if A.quiesced and not closed(0) then return reply('UNSEALED') end
if A.drained then
  local verdict, found = evidence()
  if verdict ~= 'DRAINED' then return reply(verdict, found) end
end

set('rev', A.rev, 'by', by('DECIDE'), 'epoch', A.toEpoch, 'count', A.toCount)
del('gate', 'until')
return settled('OK', 0)
