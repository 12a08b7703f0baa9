-- Reads a page of a ledger.
--
-- KEYS  m, e
-- ARGV  1 exportArgs
-- Returns {clock, v, id, last, born, gone, operations by comma, locks as m has them,
--   the next page's cursor or 0 after the last page, {id, entry, id, entry, …}, how far
--   the ledger is merged and when it was reset, up to when the history may lack its
--   charges, the newest entry's time}. v is empty without a ledger. An entry
--   that exists from the first page to the last is in at least one of them, and may be
--   in several.
--
-- Merging would move a charge from a page to come into a page that was read. So no
-- merging begins before m's pause, a minute after the latest page; the last page ends
-- the pause. How far the ledger is merged shows a merge that was already under way.

local m = redis.call('HMGET', KEYS[1], 'v', 'lid', 's', 'born', 'gone', 'ops', 'locks', 'merged', 'mpos', 'reset', 'unnoted')
if not m[1] and redis.call('EXISTS', KEYS[2]) > 0 or (m[1] == FORMAT or m[1] == HOLDING) and not m[3] then return redis.error_reply('DAMAGED m is missing') end
local last, newest = 0, 0
if m[3] then last, newest = stateAt(m[3], 1), stateAt(m[3], 2) end
local page = redis.call('HSCAN', KEYS[2], args.cursor, 'COUNT', args.count)
if page[1] == '0' then
  redis.call('HDEL', KEYS[1], 'pause')
elseif m[1] then
  redis.call('HSET', KEYS[1], 'pause', string.format('%.0f', math.max(clock(), last) + 60000000))
end
newest = string.format('%.0f', newest)
return {string.format('%.0f', clock()), m[1] or '', m[2] or '', string.format('%.0f', last), m[4] or '0', m[5] or '0', m[6] or '', m[7] or '', page[1], page[2],
  (m[8] or '0') .. ' ' .. (m[9] or '') .. ' ' .. (m[10] or '0'), m[11] or newest, newest}
