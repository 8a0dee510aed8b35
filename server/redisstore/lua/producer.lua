-- A producer asked for the routing: observation only, bounded in number and in time.
-- KEYS  producers, plain-seen
-- ARGV  producer id ('': unknown); 1: it appends by script, else 0
if ARGV[1] ~= '' then
  redis.call('ZADD', KEYS[1], int(NOW), ARGV[1])
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', int(NOW - 3600000))
  redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -10001)
  redis.call('PEXPIRE', KEYS[1], 3600000)
end
if ARGV[2] == '0' then redis.call('SET', KEYS[2], int(NOW), 'PX', 86400000) end
return {int(NOW), IDENTITY}
