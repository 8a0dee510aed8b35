#!lua flags=allow-oom
-- Common head of the scripts on coordinator keys: server time and identity. Rule C2: each
-- script reads both before anything else.
local T = redis.call('TIME')
local NOW = tonumber(T[1]) * 1000 + math.floor(tonumber(T[2]) / 1000)
local function int(n) return string.format('%.0f', n) end

-- run_id is new with every start of the server, master_replid with every promotion.
local IDENTITY = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
  .. ':' .. string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)')

