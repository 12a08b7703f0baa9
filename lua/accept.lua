-- Makes the server's clock the last instant that a budget has seen. A budget
-- without a ledger gets an empty one.
--
-- KEYS  m, e
-- Returns the clock, µs

local now = clock()
local state = redis.call('HGET', KEYS[1], 's')
if not state and redis.call('EXISTS', KEYS[1], KEYS[2]) > 0 then
  return redis.error_reply('DAMAGED m lacks the totals of its windows')
end
if not state then
  state = emptyState(0, 0, 0)
  redis.call('HSET', KEYS[1], 'v', FORMAT, 'born', string.format('%.0f', now))
  redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', expiry(math.floor(now / 1000) + 604800000)))
end
if now > stateAt(state, 1) then
  redis.call('HSET', KEYS[1], 's', string.sub(state, 1, HEAD) .. struct.pack('d', now) .. string.sub(state, HEAD + 9))
end
return string.format('%.0f', now)
