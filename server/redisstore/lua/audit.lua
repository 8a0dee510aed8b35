-- Audit entries of requests that did not commit.
-- KEYS  audit, audit-head
-- ARGV  expected audit head ('': none); limit of the stream (0: none); then for each event: event, hash
-- Reply {'OK', time, identity} or {'AUDITHEAD', time, identity, present head}
local head = ARGV[1]
local present = redis.call('GET', KEYS[2]) or ''
if present ~= head then return {'AUDITHEAD', int(NOW), IDENTITY, present} end
for i = 3, #ARGV, 2 do
  if ARGV[2] == '0' then
    redis.call('XADD', KEYS[1], '*', 'event', ARGV[i], 'hash', ARGV[i + 1], 'prev', head)
  else
    redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', 'event', ARGV[i], 'hash', ARGV[i + 1], 'prev', head)
  end
  head = ARGV[i + 1]
end
redis.call('SET', KEYS[2], head)
return {'OK', int(NOW), IDENTITY}
