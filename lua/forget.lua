-- Resets a budget on purpose: begins an empty ledger, for which earlier charges do not
-- count as lost. It keeps the id, so the hosts' marks stay valid.
--
-- KEYS  m, e, then all that there may be
-- Returns the clock, µs

local had = redis.call('HMGET', KEYS[1], 's', 'lid', 'hosts', 'tables')
local state = had[1] or emptyState(0, 0, 0)
local now = math.max(clock(), stateAt(state, 1))
for from = 1, #KEYS, 1000 do redis.call('DEL', unpack(KEYS, from, math.min(#KEYS, from + 999))) end
local at = string.format('%.0f', now)
redis.call('HSET', KEYS[1], 'v', FORMAT, 'born', at, 's', emptyState(now, now, stateAt(state, 5)), 'gone', at, 'reset', at, 'unnoted', '0')
if had[2] then redis.call('HSET', KEYS[1], 'lid', had[2], 'hosts', had[3] or '', 'tables', had[4] or '') end
redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', expiry(math.floor(now / 1000) + 604800000)))
return at
