-- What charge.lua does with windows: their totals brought up to now, in bounded
-- steps, and windows begun and dropped. Comes after ledger.lua, which tells the
-- layout.

-- gather adds up the entries of a zset with from < score <= to, at most as many as
-- there are steps left, but whole groups of one score. It returns units, calls
-- and the score up to which it came: to when it came to the end.
local function gather(key, zero, from, to, up)
  local room = limitSteps - steps
  if room <= 0 then return 0, 0, from, false end
  local top = '+inf'
  if not up then top = int(to) end
  local list = redis.call('ZRANGEBYSCORE', key, '(' .. int(from), top, 'WITHSCORES', 'LIMIT', '0', int(room + 1))
  local n = #list / 2
  local last = n
  if n > room then
    local edge = list[2 * n]
    while last > 0 and list[2 * last] == edge do last = last - 1 end
    if last == 0 then -- one group larger than the steps left: whole, or never
      list = redis.call('ZRANGEBYSCORE', key, edge, edge, 'WITHSCORES')
      n = #list / 2
      last = n
    end
  end
  local units, calls = 0, 0
  for i = 1, last do
    calls = calls + 1
    if not zero then units = units + unitsOf(list[2 * i - 1]) end
  end
  steps = steps + last
  if n <= room and last == n then return units, calls, to, true end
  return units, calls, tonumber(list[2 * last]), false
end

-- first is the smallest score above cut, or nil.
local function first(key, cut)
  local list = redis.call('ZRANGEBYSCORE', key, '(' .. int(cut), '+inf', 'WITHSCORES', 'LIMIT', '0', '1')
  return list[2] and tonumber(list[2])
end

-- dueOf is when the first entry of a row leaves its rolling window.
local function dueOf(w, op, r)
  local z, y = first(zkey(op), r.cut), first(ykey(op), r.zcut)
  local score = z
  if y and (not z or y < z) then score = y end
  return score and score + w.len or NEVER
end

-- advance takes what has left the window off one row. True when done.
local function advance(w, op, target)
  local r, field = row(w, op)
  local s, sfield = star(w)
  for _, zero in ipairs({false, true}) do
    local key = zero and ykey(op) or zkey(op)
    local cut = zero and r.zcut or r.cut
    if cut < target then
      local units, calls, reached, done = gather(key, zero, cut, target, false)
      r.units, r.calls = r.units - units, r.calls - calls
      s.units, s.calls = s.units - units, s.calls - calls
      r.bunits, r.bcalls = r.bunits + units, r.bcalls + calls
      s.bunits, s.bcalls = s.bunits + units, s.bcalls + calls
      if zero then r.zcut = reached else r.cut = reached end
      touch(field)
      touch(sfield)
      if not done then return false end
    end
  end
  r.due = dueOf(w, op, r)
  return true
end

-- build counts into one row what the ledger holds above its cut. True when done.
local function build(w, op)
  local r, field = row(w, op)
  local s, sfield = star(w)
  for _, zero in ipairs({false, true}) do
    local key = zero and ykey(op) or zkey(op)
    local built = zero and r.zbuilt or r.built
    if built < WHOLE then
      local units, calls, reached, done = gather(key, zero, built, WHOLE, true)
      r.units, r.calls = r.units + units, r.calls + calls
      s.units, s.calls = s.units + units, s.calls + calls
      if zero then r.zbuilt = reached else r.built = reached end
      touch(field)
      touch(sfield)
      if not done then return false end
    end
  end
  if w.len then r.due = dueOf(w, op, r) end
  return true
end

-- loadRows fetches all rows of a window.
local function loadRows(w)
  local fields = {w.no .. '|*'}
  for op = 1, nops do fields[op + 1] = w.no .. '|' .. op end
  preload(fields)
end

-- restart empties a window's rows; they are built from cut upwards.
local function restart(w, cut, period)
  loadRows(w)
  for op = 1, nops do
    rows[w.no .. '|' .. op] = {units = 0, calls = 0, cut = cut, built = cut, zcut = cut, zbuilt = cut, due = NEVER, bunits = 0, bcalls = 0}
    touch(w.no .. '|' .. op)
  end
  rows[w.no .. '|*'] = {units = 0, calls = 0, due = 0, period = period, bunits = 0, bcalls = 0}
  touch(w.no .. '|*')
end

-- bring makes a window's totals those of now. False when steps ran out: what
-- was done stays, and goes on in the next run.
local function bring(w, now)
  local s, sfield = star(w)
  if w.len then
    local target = now - w.len
    if s.due <= now then
      loadRows(w)
      local due = NEVER
      for op = 1, nops do
        local r = row(w, op)
        if r.built < WHOLE or r.zbuilt < WHOLE then
          if not build(w, op) then return false end
        end
        if r.due <= now and not advance(w, op, target) then return false end
        due = math.min(due, r.due)
      end
      s.due = due
      touch(sfield)
    end
    w.adv = target
    return true
  end
  local start = w.p0
  if now >= w.p1 then start = w.p1 end
  if s.period ~= start then
    restart(w, math.max(start - 1, w.floor), start)
    M.chg = M.chg + 1 -- what walks had taken in counts no more
    s = star(w)
  end
  w.adv = start - 1
  if s.due ~= NEVER then -- a calendar's due only says that it is not built yet
    loadRows(w)
    for op = 1, nops do
      if not build(w, op) then return false end
    end
    s.due = NEVER
    touch(sfield)
  end
  return true
end

-- use makes the windows of a batch live: {key, longest, p0, p1, p2} each. It
-- returns the live windows in the batch's order.
local function use(asked, now)
  local h = horizon(now)
  for i = #wins, 1, -1 do
    local w = wins[i]
    if now > w.used + w.longest + WEEK then
      gone[#gone + 1] = w.no .. '|*'
      for op = 1, nops do gone[#gone + 1] = w.no .. '|' .. op end
      winByKey[w.key] = nil
      table.remove(wins, i)
    end
  end
  if #gone > 0 then h = horizon(now) end
  h = math.max(h, M.gone)
  local batch, no = {}, 0
  for i = 1, #wins do no = math.max(no, wins[i].no) end
  for i = 1, #asked do
    local a = asked[i]
    local w = winByKey[a.key]
    if not w then
      no = no + 1
      w = {no = no, key = a.key, kind = string.sub(a.key, 1, 1), used = now, floor = h, adv = h}
      if w.kind == 'r' then w.len = tonumber(string.sub(a.key, 3)) end
      wins[#wins + 1] = w
      winByKey[a.key] = w
      w.fresh = true
    end
    w.longest, w.p0, w.p1, w.p2 = a.longest, a.p0, a.p1, a.p2
    if now - w.used >= HOUR then w.used = now end
    if not w.len then w.start = now >= w.p1 and w.p1 or w.p0 end
    batch[i] = w
  end
  for i = 1, #batch do
    local w = batch[i]
    if w.fresh then
      w.fresh = nil
      if w.len then
        restart(w, math.max(now - w.len, w.floor), 0)
      else
        restart(w, math.max(w.start - 1, w.floor), w.start)
      end
    end
    if not w.len then w.adv = w.start - 1 end
  end
  return batch
end
