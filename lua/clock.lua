-- The only place where scripts read the time. Tests on a server replace this
-- snippet; in production no argument sets the time.
--   clock()     the server's clock, in µs since the Unix epoch
--   expiry(ms)  converts an instant of that clock to the server's own, in ms
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end
local function expiry(ms)
  return ms
end
