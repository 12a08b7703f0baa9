-- Counts refusals and waits in a budget's history, if the budget has a ledger.
--
-- KEYS  as history_read.lua's
-- ARGV  1 refusedArgs
-- Returns {status, clock}, the status as in charge.lua.

local raw = clock()
local unfit = load(raw) or check(raw, 0)
if unfit then return unfit end
if not M.v then return {0, int(raw)} end
local now = moment(raw, args.now)
local missing = history.missing(raw, now, now, {})
if missing then return missing end
M.last = now
for i = 1, #args.rows do
  local row = args.rows[i]
  history.add(math.min(row.hour, now), row.series, row.calls)
end
save(false)
return {0, int(raw)}
