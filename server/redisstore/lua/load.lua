-- Load: the aggregate of a stream, and of the groups that the caller expects it to have, with
-- their lease rows, in one atomic look. Changes nothing.
-- KEYS  stream aggregate; for each group: aggregate, leases
-- Reply {time, identity, {rev, nonce, schema, aggregate}, then for each group: {rev, nonce, schema, aggregate}, {row, end, …}}
--       fields that are missing are nil; a key that is missing has four of them
local reply = {int(NOW), IDENTITY, redis.call('HMGET', KEYS[1], 'rev', 'nonce', 'schema', 'aggregate')}
for i = 2, #KEYS, 2 do
  reply[#reply + 1] = redis.call('HMGET', KEYS[i], 'rev', 'nonce', 'schema', 'aggregate')
  reply[#reply + 1] = redis.call('ZRANGE', KEYS[i + 1], 0, -1, 'WITHSCORES')
end
return reply
