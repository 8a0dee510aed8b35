-- PURGE: the stream was deleted. What is left of its shard goes, the tombstone gets its expiry.
-- What lies beside a tombstone, or without a control hash, is not ours and stays.
-- ARGV[1]: rev, id, notAfter
if not FENCED then return reply('OK') end
local refused = guard({})
if refused then return reply(refused) end
if not H.retired and stream() then
  redis.call('UNLINK', SHARD)
  S = false
end
set('rev', A.rev, 'by', by('PURGE'), 'purged', '1', 'retired', H.retired or A.id or '-')
del('gate', 'until', 'hold', 'sealedLastId')
redis.call('EXPIRE', CONTROL, 86400)
return reply('OK')
