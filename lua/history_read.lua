-- Reads days of a budget's history.
--
-- KEYS  m, e, x, then z:<op>, y:<op> and r:<op> for each operation in order of
--       number, then h:<day> for each of args.days
-- ARGV  1 ledgerArgs
-- Returns {status, clock, …}, the status as in charge.lua:
--   0 {…, now, the newest entry's time, the ledger's id, for each day {field, text, …}}

local raw = clock()
local unfit = load(raw) or check(raw, 0)
if unfit then return unfit end
local days = {}
for i = 1, #KEYS - history.own do
  local cursor, seen, list = '0', {}, {}
  repeat
    local page = redis.call('HSCAN', KEYS[history.own + i], cursor, 'COUNT', 1000)
    cursor = page[1]
    for j = 1, #page[2], 2 do
      local name = page[2][j]
      if not seen[name] and name ~= '#' then
        seen[name], list[#list + 1], list[#list + 2] = true, name, page[2][j + 1]
      end
    end
  until cursor == '0'
  days[i] = list
end
return {0, int(raw), int((moment(raw, args.now))), int(M.newest), M.lid, days}
