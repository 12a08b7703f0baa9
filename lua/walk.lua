-- The walk of a refusal: up to which score entries must return before an item fits.

-- cursor reads a zset upwards from above a score, in growing pieces, the first of which
-- usually holds all entries; with open, only open reservations.
local function cursor(key, from, zero, open)
  return {key = key, zero = zero, open = open, from = int(from), size = 16, at = 0, list = {}}
end

-- step moves a cursor to its next entry. It returns false at the end.
local function step(c)
  repeat
    c.at = c.at + 2
    if c.at > #c.list then
      if #c.list == 0 then
        c.list = redis.call('ZRANGEBYSCORE', c.key, '(' .. c.from, '+inf', 'WITHSCORES', 'LIMIT', '0', int(c.size))
      elseif #c.list < 2 * c.size then
        return false
      else
        c.rank, c.size = (c.rank or redis.call('ZCOUNT', c.key, '-inf', c.from)) + c.size, math.min(c.size * 2, 256)
        c.list = redis.call('ZRANGE', c.key, int(c.rank), int(c.rank + c.size - 1), 'WITHSCORES')
      end
      c.at = 2
      if #c.list == 0 then return false end
    end
  until not c.open or isOpen(c.list[c.at - 1])
  c.units = c.zero and 0 or unitsOf(c.list[c.at - 1])
  c.calls = callsIn(c.list[c.at - 1])
  c.score = tonumber(c.list[c.at])
  return true
end

-- A heap of cursors, the smallest score on top.
local function sink(heap, i)
  while true do
    local least, left = i, 2 * i
    if left <= #heap and heap[left].score < heap[least].score then least = left end
    if left < #heap and heap[left + 1].score < heap[least].score then least = left + 1 end
    if least == i then return end
    heap[i], heap[least] = heap[least], heap[i]
    i = least
  end
end

-- walk goes upwards from the score pos, with freed already freed, until deficit is
-- freed, or past the score stop if given. It returns the score that frees enough, 0 if no
-- score does, or nil if the steps ran out. Then it returns the score up to which it has
-- walked all entries, and what these free.
local function walk(l, pos, freed, deficit, stop)
  local heap, ops = {}, {}
  for i = 1, #l.covered do
    local r = row(l.win, l.covered[i])
    if r.calls > 0 or r.units > 0 then ops[#ops + 1] = l.covered[i] end
  end
  if l.win.len ~= 0 then
    local at, sum = blocks.skip(l, ops, pos, deficit - freed, stop)
    if at then pos, freed = at, freed + sum end
  end
  for i = 1, #l.covered do
    local op = l.covered[i]
    local r = row(l.win, op)
    if r.calls > 0 or r.units > 0 then
      local from = math.max(pos, r.cut, l.win.adv)
      local sources = {cursor(zkey(op), from, false, l.win.len == 0)}
      if l.calls then sources[2] = cursor(ykey(op), math.max(pos, r.zcut, l.win.adv), true, l.win.len == 0) end
      for j = 1, #sources do
        if step(sources[j]) then heap[#heap + 1] = sources[j] end
      end
    end
    steps = steps + 1
  end
  for i = math.floor(#heap / 2), 1, -1 do sink(heap, i) end
  local whole, below, last, stepsEnd = freed, pos, pos, M.extended and limitSteps or math.max(limitSteps, steps + limitSteps / 4)
  while #heap > 0 do
    local c = heap[1]
    if stop and c.score > stop then return 0, last, freed end
    if c.score ~= last then
      if steps >= stepsEnd and last ~= pos then
        M.extended = true
        return nil, last, freed
      end
      whole, below, last = freed, last, c.score
    end
    steps = steps + 1
    freed = freed + (l.calls and c.calls or c.units)
    if freed >= deficit then return c.score, below, whole end
    if not step(c) then
      heap[1] = heap[#heap]
      heap[#heap] = nil
    end
    if #heap > 1 then sink(heap, 1) end
  end
  return 0, last, freed
end
