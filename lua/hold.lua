-- Renews the holds of a pass, or ends one.
--
-- KEYS  m, e, then z:<op>, y:<op> and r:<op> for each operation in order of
--       number
-- ARGV  1 holdArgs
-- Returns {status, clock, …}, the status as in charge.lua:
--   0 {…, a line for each hold that was renewed, or that was ended, see holds.lua}

local raw = clock()
local unfit = load(raw) or check(raw, 0)
if unfit then return unfit end

local now, later = moment(raw, args.now)
M.last = now
holds.pass()
local lines = {}
for _, h in ipairs(holds.list) do
  if h.fence == args.fence and (args.lease > 0 or h.region == args.region) then
    if args.lease > 0 then h.till = math.max(h.till, math.max(now, later) + args.lease) end
    lines[#lines + 1] = holds.lineOf(h)
  end
end
if #lines > 0 then
  M.chg = M.chg + 1 -- walks begin anew
  if args.lease == 0 then
    holds.drop(function(h) return h.fence == args.fence and h.region == args.region end)
  end
  save(false)
end
return {0, int(raw), lines}
