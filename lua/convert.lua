-- Converts a ledger of an older format. Both kept the levels of buckets in the text meters, and
-- format 1 its totals in the key x, as text.
--
-- KEYS  m, e, then z:<op>, y:<op> and r:<op> for all operations that there may be, and x
-- ARGV  1 ledgerArgs
-- Returns the format that the ledger has now, empty without a ledger

local keyX = KEYS[#KEYS]
local old = redis.call('HMGET', keyM, 'v', 'wins', 'last', 'newest', 'n', 'nops', 'seq', 'nid', 'unnoted')
if old[1] ~= '1' and old[1] ~= '2' then return old[1] or '' end
M.meters = redis.call('HGET', keyM, 'meters') or ''
for key, patterns, used, part, at, usedat, longest, fill, oldest, reached in
  string.gmatch(M.meters, '([^%s;]+) (%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (-?%d+)') do
  local m = meterOf(key, patterns)
  m.used, m.part, m.at = tonumber(used), tonumber(part), tonumber(at)
  m.usedat, m.longest, m.fill = tonumber(usedat), tonumber(longest), tonumber(fill)
  m.oldest, m.reached = tonumber(oldest), tonumber(reached)
  meters[#meters + 1] = m
end
local _, all = string.gsub(M.meters, '[^;]+', '')
if all ~= #meters then return redis.error_reply('DAMAGED m has buckets that cannot be read') end
if old[1] == '2' then
  local state = redis.call('HGET', keyM, 's') or ''
  if #state >= HEAD + 72 then
    local nw, nc = struct.unpack('dd', state, HEAD + 49)
    local to, levels = HEAD + 8 * (9 + 7 * nw + 3 * nc), {}
    for i = 1, #meters do levels[i] = struct.pack('ddd', meters[i].used, meters[i].part, meters[i].at) end
    state = table.concat({string.rep('-', HEAD), string.sub(state, HEAD + 1, HEAD + 72), struct.pack('d', #meters),
      string.sub(state, HEAD + 73, to), table.concat(levels), string.sub(state, to + 1)})
  end
  redis.call('HSET', keyM, 'v', FORMAT, 's', state, 'meters', packMeters())
  return FORMAT
end
local texts, numbers = redis.call('HMGET', keyM, unpack(TEXTS)), redis.call('HMGET', keyM, unpack(NUMBERS))
for i = 1, #TEXTS do M[TEXTS[i]] = texts[i] or '' end
for i = 1, #NUMBERS do M[NUMBERS[i]] = tonumber(numbers[i] or 0) end
M.last, M.newest, M.n = tonumber(old[3] or 0), tonumber(old[4] or 0), tonumber(old[5] or 0)
M.nops, M.seq, M.nid = tonumber(old[6] or 0), tonumber(old[7] or 0), old[8] or ''
M.unnoted = tonumber(old[9] or M.newest)
saved.unnoted = old[9] and M.unnoted or nil
nops = M.nops
loadLocks()
for op = 1, nops do totals[op] = {zs = 0, ys = 0, mask = 0, fresh = redis.call('ZCARD', zkey(op)), ended = 0} end
local byNumber = {}
for no, key, longest, used, floor, adv in string.gmatch(old[2] or '', '(%d+) (%S+) (%d+) (%d+) (-?%d+) (-?%d+)') do
  local w = {key = key, kind = string.sub(key, 1, 1), longest = tonumber(longest), used = tonumber(used), floor = tonumber(floor), adv = tonumber(adv)}
  shape(w)
  wins[#wins + 1], byNumber[no] = w, w
  w.star = {units = 0, calls = 0, due = 0, bunits = 0, bcalls = 0, period = 0}
end
-- A window that lacks a total is counted anew.
local complete = {}
local x, cursor = {}, '0'
repeat
  local page = redis.call('HSCAN', keyX, cursor, 'COUNT', '1000')
  cursor = page[1]
  for i = 1, #page[2] do x[#x + 1] = page[2][i] end
until cursor == '0'
for i = 1, #x, 2 do
  local no, op = string.match(x[i], '^(%d+)|(.*)$')
  local w, v = byNumber[no], {}
  for number in string.gmatch(x[i + 1], '%-?%d+') do v[#v + 1] = tonumber(number) end
  if w and op == '*' and #v == 6 then
    w.star = {units = v[1], calls = v[2], due = v[3], period = v[4], bunits = v[5], bcalls = v[6]}
    complete[w] = true
  elseif w and totals[tonumber(op)] and #v == 9 then
    totals[tonumber(op)][w] = {units = v[1], calls = v[2], cut = v[3], built = v[4], zcut = v[5], zbuilt = v[6], due = v[7], bunits = v[8], bcalls = v[9]}
  end
end
for i = #wins, 1, -1 do
  if not complete[wins[i]] then table.remove(wins, i) end
end
redis.call('HDEL', keyM, 'last', 'newest', 'n', 'nops', 'seq', 'nid')
redis.call('DEL', keyX)
M.covers, M.v = '', FORMAT
save(true)
return FORMAT
