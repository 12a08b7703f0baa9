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

  -- forget drops the blocks of an operation whose entries are being moved.
  function blocks.forget(op)
    known[op], changed[op] = {start = 0, ends = {}, units = {}, calls = {}}, nil
    redis.call('HDEL', keyM, 'b' .. op)
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
    if M.merged > 0 or M.mpos ~= '' then o.fresh = 0 end -- merging moves entries
    if o.fresh < 2 * size then return end
    blocks.save()
    known[op] = nil
    local text = redis.call('HGET', keyM, 'b' .. op) or ''
    if text == '' then
      o.ended = math.max(o.ended, M.gone)
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

  -- between adds up the entries of z:<op> themselves; nil: they are too many.
  local function between(op, from, to, field)
    if to <= from then return 0 end
    if redis.call('ZCOUNT', zkey(op), '(' .. int(from), int(to)) > 4096 then return nil end
    local sum, found = 0, redis.call('ZRANGEBYSCORE', zkey(op), '(' .. int(from), int(to))
    for i = 1, #found do sum = sum + (field == 'units' and unitsOf(found[i]) or callsIn(found[i])) end
    steps = steps + math.ceil(#found / 16)
    return sum
  end

  -- skip moves a long walk on. It finds a score up to which what the operations counted above pos
  -- is less than need, and how much that is; nil where the blocks do not help. stop is the
  -- last score to consider, or nil.
  function blocks.skip(l, ops, pos, need, stop)
    if #ops == 0 or #ops > 8 or need <= limitSteps / 4 then return nil end
    local field, sides, low, high, helps = l.calls and 'calls' or 'units', {}, pos, stop or WHOLE, false
    for i = 1, #ops do
      local o = totals[ops[i]]
      if l.calls and o.ys > 0 then return nil end
      local from = math.max(pos, row(l.win, ops[i]).cut, l.win.adv)
      local list = of(ops[i])
      local side = {op = ops[i], from = from, list = list, first = after(list, from), sums = {}}
      helps = helps or side.first < #list.ends
      local begins = side.first == 1 and list.start or list.ends[side.first - 1] or from
      if #list.ends == 0 or side.first > #list.ends then begins = from end
      side.begins, side.sum = math.max(begins, from), between(ops[i], from, begins, field)
      if not side.sum then return nil end
      local sum = side.sum
      for j = side.first, #list.ends do
        sum = sum + list[field][j]
        side.sums[j] = sum
      end
      sides[i], low = side, math.max(low, side.begins)
      if side.first <= #list.ends then high = math.min(high, list.ends[#list.ends]) end
    end
    if not helps or high <= low then return nil end
    for i = 1, #sides do
      local side = sides[i]
      if side.first > #side.list.ends then
        side.sum = between(side.op, side.from, high, field)
        if not side.sum then return nil end
      end
    end
    local function most(at) -- what is counted up to an instant is at most this
      local sum = 0
      for i = 1, #sides do
        local side = sides[i]
        local j = math.min(after(side.list, at) - 1, #side.list.ends)
        sum = sum + (side.sums[j] or side.sum)
      end
      return sum
    end
    while low < high do
      local middle = math.floor((low + high + 1) / 2)
      if most(middle) < need then low = middle else high = middle - 1 end
    end
    local sum = 0
    for i = 1, #sides do
      local side = sides[i]
      local j = after(side.list, low) - 1
      while j >= side.first and side.list.ends[j] > low do j = j - 1 end
      local begins = j >= side.first and side.list.ends[j] or side.begins
      local more = between(side.op, begins, low, field)
      if not more then return nil end
      sum = sum + more + (j >= side.first and side.sums[j] or side.first > #side.list.ends and 0 or side.sum)
    end
    if sum >= need then return nil end
    return low, sum
  end
end
