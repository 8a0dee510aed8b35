-- RELEASE: an old shard is let go, the layout stays.
-- ARGV[1]: rev, id, notAfter; epoch in force; index
local refused = guard({epoch = true, behind = 'DECIDED'})
if refused then return reply(refused) end

set('rev', A.rev, 'by', by('RELEASE'), 'aborted', A.id)
del('gate', 'until')
return settled('OK', tonumber(A.index))
