-- The sums of blocks of entries, so that a long walk, many entries that leave a window at
-- once, and a window that is new need not read each entry. Comes after ledger.lua.
--
-- The field b<op> of m has start, and for each block its end, units and calls: those of the
-- entries of z:<op> with scores above the end of the block before, or start, and up to its own.
-- All that changes such an entry later changes its block too. A block is made when there are
-- twice as many entries beyond the last one, so that most charges cost nothing for it.
do
  local known, changed = {}, {} -- by operation
  local made = {}           -- the new texts of fields, which are written with the totals
  local stretches, read = {}, 0 -- see stretch; how many entries they have

  -- of reads the blocks of an operation; they are empty if it has none.
  local function of(op)
    if known[op] then return known[op] end
    local text = redis.call('HGET', keyM, 'b' .. op) or ''
    local list = {start = 0, ends = {}, units = {}, calls = {}}
    if text ~= '' then
      list.start = struct.unpack('d', text)
      local i = 0
      for from = 9, #text, 24000 do
        local part = {struct.unpack(string.rep('d', math.min(24000, #text - from + 1) / 8), text, from)}
        for j = 1, #part - 1, 3 do
          i = i + 1
          list.ends[i], list.units[i], list.calls[i] = part[j], part[j + 1], part[j + 2]
        end
      end
    end
    known[op] = list
    return list
  end

  -- after is the place of the first block of which all scores are above an instant.
  local function after(list, instant)
    local low, high = 1, #list.ends + 1
    while low < high do
      local middle = math.floor((low + high) / 2)
      local from = middle == 1 and list.start or list.ends[middle - 1]
      if from >= instant then high = middle else low = middle + 1 end
    end
    return low
  end

  -- change notes that an entry of z:<op> came or went.
  function blocks.change(op, score, units, calls)
    local o = totals[op]
    if score > o.ended then
      o.fresh = o.fresh + (calls > 0 and 1 or -1)
      return
    end
    local list = of(op)
    if #list.ends == 0 or score <= list.start then return end
    local i = after(list, score) - 1 -- it begins below the score
    list.units[i], list.calls[i] = list.units[i] + units, list.calls[i] + calls
    changed[op] = true
  end

  -- trim drops the blocks that sum any of the entries that are about to be merged, those up to a
  -- score.
  function blocks.trim(op, score)
    local list = of(op)
    if #list.ends > 0 and list.start < score then
      local first = after(list, score)
      local kept = {start = list.ends[first - 1], ends = {}, units = {}, calls = {}}
      for i = first, #list.ends do
        kept.ends[i - first + 1], kept.units[i - first + 1], kept.calls[i - first + 1] = list.ends[i], list.units[i], list.calls[i]
      end
      known[op], changed[op] = kept, #kept.ends > 0 or nil
      if #kept.ends == 0 then redis.call('HDEL', keyM, 'b' .. op) end
    end
  end

  -- atPlace is a number of a field b<op>.
  local function atPlace(text, i) return (struct.unpack('d', text, 8 * i - 7)) end

  -- trimmed is the text of a field without the blocks that nothing counts any more.
  local function trimmed(text)
    local low, high = 0, (#text - 8) / 24
    while low < high do -- so many begin before what is forgotten
      local middle = math.ceil((low + high) / 2)
      if atPlace(text, 3 * middle - 1) <= M.gone then low = middle else high = middle - 1 end
    end
    if low < 64 then return text end
    return string.sub(text, 24 * low - 15, 24 * low - 8) .. string.sub(text, 24 * low + 9)
  end

  -- make makes blocks of so many entries, which have all finished, while there are twice as
  -- many and there are steps left. It only appends to what there is.
  function blocks.make(op, size)
    preload({op})
    local o = totals[op]
    if M.mpos ~= '' or o.fresh < 2 * size then return end
    blocks.save()
    known[op] = nil
    local text = redis.call('HGET', keyM, 'b' .. op) or ''
    if text == '' then
      o.ended = math.max(o.ended, M.gone, M.merged)
      text = struct.pack('d', o.ended)
    end
    while o.fresh >= 2 * size and steps < limitSteps do
      local from = '(' .. int(o.ended)
      local found = redis.call('ZRANGEBYSCORE', zkey(op), from, int(M.last), 'LIMIT', '0', int(size))
      local last = redis.call('ZRANGEBYSCORE', zkey(op), from, int(M.last), 'WITHSCORES', 'LIMIT', int(size - 1), '1')[2]
      if not last then
        o.fresh = size -- the rest is yet to finish
        break
      end
      if redis.call('ZCOUNT', zkey(op), from, last) > size then found = redis.call('ZRANGEBYSCORE', zkey(op), from, last) end
      local units, calls = 0, 0
      for i = 1, #found do units, calls = units + unitsOf(found[i]), calls + callsIn(found[i]) end
      o.ended, o.fresh, steps = tonumber(last), math.max(0, o.fresh - #found), steps + #found
      text = text .. struct.pack('ddd', o.ended, units, calls)
    end
    made[op] = trimmed(text)
    touch(op)
  end

  -- save writes the blocks that changed.
  function blocks.save()
    for op in pairs(changed) do
      local list = known[op]
      local texts, numbers = {}, {list.start}
      for i = 1, #list.ends do
        numbers[#numbers + 1], numbers[#numbers + 2], numbers[#numbers + 3] = list.ends[i], list.units[i], list.calls[i]
        if #numbers >= 3000 then
          texts[#texts + 1], numbers = struct.pack(string.rep('d', #numbers), unpack(numbers)), {}
        end
      end
      if #numbers > 0 then texts[#texts + 1] = struct.pack(string.rep('d', #numbers), unpack(numbers)) end
      redis.call('HSET', keyM, 'b' .. op, table.concat(texts))
    end
    for op, text in pairs(made) do redis.call('HSET', keyM, 'b' .. op, text) end
    changed, made = {}, {}
  end

  -- whole adds up the blocks of an operation with scores above from and up to to. It returns
  -- where they begin and end, their units and calls; nil: there is none.
  function blocks.whole(op, from, to)
    if totals[op].ended <= from then return nil end
    local list = of(op)
    local i = after(list, from)
    if i > #list.ends or list.ends[i] > to then return nil end
    local begins, ends, units, calls = i == 1 and list.start or list.ends[i - 1], nil, 0, 0
    while list.ends[i] and list.ends[i] <= to do
      ends, units, calls, i = list.ends[i], units + list.units[i], calls + list.calls[i], i + 1
    end
    return begins, ends, units, calls
  end

  -- stretch lists entries of z:<op> themselves: their scores, and what they count in sum up to
  -- each. It is read once a run, but again with other ranks, if an entry came or went; nil: that
  -- is too much for this run.
  local function stretch(op, from, to, field)
    local low, high = 0, 0 -- ranks
    if to > from then low, high = redis.call('ZCOUNT', zkey(op), '-inf', int(from)), redis.call('ZCOUNT', zkey(op), '-inf', int(to)) end
    local key = high > low and table.concat({op, low, high, field}, ' ') or ''
    local s, n = stretches[key], high - low
    if s then return s end
    if read + n > 4 * limitSteps then return nil end
    s = {scores = {}, sums = {}, sum = 0}
    if n > 0 then
      read, steps = read + n, steps + math.ceil(n / 8)
      local list = redis.call('ZRANGE', zkey(op), int(low), int(high - 1), 'WITHSCORES')
      for i = 1, n do
        local member = list[2 * i - 1]
        s.sum = s.sum + (field == 'units' and unitsOf(member) or callsIn(member))
        s.scores[i], s.sums[i] = tonumber(list[2 * i]), s.sum
      end
    end
    stretches[key] = s
    return s
  end

  -- upTo is what the entries of a stretch count up to an instant.
  local function upTo(s, instant)
    local low, high = 0, #s.scores
    while low < high do
      local middle = math.ceil((low + high) / 2)
      if s.scores[middle] <= instant then low = middle else high = middle - 1 end
    end
    return s.sums[low] or 0
  end

  -- sideOf is what one operation counts from an instant on: entries before its first whole block,
  -- blocks, which end at last, and a tail, which is read when it is needed.
  local function sideOf(op, from, field)
    local list = of(op)
    local ends, first = list.ends, after(list, from)
    local side = {op = op, from = from, list = list, first = first, sums = {}, begins = from, last = from}
    if first <= #ends then side.begins, side.last = first == 1 and list.start or ends[first - 1], ends[#ends] end
    side.before = stretch(op, from, side.begins, field)
    local sum = side.before and side.before.sum
    for j = first, sum and #ends or 0 do
      sum = sum + list[field][j]
      side.sums[j] = sum
    end
    return side.before and side
  end

  -- most is what a side counts up to an instant; within a block that is not read, it is at
  -- most this.
  local function most(side, at)
    if at < side.begins then return upTo(side.before, at) end
    local sums, none = side.sums, side.before.sum
    if at >= side.last then return (sums[#side.list.ends] or none) + (side.tail and upTo(side.tail, at) or 0) end
    local j = after(side.list, at) - 1
    if j == side.block then return (sums[j - 1] or none) + upTo(side.within, at) end
    return sums[j] or none
  end

  -- search is the last instant from low to high up to which the sides count less than need.
  local function search(sides, low, high, need)
    steps = steps + 8 * #sides
    while low < high do
      local middle, sum = low + math.ceil((high - low) / 2), 0
      for i = 1, #sides do sum = sum + most(sides[i], middle) end
      if sum < need then low = middle else high = middle - 1 end
    end
    return low
  end

  -- skip moves a long walk on. It finds the score up to which what the operations counted above
  -- pos is less than need, and how much that is; nil: it reads too much for that. stop is the
  -- last score to consider, or nil.
  function blocks.skip(l, ops, pos, need, stop)
    if #ops == 0 or #ops > 32 or need <= limitSteps / 4 then return nil end
    local field, sides, top = l.calls and 'calls' or 'units', {}, math.max(M.last, M.newest) + LEASE
    top = math.max(pos, math.min(stop or top, top))
    local high, low, loose = top, top, 0 -- loose: entries in no block
    for i = 1, #ops do loose = loose + totals[ops[i]].fresh end
    if loose > 4 * limitSteps then return nil end
    for i = 1, #ops do
      -- totals' ys lacks what this run has charged
      if l.calls and redis.call('ZCARD', ykey(ops[i])) > 0 then return nil end
      local side = sideOf(ops[i], math.max(pos, row(l.win, ops[i]).cut, l.win.adv), field)
      if not side then return nil end
      if side.first > #side.list.ends then side.tail = stretch(side.op, side.last, top, field) end
      if not side.tail then high = math.min(high, side.last) end
      sides[i], low = side, math.min(low, side.from) -- nothing is counted up to there
    end
    low = search(sides, low, high, need)
    if low >= high then
      high = top
      for i = 1, #sides do
        local side = sides[i]
        side.tail = side.tail or stretch(side.op, side.last, top, field)
        if not side.tail then high = math.min(high, side.last) end
      end
      low = search(sides, low, math.max(low, high), need)
    end
    repeat -- read the blocks that it is in
      local was = low
      high = top
      for i = 1, #sides do
        local side = sides[i]
        local ends, j = side.list.ends, after(side.list, low + 1) - 1
        if low + 1 <= side.begins then
          high = math.min(high, side.begins)
        elseif low < side.last then
          local within = stretch(side.op, j == side.first and side.begins or ends[j - 1], ends[j], field)
          if not within then return nil end
          side.block, side.within, high = j, within, math.min(high, ends[j])
        elseif not side.tail then
          high = math.min(high, side.last)
        end
      end
      low = search(sides, low, high, need)
    until low < high or low == was
    local sum = 0
    for i = 1, #sides do sum = sum + most(sides[i], low) end
    if sum == 0 then return nil end
    return low, sum
  end
end
