-- Settles or releases reservations, in order.
--
-- KEYS  m, e, then z:<op>, y:<op> and r:<op> for each operation in order of
--       number, then h:<day> of the charges
-- ARGV  1 finishArgs
-- Returns {status, clock, …}, the status as in charge.lua:
--   0 {…, result as driver.FinishResult, replayed, finish µs, for each}

local raw = clock()
local unfit = load(raw) or check(raw, 0)
if unfit then return unfit end
local asked, answer, awaited = args.items, {0, int(raw)}, false
for i = 1, #asked do awaited = awaited or raw <= asked[i].deadline end
-- say adds the answer to one.
local function say(result, replayed, at)
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3] = result, replayed, int(at)
end
if not awaited or not M.v then
  for i = 1, #asked do say(raw > asked[i].deadline and 5 or 4, 0, 0) end
  return answer
end

local now, later = moment(raw, args.now)
local drains = drainsFrom(now, later)
M.last = now
local ids, entries, ops = {}, {}, {} -- entries by id, those that are held
for i = 1, #asked do ids[i] = asked[i].id end
local found = redis.call('HMGET', keyE, unpack(ids))
for i = 1, #ids do
  local e = not entries[ids[i]] and parse(found[i])
  if e and held(e) then
    entries[ids[i]], ops[#ops + 1] = e, e.op
    local unknown = e.state == 'o' and history.missing(raw, e.start, e.start, {})
    if unknown then return unknown end -- nothing is written yet
  end
end
preload(ops)

-- overflows reports whether a sum would be too large with an entry settled at so many units.
local function overflows(e, units)
  for i = 1, #wins do
    if star(wins[i]).units - e.units + units > MAXSUM then return true end
  end
  for i = 1, #meters do
    local m = meters[i]
    if not m.calls and units > e.units and covers(m, e.op) and levelAt(m, now) + units - e.units > MAXSUM then return true end
  end
  return false
end

-- pourBack changes the buckets that count an entry.
local function pourBack(e, units, release)
  for i = 1, #meters do
    local m = meters[i]
    local change = release and -e.units or units - e.units
    if m.calls then change = release and -1 or 0 end
    if not covers(m, e.op) then -- nothing changes
    elseif m.reached == WHOLE then
      pour(m, change, now - e.start, now, drains)
    elseif e.score <= m.reached then -- else the replay has not come to it, and does
      replayAnew(m)
    end
  end
end

local written, fresh = {}, false -- entries by id, in pairs; whether a zset is new

-- finish ends an open reservation.
local function finish(id, e, units, release, age)
  local key, member, zero = place(e, id)
  local old, oldKey, oldMember = e.score, key, member
  addAll(e.op, e.score, e.units, callsOf(e), zero, -1, e.state)
  e.score = math.min(math.max(math.max(now, later) - age, e.start, earliest()), e.score)
  pourBack(e, units, release)
  holds.finish(e, units, release)
  history.ended(e, units - e.units, release and -1 or 0)
  e.units, e.state = units, release and 'r' or 's'
  key, member, zero = place(e, id)
  if member ~= oldMember or key ~= oldKey then redis.call('ZREM', oldKey, oldMember) end
  if member ~= oldMember or key ~= oldKey or e.score ~= old then
    redis.call('ZADD', key, int(e.score), member)
    fresh = fresh or redis.call('ZCARD', key) == 1
  end
  addAll(e.op, e.score, e.units, callsOf(e), zero, 1, e.state)
  written[#written + 1], written[#written + 2] = id, pack(e)
  M.chg, M.seq = M.chg + 1, M.seq + 1
end

for i = 1, #asked do
  local f = asked[i]
  local e = entries[f.id]
  if raw > f.deadline then
    say(5, 0, 0)
  elseif not e then
    say(4, 0, 0)
  elseif e.state == 's' and not f.release and e.units == f.units then
    say(1, 1, e.score)
  elseif e.state == 'r' and f.release then
    say(2, 1, e.score)
  elseif e.state ~= 'o' then
    say(3, 0, e.score)
  elseif f.release and now - f.age >= e.score then
    say(4, 0, e.score)
  elseif not f.release and overflows(e, f.units) then
    say(6, 0, e.score)
  else
    finish(f.id, e, f.release and 0 or f.units, f.release, f.age)
    say(f.release and 2 or 1, 0, e.score)
  end
end
if #written > 0 then redis.call('HSET', keyE, unpack(written)) end
save(fresh)
return answer
