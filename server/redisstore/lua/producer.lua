-- A producer asked for the routing: observation only, bounded in number and in time.
-- Nothing is noted for a stream that is not: names that callers make up leave no keys.
-- KEYS  producers, plain-seen, stream aggregate
-- ARGV  producer id ('': unknown); 1: it appends by script, else 0
-- Reply {'OK' | 'NOTFOUND', time, identity}
if redis.call('EXISTS', KEYS[3]) == 0 then return {'NOTFOUND', int(NOW), IDENTITY} end
if ARGV[1] ~= '' then
  redis.call('ZADD', KEYS[1], int(NOW), ARGV[1])
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', int(NOW - 3600000))
  redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -10001)
  redis.call('PEXPIRE', KEYS[1], 3600000)
end
if ARGV[2] == '0' then redis.call('SET', KEYS[2], int(NOW), 'PX', 86400000) end
return {'OK', int(NOW), IDENTITY}
