-- Reads what is kept of a job.
--
-- KEYS  s, as in job_begin.lua
-- Returns {next, tick, manual, last, holder, until, 1 if held}

local f = redis.call('HMGET', KEYS[1], 'next', 'tick', 'manual', 'last', 'holder', 'until')
local held = f[5] and f[5] ~= '' and tonumber(f[6] or 0) > clock()
return {f[1] or '', f[2] or '', f[3] or '', f[4] or '', f[5] or '', f[6] or '', held and 1 or 0}
