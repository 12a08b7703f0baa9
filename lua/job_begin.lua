-- Takes a job's overlap mark for a pass and notes its tick.
--
-- KEYS  s, a hash: next, tick, manual, last, holder, until
-- ARGV  1 holder   2 tick µs   3 1 if manual, else 0   4 µs to hold
-- Returns {result as budget.BeginResult, next, tick, manual, last, holder,
--   until, 1 if held}, the state as found; absent fields are empty; or
--   {4, the clock} for a tick too far past it

local f = redis.call('HMGET', KEYS[1], 'next', 'tick', 'manual', 'last', 'holder', 'until')
local now = clock()
local held = f[5] and f[5] ~= '' and tonumber(f[6] or 0) > now or false
local field, newest = 'tick', tonumber(f[2] or 0)
if ARGV[3] == '1' then field, newest = 'manual', tonumber(f[3] or 0) end
local latest = now + 60000000
if tonumber(ARGV[2]) > latest then return {4, string.format('%.0f', now)} end
if newest > latest then newest = 0 end -- of a clock that was wrong
local result = 1
if held and f[5] == ARGV[1] then
  result = 1 -- its own mark: the answer was lost, and it asks again
elseif held then
  result = 2
elseif tonumber(ARGV[2]) <= newest then
  result = 3
else
  redis.call('HSET', KEYS[1], 'holder', ARGV[1], 'until', string.format('%.0f', now + tonumber(ARGV[4])), field, ARGV[2])
end
return {result, f[1] or '', f[2] or '', f[3] or '', f[4] or '', f[5] or '', f[6] or '', held and 1 or 0}
