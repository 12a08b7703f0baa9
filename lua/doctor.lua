-- Tries every command that the other scripts run, on its own keys. It removes them,
-- or lets them expire within a minute.
--
-- KEYS  three keys that do not exist
-- Returns the clock in µs, then what failed: command, error, command, error …

local answer = {string.format('%.0f', clock())}
local hash, zset, text = KEYS[1], KEYS[2], KEYS[3]
local soon = string.format('%.0f', expiry(math.floor(clock() / 1000) + 60000))
local function try(...)
  local result = redis.pcall(...)
  if type(result) == 'table' and result.err then
    answer[#answer + 1] = string.lower((...))
    answer[#answer + 1] = result.err
  end
end
try('EXISTS', hash)
try('HSET', hash, 'f', '1')
try('HSETNX', hash, 'f', '1')
try('HGET', hash, 'f')
try('HMGET', hash, 'f')
try('HLEN', hash)
try('HSCAN', hash, '0')
try('HDEL', hash, 'f')
try('APPEND', text, '1')
try('GET', text)
try('ZADD', zset, '1', 'm')
try('ZCARD', zset)
try('ZCOUNT', zset, '-inf', '+inf')
try('ZRANGE', zset, '0', '-1')
try('ZRANGEBYSCORE', zset, '-inf', '+inf')
try('ZREM', zset, 'n')
try('PEXPIREAT', hash, soon)
redis.pcall('PEXPIREAT', zset, soon)
redis.pcall('PEXPIREAT', text, soon)
try('ZREMRANGEBYRANK', zset, '0', '-1')
try('DEL', hash, zset, text)
return answer
