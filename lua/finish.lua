-- Settles or releases one reservation.
--
-- KEYS  m, e, then z:<op>, y:<op> and r:<op> for each operation in order of
--       number, then h:<day> of the charge
-- ARGV  1 finishArgs
-- Returns {status, clock, …}, the status as in charge.lua:
--   0 {…, result as driver.FinishResult, replayed, finish µs}

local raw = clock()
local unfit = load(raw) or check(raw, 0)
if unfit then return unfit end
if raw > args.deadline then return {0, int(raw), 5, 0, '0'} end
if not M.v then return {0, int(raw), 4, 0, '0'} end

local id, release, units, age = args.id, args.release, args.units, args.age
local now, later = moment(raw, args.now)
local drains = drainsFrom(now, later)
M.last = now
local e = parse(redis.call('HGET', keyE, id))
if e and not held(e) then e = nil end
local result, replayed, at, fresh = 0, 0, e and e.score or 0, false
if not e then
  result = 4
elseif e.state == 'p' then
  result = 3
elseif e.state == 's' then
  result = 3
  if not release and e.units == units then result, replayed = 1, 1 end
elseif e.state == 'r' then
  result = 3
  if release then result, replayed = 2, 1 end
elseif release and now - age >= e.score then
  result = 4
else
  local overflow = false
  if not release then
    for i = 1, #wins do
      if star(wins[i]).units - e.units + units > MAXSUM then overflow = true end
    end
    for i = 1, #meters do
      local m = meters[i]
      if not m.calls and units > e.units and covers(m, e.op) and levelAt(m, now) + units - e.units > MAXSUM then overflow = true end
    end
  end
  if overflow then
    result = 6
  else
    local unknown = history.missing(raw, e.start, e.start, {})
    if unknown then return unknown end
    preload({e.op})
    local key, member, zero = place(e, id)
    redis.call('ZREM', key, member)
    addAll(e.op, e.score, e.units, callsOf(e), zero, -1, e.state)
    e.score = math.min(math.max(math.max(now, later) - age, e.start, earliest()), e.score)
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
    holds.finish(e, release and 0 or units, release)
    history.ended(e, release and -e.units or units - e.units, release and -1 or 0)
    e.units, e.state = release and 0 or units, release and 'r' or 's'
    key, member, zero = place(e, id)
    redis.call('ZADD', key, int(e.score), member)
    fresh = redis.call('ZCARD', key) == 1
    addAll(e.op, e.score, e.units, callsOf(e), zero, 1, e.state)
    redis.call('HSET', keyE, id, pack(e))
    M.chg, M.seq = M.chg + 1, M.seq + 1
    result, at = release and 2 or 1, e.score
  end
end
save(fresh)
return {0, int(raw), result, replayed, int(at)}
