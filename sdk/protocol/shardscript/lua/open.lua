-- OPEN: a shard of either layout gets the layout that was decided. Inside it opens, outside it
-- is or becomes sealed without a deadline.
-- ARGV[1]: rev, id, notAfter; epoch, count to; index; hold (absent: none); groups
beginAnew()
local refused = guard({epoch = true, unfenced = true})
if refused then return reply(refused) end
local index = tonumber(A.index)
local inside = index < tonumber(A.count)

set('rev', A.rev, 'by', by('OPEN'), 'epoch', A.epoch, 'count', A.count)
FENCED = true
if not inside then
  -- What lies beside a tombstone is not ours, and stays as it is.
  if H.retired or not stream() then
    if not H.retired then set('retired', A.id) end
    del('gate', 'until', 'hold', 'sealedLastId')
    return reply('GONE')
  end
  del('gate', 'until')
  return settled('OK', index)
end
if A.hold then set('hold', A.hold) else del('hold') end
del('gate', 'until', 'retired')
if not stream() then makeGroups(A.groups, '0') end
return settled('OK', index)
