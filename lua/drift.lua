-- Records drift: what an upstream counts for a limit and no charge explains. Comes
-- after recover.lua.

-- pseudoOf is how much of a limit's use is under its operations of a prefix that
-- only pseudo-operations have.
local function pseudoOf(l, prefix)
  local sum, op = 0, 0
  for name in string.gmatch(M.ops, '[^,]+') do
    op = op + 1
    if string.find(name, prefix, 1, true) == 1 then
      for i = 1, #l.covered do
        if l.covered[i] == op then sum = sum + row(l.win, op)[l.calls and 'calls' or 'units'] end
      end
    end
  end
  return sum
end

-- pseudoUnits is how many of a window's units are under pseudo-operations.
local function pseudoUnits(w)
  local sum, op = 0, 0
  for name in string.gmatch(M.ops, '[^,]+') do
    op = op + 1
    if string.find(name, '/', 1, true) then sum = sum + row(w, op).units end
  end
  return sum
end

-- drift takes in a report on a limit. It returns what it added, the drift in total,
-- and its score.
local function drift(l, later)
  local now, at, reset = M.last, l.at, l.reset
  if at == 0 then at = now end
  if reset == 0 and l.after > 0 then reset = later + l.after end
  local passed = reset ~= 0 and reset <= now
  if l.meter then
    if passed then return 0, 0, 0 end
    local add = drain(l.meter, l.counted, 0, now - math.min(at, now)) - levelAt(l.meter, now)
    if add <= 0 then return 0, 0, 0 end
    pour(l.meter, add, 0, now)
    history.found(l, 'drift', add)
    M.seq = M.seq + 1
    return add, add, 0
  end
  local w = l.win
  if w.len == 0 then return 0, 0, 0 end
  local cut = cutOf(w)
  local old = parse(redis.call('HGET', keyE, l.id))
  local had = old and old.score > cut and (l.calls and old.asked or old.units) or 0
  local function stands() return 0, had, had > 0 and old.score or 0 end
  local from = w.adv + 1
  if not w.len then from = now >= w.p1 and w.p1 or w.p0 end
  local missing = l.counted - math.max(used(l), l.seen)
  if at < from or passed or missing <= 0 then return stands() end
  local score = now
  if not w.len then
    score = w.adv + 1
  elseif reset ~= 0 then
    score = math.min(now, reset - w.len)
  end
  score = math.max(score, M.gone + 1, horizon(now) + 1)
  if score <= cut then return stands() end
  if had > 0 then score = math.max(score, old.score) end
  record(l, l.id, old, missing + had, score)
  history.found(l, 'drift', missing)
  return missing, missing + had, score
end
