-- Closes a budget or one of its limits until an instant, or opens it again.
--
-- KEYS  m, e, then z:<op>, y:<op> and r:<op> for each operation in order of
--       number
-- ARGV  1 lockArgs   2 why, as it is to be kept
-- Returns {status, clock, …}, the status as in charge.lua:
--   0 {…, until, since, why, stood}; until is 0 if there is no lock

local raw = clock()
local unfit = load(raw) or check(raw, 0)
if unfit then return unfit end
if args.unlock and not M.v then return {0, int(raw), '0', '0', '', 0} end

local name, now, later = args.name, moment(raw, args.now)
if not M.v then M.born = now end
M.last = now
local old, stood = lockOn(name), 0
if args.unlock then
  locks[name] = nil
  stood = old and 1 or 0
  M.seq = M.seq + stood
else
  local till = args.till
  if till == 0 then till = later + args.after end
  till = math.min(till, later + args.most)
  local kept = old and not args.force -- a lock that can only be extended
  if old and till <= (kept and old.till or now) then
    stood = 1
  elseif till > now then
    old = {name = name, till = till, since = kept and old.since or now, why = ARGV[2]}
    locks[name] = old
    holds.fenced(name)
    M.seq = M.seq + 1
  end
end
packLocks(now)
save(not M.v)
if not old then return {0, int(raw), '0', '0', '', 0} end
return {0, int(raw), int(old.till), int(old.since), old.why, stood}
