-- Reads a value that is kept beside a job's document.
--
-- KEYS  k, as job_read.lua tells
-- ARGV  1 its key
-- Returns {value}, or nothing in the list

local value = redis.call('HGET', KEYS[1], ARGV[1])
return value and {value} or {}
