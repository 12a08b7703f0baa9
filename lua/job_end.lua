-- Gives a job's overlap mark up and records the pass.
--
-- KEYS  s, as in job_begin.lua
-- ARGV  1 holder   2 next region   3 record
-- Returns 1, or 0 with nothing recorded when the mark is another's

local f = redis.call('HMGET', KEYS[1], 'holder', 'next', 'last')
if f[1] == '' and f[2] == ARGV[2] and f[3] == ARGV[3] then
  return 1 -- recorded already: the answer was lost, and it is told again
end
if f[1] ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'holder', '', 'until', '0', 'next', ARGV[2], 'last', ARGV[3])
return 1
