-- SURVEY: what the sweep sees of a shard. Changes nothing.
-- ARGV[1]: {}
closed(tonumber(A.index or '0')) -- tells which barrier there is
return reply('OK', {error = OTHER_TYPE and 'the key is no stream' or nil})
