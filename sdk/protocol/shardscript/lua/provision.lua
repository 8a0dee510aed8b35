-- PROVISION: a new shard is made with its groups. Its index is outside the layout in force, so
-- it is born sealed.
-- ARGV[1]: rev, id, notAfter; epoch, count in force; index; until (absent: none); groups; high
beginAnew()
local refused = guard({epoch = true, unfenced = true})
if refused then return reply(refused) end
local s = stream()
if OTHER_TYPE or (s and not FENCED) then return reply('FOREIGN') end
if s and s.length > 0 and H.gate ~= A.id then
  -- A shard of this very layout that is on its way out may come back with its entries.
  local removed = not H.retired and H.epoch == A.epoch and H.count == A.count
  if not removed then return reply('LEFTOVER') end
end

if H.gate and H.gate ~= A.id then del('until') end
-- The hash first: a stream without one would be taken for a foreign one at the repeat.
set('rev', A.rev, 'by', by('PROVISION'), 'epoch', A.epoch, 'count', A.count, 'gate', A.id)
FENCED = true
if A['until'] then set('until', A['until']) end
del('retired', 'aborted')
if A.index == '0' then raise('high', A.high) end
makeGroups(A.groups, '0')
return settled('OK', tonumber(A.index))
