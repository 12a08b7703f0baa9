-- Divided limits: what is kept for shares, and the wait for it. Comes after walk.lua, in
-- the scripts for calls of which a limit has shares.
--
-- A limit's use is counted in parts: part 0 is that of the item's own share and of what
-- belongs to no share, part j that of another share j. A stage is a table of guarantees by
-- part. The sum under a stage counts for each part at least its guarantee.

local shares = {}
do -- a block, because Lua limits the local names of a scope
  -- partsOf returns one field of a limit's rows by part, for an item of the share own (0:
  -- none). With win, of that window instead of the limit's.
  local function partsOf(l, own, field, win)
    local w, parts, rest = win or l.win, {}, 0
    if l.all then
      rest = star(w)[field]
    else
      for i = 1, #l.covered do rest = rest + row(w, l.covered[i])[field] end
    end
    for j = 1, #l.shares do
      local ops, sum = l.shares[j].ops, 0
      if j ~= own then
        for i = 1, #ops do sum = sum + row(w, ops[i])[field] end
      end
      parts[j], rest = sum, rest - sum
    end
    parts[0] = rest
    return parts
  end

  -- sumUnder is the sum of parts under a stage.
  local function sumUnder(parts, stage)
    local sum = parts[0]
    for j = 1, #parts do sum = sum + math.max(parts[j], stage[j]) end
    return sum
  end

  -- sumOf is sumUnder of the parts of a window: all that is used, and what the other shares'
  -- guarantees exceed their use by.
  local function sumOf(l, own, field, w, stage)
    local sum = 0
    if l.all then
      sum = star(w)[field]
    else
      for i = 1, #l.covered do sum = sum + row(w, l.covered[i])[field] end
    end
    for j = 1, #l.shares do
      if stage[j] > 0 then
        local ops, left = l.shares[j].ops, stage[j]
        for i = 1, #ops do left = left - row(w, ops[i])[field] end
        if left > 0 then sum = sum + left end
      end
    end
    return sum
  end

  -- keptOf lists what is kept for each share.
  local function keptOf(parts, stage)
    local kept = {}
    for j = 1, #parts do kept[j] = int(math.max(0, stage[j] - parts[j])) end
    return table.concat(kept, ',')
  end

  -- stageOf is the stage of the guarantees that lapse less than span before the reset, or
  -- not at all; the item's own is 0.
  local function stageOf(l, own, span)
    local stage = {}
    for j = 1, #l.shares do
      local s = l.shares[j]
      stage[j] = (j == own or span and s.lapse > 0 and s.lapse >= span) and 0 or s.units
    end
    return stage
  end

  -- inForce is the stage of the present instant: in a calendar, that of the longest lapse
  -- that has begun.
  local function inForce(l, own)
    local w = l.win
    if w.len then
      l.inForce = l.inForce or {}
      l.inForce[own] = l.inForce[own] or stageOf(l, own)
      return l.inForce[own]
    end
    local reset = (M.last >= w.p1 and w.p2 or w.p1) - l.guard
    return stageOf(l, own, math.max(reset - M.last, 0))
  end

  -- divides checks an item against what a limit keeps for shares. It returns whether the
  -- item fits, else what is kept for each share. score is when the item would finish.
  function shares.divides(l, own, room, score)
    local field, stage = l.calls and 'calls' or 'units', inForce(l, own)
    if sumOf(l, own, field, l.win, stage) > room then return false, keptOf(partsOf(l, own, field), stage) end
    local w = l.nextWin
    if not w or score <= (M.last >= w.p1 and w.c1 or w.c0) then return true end
    stage = stageOf(l, own)
    if sumOf(l, own, field, w, stage) > room then return false, keptOf(partsOf(l, own, field, w), stage) end
    return true
  end

  -- stagesOf are the sums that a wait is for: {stage, room} each. In a calendar they are
  -- those of the whole period, and after each of the limit's lapses; the last is what the
  -- floor leaves.
  local function stagesOf(l, own, room, floorRoom)
    local list = {}
    if l.win.len then
      list[1] = {stageOf(l, own), room}
    else
      list[1] = {stageOf(l, own), room}
      for i = 1, #l.lapses do list[i + 1] = {stageOf(l, own, l.lapses[i]), room} end
    end
    local none = {}
    for j = 1, #l.shares do none[j] = 0 end
    list[#list + 1] = {none, floorRoom}
    return list
  end

  -- walkShared goes upwards through the entries until every stage is met, and returns for
  -- each the score that meets it: 0 if the present use does, -1 if no score does. If the
  -- steps run out, it returns nil instead. from is the walk's progress, which it moves on:
  -- the score up to which all entries are walked, what these free by part, the stages met,
  -- and which parts it passed over, since what returns to a share within its guarantee
  -- frees nothing.
  local function walkShared(l, own, stages, from)
    local used = partsOf(l, own, l.calls and 'calls' or 'units')
    local left, partOf, heap, met, unmet = {}, {}, {}, {}, 0
    for j = 0, #l.shares do left[j] = used[j] - from.freed[j] end
    for j = 1, #l.shares do
      for _, op in ipairs(l.shares[j].ops) do partOf[op] = j == own and 0 or j end
    end
    for k = 1, #stages do
      if sumUnder(used, stages[k][1]) <= stages[k][2] then
        met[k] = 0
      elseif from.met[k] then
        met[k] = from.met[k]
      else
        unmet = unmet + 1
      end
    end
    local function within(part)
      if part == 0 then return false end
      for k = 1, #stages do
        if not met[k] and left[part] > stages[k][1][part] then return false end
      end
      from.passed = true
      return true
    end
    for i = 1, #l.covered do
      local op = l.covered[i]
      local r, part = row(l.win, op), partOf[op] or 0
      if (r.calls > 0 or r.units > 0) and not within(part) then
        local sources = {cursor(zkey(op), math.max(from.pos, r.cut, l.win.adv), false)}
        if l.calls then sources[2] = cursor(ykey(op), math.max(from.pos, r.zcut, l.win.adv), true) end
        for j = 1, #sources do
          sources[j].part = part
          if step(sources[j]) then heap[#heap + 1] = sources[j] end
        end
      end
      steps = steps + 1
    end
    for i = math.floor(#heap / 2), 1, -1 do sink(heap, i) end
    local last = from.pos
    while #heap > 0 and unmet > 0 do
      local c = heap[1]
      if c.score ~= last then
        if steps >= limitSteps and last ~= from.pos then
          from.pos, from.met = last, met
          for j = 0, #l.shares do from.freed[j] = used[j] - left[j] end
          return nil
        end
        last = c.score
      end
      steps = steps + 1
      local over = within(c.part)
      if not over then
        left[c.part] = left[c.part] - (l.calls and c.calls or c.units)
        for k = 1, #stages do
          if not met[k] and sumUnder(left, stages[k][1]) <= stages[k][2] then met[k], unmet = c.score, unmet - 1 end
        end
      end
      if over or not step(c) then
        heap[1] = heap[#heap]
        heap[#heap] = nil
      end
      if #heap > 1 then sink(heap, 1) end
    end
    for k = 1, #stages do met[k] = met[k] or -1 end
    return met
  end

  -- beginning is the progress of a walk that has not begun.
  local function beginning(l)
    local from = {pos = -1, freed = {}, met = {}, passed = false}
    for j = 0, #l.shares do from.freed[j] = 0 end
    return from
  end

  -- packWalk is a walk's progress as text: what it freed, what had returned before, the
  -- stages it has met.
  local function packWalk(l, own, i, from)
    local freed, met, back = {}, {}, partsOf(l, own, l.calls and 'bcalls' or 'bunits')
    for j = 0, #l.shares do freed[j + 1] = int(from.freed[j] + back[j]) end
    for k = 1, 2 + #l.lapses do met[k] = int(from.met[k] or -1) end
    return table.concat({i, int(from.pos), table.concat(freed, ','), table.concat(met, ','), from.passed and 1 or 0}, ':')
  end

  -- resumeWalk reads the progress of a limit's walk, if that is still valid: nothing that it
  -- passed has changed, and if it has passed shares over or met stages nothing was charged.
  local function resumeWalk(l, own, i, progress)
    local chg, newest, seen, rest = string.match(progress, '^(%d+) (%d+) (%d+) %S* ?(.*)$')
    local from = beginning(l)
    if not chg or tonumber(chg) ~= M.chg then return from end
    for limit, pos, freed, met, passed in string.gmatch(rest, '(%d+):(-?%d+):([%d,-]+):([%d,-]+):(%d)') do
      if tonumber(limit) == i then
        local same = tonumber(newest) == M.newest
        pos, passed = tonumber(pos), passed == '1'
        local back, j, k, some = partsOf(l, own, l.calls and 'bcalls' or 'bunits'), 0, 0, {}
        for n in string.gmatch(freed, '-?%d+') do
          some[j], j = tonumber(n) - (back[j] or 0), j + 1
        end
        local stages = {}
        for n in string.gmatch(met, '-?%d+') do
          k = k + 1
          if tonumber(n) > 0 then stages[k], passed = tonumber(n), true end
        end
        if j == #l.shares + 1 and (same or not passed and pos <= tonumber(seen)) and pos > l.win.adv then
          return {pos = pos, freed = some, met = stages, passed = passed}
        end
      end
    end
    return from
  end

  -- waitShared is the wait of an item that a limit refuses: the scores that meet its stages,
  -- and what is kept, or nil and the progress of the walk.
  function shares.waitShared(l, i, item, kept)
    local own = item.own[i]
    local from = resumeWalk(l, own, i, item.progress or '')
    local amount = l.calls and 1 or item.units
    local met = walkShared(l, own, stagesOf(l, own, (item.rooms or item.bounds)[i] - amount, item.bounds[i] - amount), from)
    if not met then return nil, packWalk(l, own, i, from) end
    for k = 1, #met do met[k] = int(met[k]) end
    kept = kept or keptOf(partsOf(l, own, l.calls and 'calls' or 'units'), inForce(l, own))
    return table.concat(met, ',') .. ' ' .. kept
  end

  -- sharesOf lists what each share of a limit has used.
  function shares.sharesOf(l)
    local list = {}
    if l.shares then
      local parts = partsOf(l, 0, l.calls and 'calls' or 'units')
      for j = 1, #l.shares do list[j] = int(parts[j]) end
    end
    return list
  end

  -- matchesAny reports whether one of the patterns, joined by commas, matches a job.
  local function matchesAny(patterns, job)
    if job == '' then return false end
    for pattern in string.gmatch(patterns, '[^,]+') do
      if matches(pattern, job) then return true end
    end
    return false
  end

  -- movePage moves a page of a zset's entries to the zsets of their jobs. It returns how
  -- far it got, and whether that is the end; or nil and the names to register first.
  local function movePage(op, name, place, from, numbers, pairsLeft)
    local key = KEYS[3 + place]
    local list, n, reached, done = page(key, from, WHOLE, true)
    local moves, missing, order = {}, {}, {}
    for at = 1, n, 1000 do
      local to, ids = math.min(n, at + 999), {}
      for i = at, to do ids[#ids + 1] = idOf(list[2 * i - 1]) end
      local found = redis.call('HMGET', keyE, unpack(ids))
      for i = 1, #found do
        local e = parse(found[i])
        local job = string.match(e.labels, '^([^|]*)')
        if matchesAny(M.split, job) then
          local pair = name .. '@' .. job
          if numbers[pair] then
            moves[#moves + 1] = {e = e, id = ids[i], to = numbers[pair], member = list[2 * (at + i - 1) - 1]}
          elseif not missing[pair] and pairsLeft > 0 then
            missing[pair], order[#order + 1], pairsLeft = true, pair, pairsLeft - 1
          end
        end
      end
    end
    if #order > 0 then return nil, order end
    for i = 1, #moves do
      local m = moves[i]
      local e = m.e
      local zero, calls = place % 3 ~= 1, e.state == 'm' and e.asked or callsOf(e)
      redis.call('ZREM', key, m.member)
      addAll(e.op, e.score, e.units, calls, zero, -1, e.state)
      e.op = m.to
      redis.call('ZADD', KEYS[3 * (m.to - op) + 3 + place], int(e.score), m.member)
      addAll(e.op, e.score, e.units, calls, zero, 1, e.state)
      redis.call('HSET', keyE, m.id, pack(e))
    end
    if #moves > 0 then
      M.emptied, M.chg = true, M.chg + 1
      for i = 1, #meters do
        if meters[i].reached ~= WHOLE then replayAnew(meters[i]) end
      end
    end
    return reached, done
  end

  -- moveAll gives the entries of jobs whose shares the ledger has just met zsets of their
  -- own. It returns true when done, else false; then the next run continues, and
  -- registers the names that it lists.
  function shares.moveAll(now)
    if M.spos == '' then return true, {} end
    for i = 1, #wins do
      if wins[i].len and not bring(wins[i], now) then return false, {} end
    end
    local names, numbers, left = {}, {}, MAXPAIRS
    for name in string.gmatch(M.ops, '[^,]+') do
      names[#names + 1] = name
      numbers[name] = #names
      if string.find(name, '@', 1, true) then left = left - 1 end
    end
    local place, from = string.match(M.spos, '^(%d+) (-?%d+)$')
    place, from = tonumber(place), tonumber(from)
    while place <= 3 * nops do
      local op = math.floor((place + 2) / 3)
      if not string.find(names[op], '[@/]') then
        local reached, done = movePage(op, names[op], place, from, numbers, left)
        if not reached then
          M.spos = place .. ' ' .. int(from)
          return false, done
        end
        if not done then
          M.spos = place .. ' ' .. int(reached)
          return false, {}
        end
      end
      place, from = place + 1, -1
    end
    M.spos = ''
    return true, {}
  end
end
