-- MKGROUP: consumer groups are created where they are missing; one that is there is left as it
-- is. The stream is never created.
-- ARGV[1]: rev, id, notAfter; groups; start (id)
--          or, for the owner of a shard whose group is lost: groups (one); start; owner {epoch, member, incarnation}
if A.owner then
  local epoch, member, incarnation = string.match(H['owner:' .. A.groups[1]] or '', '^(%d+) (%S+) (%S*)$')
  local newer = epoch and tonumber(epoch) > tonumber(A.owner.epoch)
  local other = epoch and tonumber(epoch) == tonumber(A.owner.epoch)
    and (member ~= A.owner.member or incarnation ~= A.owner.incarnation)
  if newer or other then return reply('NOTOWNER', {owner = epoch}) end
else
  local refused = guard({})
  if refused then return reply(refused) end
end
if H.retired then return reply('RETIRED') end
if not stream() then return reply('UNKNOWN', {error = 'the stream is missing'}) end

if not A.owner then stamp('MKGROUP') end
makeGroups(A.groups, A.start or '0')
return reply('OK')
