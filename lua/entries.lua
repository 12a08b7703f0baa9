-- Reads a page of the entries of some zsets, without writing.
--
-- KEYS  m, e, then z:<op>, y:<op> and r:<op> for each operation in order of
--       number
-- ARGV  1 entriesArgs
-- Returns {status, clock, …}, the status as in charge.lua:
--   0 {…, now, the ledger's id, born, gone, what counts the moves and ends of entries so
--     far, {id, entry, id, entry, …}, where the page ended: empty at the end}

local raw = clock()
local unfit = load(raw) or check(raw, 0)
if unfit then return unfit end
if not M.v then return {0, int(raw), int(raw), '', '0', '0', '0', {}, ''} end

limitSteps = args.steps
local at, from = string.match(args.came, '^(%d+) (-?%d+)$')
at, from = tonumber(at or 0), tonumber(from)
local out, came = {}, ''
for i = 1, #args.zsets do
  local place = args.zsets[i]
  if place >= at then
    local list, n, reached, done = page(zset(place), place == at and from or args.above, WHOLE, true)
    for first = 1, n, 1000 do
      local to, ids = math.min(n, first + 999), {}
      for j = first, to do ids[#ids + 1] = idOf(list[2 * j - 1]) end
      local found = redis.call('HMGET', keyE, unpack(ids))
      for j = 1, #ids do out[#out + 1], out[#out + 2] = ids[j], found[j] or '' end
    end
    if not done then
      came = place .. ' ' .. int(reached)
      break
    end
  end
end
return {0, int(raw), int((moment(raw, args.now))), M.lid, int(M.born), int(M.gone), int(M.chg), out, came}
