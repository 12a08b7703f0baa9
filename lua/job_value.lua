-- Reads a value kept beside a job's document.
--
-- KEYS  k, see job_read.lua
-- ARGV  1 its key
-- Returns {value}, or an empty list

local value = redis.call('HGET', KEYS[1], ARGV[1])
return value and {value} or {}
