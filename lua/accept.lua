-- Makes the server's clock the last instant a budget has seen.
--
-- KEYS  m
-- Returns the clock, µs. A budget without a ledger has nothing to accept.

local raw = clock()
local last = redis.call('HGET', KEYS[1], 'last')
if last and raw > tonumber(last) then
  redis.call('HSET', KEYS[1], 'last', string.format('%.0f', raw))
end
return string.format('%.0f', raw)
