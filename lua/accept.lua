-- Makes the server's clock the last instant that a budget has seen. A budget
-- without a ledger gets an empty one.
--
-- KEYS  m, e, x
-- Returns the clock, µs

local now = clock()
local last = redis.call('HGET', KEYS[1], 'last')
if not last and redis.call('EXISTS', KEYS[2], KEYS[3]) > 0 then
  return redis.error_reply('DAMAGED m is missing')
end
if not last then
  redis.call('HSET', KEYS[1], 'v', '1', 'born', string.format('%.0f', now))
  redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', expiry(math.floor(now / 1000) + 604800000)))
end
if now > tonumber(last or 0) then
  redis.call('HSET', KEYS[1], 'last', string.format('%.0f', now))
end
return string.format('%.0f', now)
