-- Reads a page of a job's history, the newest first.
--
-- KEYS  h, r, see job_read.lua
-- ARGV  1 historyArgs
-- Returns {{at, id, text or nothing if r lacks it}, …}

local list = redis.call('ZRANGE', KEYS[1], args.to, args.from, 'BYSCORE', 'REV', 'LIMIT', args.over, args.most, 'WITHSCORES')
local ids, records = {}, {}
for i = 1, #list / 2 do ids[i] = list[2 * i - 1] end
local texts = #ids > 0 and redis.call('HMGET', KEYS[2], unpack(ids)) or {}
for i = 1, #ids do records[i] = {string.format('%.0f', tonumber(list[2 * i])), ids[i], texts[i]} end
return records
