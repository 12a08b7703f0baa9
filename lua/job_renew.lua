-- Keeps a job's overlap mark standing.
--
-- KEYS  s, as in job_begin.lua
-- ARGV  1 holder   2 µs to hold, from now
-- Returns 1, or 0 when the mark is another's or was given up

if redis.call('HGET', KEYS[1], 'holder') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'until', string.format('%.0f', clock() + tonumber(ARGV[2])))
return 1
