-- RECHECK: what can still be seen of a certificate on a shard. Changes nothing, needs no layout.
-- ARGV[1]: index; id (of the resharding); lastId (the certified one); ignored, groups (the
--          certified ones); archive (id; absent: removed shards were unlinked); most (how many
--          archive names were tried, absent: 1: the id, <id>-2, <id>-3, …)
-- Codes: OK        the shard is there
--        RETIRED   tombstone; whose it is, is in the control hash
--        ARCHIVED  tombstone of this resharding, and its archive is there: the reply is of that
--        UNKNOWN   neither stream nor tombstone, or something that is no stream
-- Verdict and groups are as those of EVIDENCE, but of the entries up to lastId (of an archive: of
-- all): pending is counted up to 100, and undelivered up to 1.
local function lookAt(key, last)
  local ignored, there, busy, list = asSet(A.ignored), {}, false, {}
  for _, g in ipairs(groups(key)) do
    there[g.name] = true
    local pending = #redis.call('XPENDING', key, g.name, '-', last, 100)
    local left = g.last ~= MAX and #redis.call('XRANGE', key, '(' .. g.last, last, 'COUNT', 1) or 0
    if (pending > 0 or left > 0) and not ignored[g.name] then busy = true end
    list[#list + 1] = {
      name = g.name, pending = int(pending), last = g.last, after = left > 0, left = int(left), more = left > 0,
      ignored = ignored[g.name], trimmed = H['trimmed:' .. g.name], gone = H['gone:' .. g.name],
    }
  end
  local r = {verdict = busy and 'BUSY' or 'DRAINED', groups = #list > 0 and list or nil}
  for _, name in ipairs(A.groups or {}) do
    if not there[name] and not ignored[name] then r.verdict = 'UNKNOWN' end
  end
  return r
end

if H.retired then
  for n = (A.archive and H.retired == A.id) and tonumber(A.most or '1') or 0, 1, -1 do
    local archive = '{' .. SHARD .. '}:archived:' .. A.archive .. (n > 1 and '-' .. n or '')
    if redis.call('TYPE', archive).ok == 'stream' then
      S = streamAt(archive)
      return reply('ARCHIVED', lookAt(archive, '+'))
    end
  end
  return reply('RETIRED')
end
closed(tonumber(A.index or '0')) -- tells which barrier there is
if not stream() then
  return reply('UNKNOWN', {error = OTHER_TYPE and 'the key is no stream' or 'neither the stream nor its tombstone is there'})
end
return reply('OK', lookAt(SHARD, A.lastId or '+'))
