-- RESOLVE: a producer that met an overdue shard ends the pause at shard 0, unless shard 0 has
-- decided or its clock says that it is too early.
-- ARGV[1]: id, until, epoch, all as met at the overdue shard
-- Codes: IN_FORCE (epoch and count of the control hash hold), WAIT, UNFENCED
if not FENCED then return reply('UNFENCED') end
set('by', by('RESOLVE'))
if H.gate and H.gate ~= A.id then return reply('WAIT') end
if H.gate == A.id or (H.epoch == A.epoch and H.aborted ~= A.id) then
  local deadline = tonumber(A['until'])
  if H.gate and H['until'] then deadline = math.max(deadline, tonumber(H['until'])) end
  if NOW < deadline then return reply('WAIT') end
  set('aborted', A.id)
  del('gate', 'until')
  return settled('IN_FORCE', 0)
end
return reply('IN_FORCE')
