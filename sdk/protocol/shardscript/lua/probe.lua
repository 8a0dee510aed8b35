-- PROBE: what there is to know of a shard before something is decided: control hash, stream, and
-- all groups. Changes nothing and needs no layout; a key of another type, or none, is an answer.
-- ARGV[1]: index; groups (the expected ones), ignored; most (to count per group, absent: 100)
closed(tonumber(A.index or '0')) -- tells which barrier there is
if not stream() then
  return reply('OK', {error = OTHER_TYPE and 'the key is no stream' or nil})
end
local _, found = evidence()
return reply('OK', found)
