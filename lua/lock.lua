-- Closes a budget or one of its limits until an instant, or opens it again.
--
-- KEYS  m, e, x, then z:<op>, y:<op> and r:<op> for each operation in order of
--       number
-- ARGV  1 sig of the operations, as the caller knows   2 caller's clock, µs
--       3 l or u (lock, unlock)   4 the limit, or * for the budget
--       5 until, µs, or 0   6 for how long past the later clock, µs, where until
--       is 0   7 at most how long   8 why   9 1 to take the place of a lock that
--       stands
-- Returns {status, clock, …}, the status as in charge.lua:
--   0 {…, until, since, why, stood}; until is 0 where no lock stands

local raw = clock()
local problem = load()
if problem then return {6, int(raw), M.v} end
if ARGV[1] ~= M.sig then return {2, int(raw), M.ops} end
if not M.v and redis.call('EXISTS', keyE, keyX) > 0 then return {5, int(raw), 'm is missing'} end
local caller, name = tonumber(ARGV[2]), ARGV[4]
if glitch(raw, caller) then return {4, int(raw)} end
local opening = ARGV[3] == 'u'
if opening and not M.v then return {0, int(raw), '0', '0', '', 0} end
-- A key of another type must not show in the midst of writing.
problem = counted(0)
if problem then return {5, int(raw), problem} end

local now, later = moment(raw, caller)
if not M.v then M.born = now end
M.last = now
local old, stood = lockOn(name), 0
if opening then
  locks[name] = nil
  stood = old and 1 or 0
  M.seq = M.seq + stood
else
  local till = tonumber(ARGV[5])
  if till == 0 then till = later + tonumber(ARGV[6]) end
  till = math.min(till, later + tonumber(ARGV[7]))
  if old and (ARGV[9] ~= '1' or till <= now) then
    stood = 1
  elseif till > now then
    old = {name = name, till = till, since = now, why = ARGV[8]}
    locks[name] = old
    M.seq = M.seq + 1
  end
end
packLocks(now)
save(not M.v)
if not old then return {0, int(raw), '0', '0', '', 0} end
return {0, int(raw), int(old.till), int(old.since), old.why, stood}
