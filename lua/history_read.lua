-- Reads a page of days of a budget's history.
--
-- KEYS  m, e, then z:<op>, y:<op> and r:<op> for each operation in order of
--       number, then h:<day> and l:<day> for each of args.days
-- ARGV  1 historyReadArgs
-- Returns {status, clock, …}, the status as in charge.lua:
--   0 {…, now, the newest entry's time, the ledger's id, {field, text, …} for each day
--     that it came to, the cursor by which the next page continues with the last of
--     these, or 0 at that day's end}. A field may be in several pages; the last has its
--     present text.
--
-- A run ends once it has read args.most fields, however many days or series there are.

local raw = clock()
local unfit = load(raw) or check(raw, 0)
if unfit then return unfit end
local days, cursor, room = {}, args.cursor, args.most
for i = 1, #(args.days or {}) do
  local list = {}
  if cursor == '0' then history.read(i) end
  repeat
    local page = redis.call('HSCAN', KEYS[history.own + 2 * i - 1], cursor, 'COUNT', int(math.max(room, 1)))
    cursor, room = page[1], room - math.max(#page[2] / 2, 1)
    for j = 1, #page[2], 2 do
      if page[2][j] ~= '#' then list[#list + 1], list[#list + 2] = page[2][j], page[2][j + 1] end
    end
  until cursor == '0' or room <= 0
  days[i] = list
  if room <= 0 then break end
end
return {0, int(raw), int((moment(raw, args.now))), int(M.newest), M.lid, days, cursor}
