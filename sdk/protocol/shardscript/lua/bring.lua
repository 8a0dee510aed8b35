-- BRING: a producer takes to a shard what shard 0 says.
-- ARGV[1]: epoch, count of shard 0; index; id met at the shard (absent: none)
-- Codes: OK, NOTHING, UNFENCED
if not FENCED then return reply('UNFENCED') end
if tonumber(H.epoch) > tonumber(A.epoch) or H.retired or not stream() then return reply('NOTHING') end
if H['until'] and (H.gate ~= A.id or NOW < tonumber(H['until'])) then return reply('NOTHING') end

set('by', by('BRING'), 'epoch', A.epoch, 'count', A.count)
if H['until'] then del('gate', 'until') end
if H.hold and NOW >= tonumber(H.hold) then del('hold') end
return settled('OK', tonumber(A.index))
