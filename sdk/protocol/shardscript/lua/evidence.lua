-- EVIDENCE: one atomic look at a shard and all its groups. Changes nothing. The code is the
-- verdict; a retired shard (tombstone and no stream) answers RETIRED.
-- ARGV[1]: rev, id, notAfter; index; ignored, groups (the expected ones)
local refused = guard({})
if refused then return reply(refused) end
if H.retired and not stream() then return reply('RETIRED') end
closed(tonumber(A.index or '0')) -- tells which barrier there is
return reply(evidence())
