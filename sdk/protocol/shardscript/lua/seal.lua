-- SEAL: an old shard takes no entries until the resharding ends or its deadline passes.
-- ARGV[1]: rev, id, notAfter; epoch in force; index; until
local refused = guard({epoch = true})
if refused then return reply(refused) end
if tonumber(H.epoch) < tonumber(A.epoch) then return reply('NOTHELD') end
if H.aborted == A.id then return reply('ABORTED') end
if NOW >= tonumber(A['until']) then return reply('LATE') end -- never seal after the deadline
if not stream() then return reply('UNKNOWN', {error = 'the stream is missing'}) end

set('rev', A.rev, 'by', by('SEAL'), 'gate', A.id, 'until', A['until'])
return settled('OK', tonumber(A.index))
