-- Resets a budget on purpose: begins an empty ledger, for which earlier charges do not
-- count as lost. It keeps the id, so the hosts' marks stay valid.
--
-- KEYS  m, e, x, then all that there may be
-- Returns the clock, µs

local had = redis.call('HMGET', KEYS[1], 'last', 'lid', 'seq', 'hosts', 'tables')
local now = math.max(clock(), tonumber(had[1] or 0))
for from = 1, #KEYS, 1000 do redis.call('DEL', unpack(KEYS, from, math.min(#KEYS, from + 999))) end
local at = string.format('%.0f', now)
redis.call('HSET', KEYS[1], 'v', '1', 'born', at, 'last', at, 'newest', at, 'gone', at, 'reset', at, 'unnoted', '0')
if had[2] then redis.call('HSET', KEYS[1], 'lid', had[2], 'seq', had[3] or '0', 'hosts', had[4] or '', 'tables', had[5] or '') end
redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', expiry(math.floor(now / 1000) + 604800000)))
return at
