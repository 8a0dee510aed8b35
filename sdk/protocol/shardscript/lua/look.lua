-- LOOK: all fields of shard 0. Writes `by` again, so that WAIT covers what it saw.
-- ARGV[1]: id (optional)
if not FENCED then return reply('UNFENCED') end
set('by', H.by or by('LOOK'))
return reply('OK')
