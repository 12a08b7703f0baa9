-- Reads the records of what shares still need, or replaces them if they are still as they were
-- read.
--
-- KEYS  m, e, then z:<op>, y:<op> and r:<op> for each operation in order of
--       number
-- ARGV  1 planArgs
-- Returns {status, clock, …}, the status as in charge.lua:
--   0 {…, now, the records as m has them, whether they were replaced}

local raw = clock()
local unfit = load(raw) or check(raw, 0)
if unfit then return unfit end

local now = moment(raw, args.now)
if not args.new or args.old ~= M.plans then return {0, int(raw), int(now), M.plans, 0} end
local born = not M.v
if born then M.born = now end
M.last, M.plans = now, args.new
save(born)
return {0, int(raw), int(now), M.plans, 1}
