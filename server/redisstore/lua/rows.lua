-- Lease rows of one group, those that end before an instant or all.
-- KEYS  leases
-- ARGV  instant in ms, 0: all
-- Reply {time, identity, {row, end, …}}
local before = ARGV[1] == '0' and '+inf' or '(' .. ARGV[1]
return {int(NOW), IDENTITY, redis.call('ZRANGE', KEYS[1], '-inf', before, 'BYSCORE', 'WITHSCORES')}
