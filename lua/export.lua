-- Reads a page of a ledger.
--
-- KEYS  m, e
-- ARGV  1 exportArgs
-- Returns {clock, v, id, last, born, gone, operations by comma, locks as m has them,
--   the next page's cursor: 0 when this is the last, {id, entry, id, entry, …}}; without
--   a ledger v is empty. Each entry that is there from the first page to the last is in
--   one of them at least, and may be in more.

local m = redis.call('HMGET', KEYS[1], 'v', 'lid', 'last', 'born', 'gone', 'ops', 'locks')
if not m[1] and redis.call('EXISTS', KEYS[2]) > 0 then return redis.error_reply('DAMAGED m is missing') end
local page = redis.call('HSCAN', KEYS[2], args.cursor, 'COUNT', args.count)
return {string.format('%.0f', clock()), m[1] or '', m[2] or '', m[3] or '0', m[4] or '0', m[5] or '0', m[6] or '', m[7] or '', page[1], page[2]}
