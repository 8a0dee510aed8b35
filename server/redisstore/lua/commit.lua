-- Commit: all or nothing on the aggregates of one stream. With nothing to write it is the
-- renewal of steady answers (rule C3). All checks come before the first write.
--
-- KEYS  stream aggregate, audit, audit-head, producers, plain-seen, ticker;
--       then for each group: aggregate, leases, progress
-- ARGV  identity ('': any); nonce; not-after (0: none); estimate of the time; its tolerance (0: unchecked);
--       PUBLISH or SPUBLISH; channel
--       stream: '', CHECK, WRITE or DELETE; expected rev, nonce ('0', '': not stored); new rev; aggregate
--       number of groups, each: CHECK, WRITE or DELETE; expected rev, nonce; new rev; aggregate;
--         lease ms; 1 to set rows back as well, else 0;
--         n, n × (row, most ms that may remain); n, n × row to renew; n, n × row to drop;
--         n, n × (member, report); n, n × member whose report goes
--       expected audit head ('': none); limit of the audit stream (0: none); number of events,
--         each: event, hash of the chain up to it
-- Reply {'OK', time, identity}
--       {'IDENTITY' | 'CONFLICT' | 'LATE' | 'CLOCK', time, identity}
--       {'ROWS', time, identity, group number, row, end, …}  all rows that have not ended; end 0: missing
--       {'AUDITHEAD', time, identity, present head}
local at = 0
local function take()
  at = at + 1
  return ARGV[at]
end
local function takeList(width)
  local n, first = tonumber(take()), at + 1
  at = at + n * width
  return {n = n * width, first = first}
end
local function answer(code, ...) return {code, int(NOW), IDENTITY, ...} end

local identity, nonce = take(), take()
local notAfter, estimate, tolerance = tonumber(take()), tonumber(take()), tonumber(take())
local publish, channel = take(), take()

if identity ~= '' and identity ~= IDENTITY then return answer('IDENTITY') end

-- An aggregate as it is to be: mode, key, expected token (revision 0: none is stored, NEW: it does
-- not matter), new revision, text.
local function takeAggregate(key)
  return {key = key, mode = take(), rev = take(), nonce = take(), new = take(), text = take()}
end
local repeated = false
local function current(a)
  local token = redis.call('HMGET', a.key, 'rev', 'nonce')
  -- This very commit, sent again by a client library that lost the answer.
  if a.mode == 'WRITE' and token[2] == nonce then repeated = true end
  if a.rev == 'NEW' then return true end
  if a.rev == '0' then return not token[1] and not token[2] and redis.call('EXISTS', a.key) == 0 end
  return token[1] == a.rev and token[2] == a.nonce
end

local stream = takeAggregate(KEYS[1])
local groups = {}
for i = 1, tonumber(take()) do
  local g = takeAggregate(KEYS[4 + 3 * i])
  g.leases, g.progress = KEYS[5 + 3 * i], KEYS[6 + 3 * i]
  g.lease, g.reset = tonumber(take()), take() == '1'
  g.check, g.renew, g.drop = takeList(2), takeList(1), takeList(1)
  g.reports, g.forget = takeList(2), takeList(1)
  groups[i] = g
end
local head, limit = take(), take()
local events = takeList(2)

local valid = stream.mode == '' or current(stream)
for _, g in ipairs(groups) do valid = current(g) and valid end
if repeated then return answer('OK') end
if not valid then return answer('CONFLICT') end
if notAfter > 0 and NOW >= notAfter then return answer('LATE') end
if tolerance > 0 and math.abs(NOW - estimate) > tolerance then return answer('CLOCK') end

local rows = {}
for i, g in ipairs(groups) do
  for j = g.check.first, g.check.first + g.check.n - 1, 2 do
    local ends = redis.call('ZSCORE', g.leases, ARGV[j])
    if not ends or tonumber(ends) > NOW + tonumber(ARGV[j + 1]) then
      rows[#rows + 1] = int(i)
      rows[#rows + 1] = ARGV[j]
      rows[#rows + 1] = ends and int(tonumber(ends)) or '0'
    end
  end
end
if #rows > 0 then
  local r = answer('ROWS')
  for _, cell in ipairs(rows) do r[#r + 1] = cell end
  return r
end
if events.n > 0 and (redis.call('GET', KEYS[3]) or '') ~= head then
  return answer('AUDITHEAD', redis.call('GET', KEYS[3]) or '')
end

for _, g in ipairs(groups) do
  if g.rev ~= 'NEW' and g.renew.n + g.drop.n > 0 then redis.call('ZCARD', g.leases) end -- fails when it is no sorted set
end

-- From here on only writes. Lists go in slices: unpack has a limit.
local SLICE = 2000
local function slices(list, run)
  for i = list.first, list.first + list.n - 1, SLICE do
    run(i, math.min(i + SLICE, list.first + list.n) - 1)
  end
end

local wrote = false
local function write(a)
  if a.mode == 'WRITE' then
    redis.call('HSET', a.key, 'aggregate', a.text, 'rev', a.new, 'nonce', nonce, 'schema', '1', 'updatedAt', int(NOW))
    wrote = true
  elseif a.mode == 'DELETE' then
    redis.call('DEL', a.key)
    wrote = true
  end
end

-- The audit entries first: should they be refused, as on a key that holds something else, then
-- nothing has been written yet, and no change goes without its entry.
for j = events.first, events.first + events.n - 1, 2 do
  if limit == '0' then
    redis.call('XADD', KEYS[2], '*', 'event', ARGV[j], 'hash', ARGV[j + 1], 'prev', head)
  else
    redis.call('XADD', KEYS[2], 'MAXLEN', '~', limit, '*', 'event', ARGV[j], 'hash', ARGV[j + 1], 'prev', head)
  end
  head = ARGV[j + 1]
end
if events.n > 0 then redis.call('SET', KEYS[3], head) end

write(stream)
if stream.mode == 'DELETE' then redis.call('DEL', KEYS[4], KEYS[5], KEYS[6]) end
for _, g in ipairs(groups) do
  -- A group that this commit enters in the registry is made over what a lost history has left.
  if g.rev == 'NEW' then redis.call('DEL', g.key, g.leases, g.progress) end
  write(g)
  if g.mode == 'DELETE' then
    redis.call('DEL', g.leases, g.progress)
  else
    local ends = int(NOW + g.lease)
    slices(g.renew, function(from, to)
      local args = {}
      for j = from, to do
        args[#args + 1] = ends
        args[#args + 1] = ARGV[j]
      end
      -- GT: a row that stands later, by a longer lease of before, is not cut.
      if g.reset then redis.call('ZADD', g.leases, unpack(args)) else redis.call('ZADD', g.leases, 'GT', unpack(args)) end
    end)
    slices(g.drop, function(from, to) redis.call('ZREM', g.leases, unpack(ARGV, from, to)) end)
    -- Observation only: that it cannot be stored costs no commit.
    slices(g.reports, function(from, to) redis.pcall('HSET', g.progress, unpack(ARGV, from, to)) end)
    slices(g.forget, function(from, to) redis.pcall('HDEL', g.progress, unpack(ARGV, from, to)) end)
  end
end
if wrote then redis.call(publish, channel, nonce) end
return answer('OK')
