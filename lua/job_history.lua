-- Reads a page of a job's history, the newest first.
--
-- KEYS  h, r, as job_read.lua tells
-- ARGV  1 least at, µs   2 most at, or ( and what it is below, or +inf   3 how many
--       of the first to pass over   4 how many to read, at most 1,000
-- Returns {{at, id, text or nothing where r lacks it}, …}

local list = redis.call('ZRANGE', KEYS[1], ARGV[2], ARGV[1], 'BYSCORE', 'REV', 'LIMIT', ARGV[3], ARGV[4], 'WITHSCORES')
local ids, records = {}, {}
for i = 1, #list / 2 do ids[i] = list[2 * i - 1] end
local texts = #ids > 0 and redis.call('HMGET', KEYS[2], unpack(ids)) or {}
for i = 1, #ids do records[i] = {string.format('%.0f', tonumber(list[2 * i])), ids[i], texts[i]} end
return records
