-- PREPARE: an old shard gets the layout in force and is held by the resharding.
-- ARGV[1]: rev, id, notAfter; epoch, count in force; index; high (shard 0 only)
local refused = guard({epoch = true, unfenced = true})
if refused then return reply(refused) end
if H.retired then return reply('AHEAD') end
if not stream() then return reply('UNKNOWN', {error = 'the stream is missing'}) end

if H.gate and H.gate ~= A.id then del('until') end -- it was the deadline of the other
set('rev', A.rev, 'by', by('PREPARE'), 'epoch', A.epoch, 'count', A.count, 'gate', A.id)
if A.index == '0' then raise('high', A.high) end
return reply('OK')
