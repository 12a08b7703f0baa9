-- Meters made live, and replayed from the ledger in bounded steps. Comes after
-- walk.lua.

-- useMeters makes a batch's meters live: {key, patterns, longest, fill} each. It returns
-- them in the batch's order.
local function useMeters(asked, now)
  for i = #meters, 1, -1 do
    local m = meters[i]
    if now > m.usedat + m.longest + WEEK then
      meterByKey[m.key] = nil
      table.remove(meters, i)
    end
  end
  local batch = {}
  for i = 1, #asked do
    local a = asked[i]
    local m = meterByKey[a.key]
    if not m then
      m = meterOf(a.key, a.patterns)
      m.usedat, m.fill = now, a.fill
      replayAnew(m)
      meters[#meters + 1] = m
      meterByKey[a.key] = m
    end
    m.longest = a.longest
    if now - m.usedat >= HOUR then m.usedat = now end
    batch[i] = m
  end
  return batch
end

-- replay counts further entries into a meter, in the order of scores, open reservations
-- as of now. It returns true when the meter is in use.
local function replay(m, now)
  if m.reached == WHOLE then return true end
  local heap = {}
  local from = math.max(m.reached, M.gone)
  for op = 1, nops do
    if covers(m, op) then
      local sources = {cursor(zkey(op), from, false)}
      if m.calls then sources[2] = cursor(ykey(op), from, true) end
      for j = 1, #sources do
        if step(sources[j]) then heap[#heap + 1] = sources[j] end
      end
      steps = steps + 1
    end
  end
  for i = math.floor(#heap / 2), 1, -1 do sink(heap, i) end
  local last, stepsEnd = nil, math.max(limitSteps, steps + limitSteps / 4)
  while #heap > 0 do
    local c = heap[1]
    if c.score ~= last then
      if last then
        m.reached = last
        if steps >= stepsEnd then return false end
      end
      last = c.score
    end
    steps = steps + 1
    local at = math.min(c.score, now)
    if m.oldest == 0 then
      m.oldest, m.used, m.part, m.at = at, m.fill, 0, at
    elseif at > m.oldest then
      pour(m, m.calls and c.calls or c.units, 0, at)
    end
    if not step(c) then
      heap[1] = heap[#heap]
      heap[#heap] = nil
    end
    if #heap > 1 then sink(heap, 1) end
  end
  m.used, m.part = levelAt(m, now)
  m.at = math.max(m.at, now)
  m.reached = WHOLE
  return true
end
