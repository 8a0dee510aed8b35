-- The soft lock of a stream's periodic work. Never needed for safety.
-- KEYS  ticker
-- ARGV  replica; ttl in ms, 0 gives the lock back
-- Reply 1: the caller has (or had) the lock, 0: another replica has it
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
if ARGV[2] ~= '0' then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
elseif holder then
  redis.call('DEL', KEYS[1])
end
return 1
