-- HOLD: the operator's pause begins or ends on a shard. A resharding's own seal is not touched.
-- ARGV[1]: rev, id, notAfter; index; hold (deadline; absent: the pause ends)
local refused = guard({})
if refused then return reply(refused) end
stamp('HOLD')
if H.retired then return reply('OK') end
if A.hold then set('hold', A.hold) else del('hold') end
return settled('OK', tonumber(A.index))
