-- Divided limits: what is kept for shares, and the wait for it. Comes after walk.lua,
-- in the scripts for calls on limits with shares.
--
-- A limit's use is counted in parts: part 0 is that of the item's own share and of what
-- belongs to no share, part j that of another share j. A stage is a table of guarantees by
-- part. The sum under a stage counts for each part at least its guarantee.

local shares = {}
do -- a block, because Lua limits the local names of a scope
  local MAXPAIRS = 512

  -- sumFor adds up one field of a share's rows.
  local function sumFor(s, field, w, own)
    local c = w == own and s.cover and allCovers[s.cover]
    if c and c[field] then return c[field] end
    local sum = 0
    for i = 1, #s.ops do sum = sum + row(w, s.ops[i])[field] end
    return sum
  end

  -- allOf adds up one field of a limit's rows in a window.
  local function allOf(l, field, w)
    if w == l.win then return total(l, field) end
    if l.all then return star(w)[field] end
    local sum = 0
    for i = 1, #l.covered do sum = sum + row(w, l.covered[i])[field] end
    return sum
  end

  -- partsOf returns one field of a limit's rows by part, for an item of the share own (0:
  -- none). With win, of that window instead of the limit's.
  local function partsOf(l, own, field, win)
    local w, parts = win or l.win, {}
    local rest = allOf(l, field, w)
    for j = 1, #l.shares do
      parts[j] = j == own and 0 or sumFor(l.shares[j], field, w, l.win)
      rest = rest - parts[j]
    end
    parts[0] = rest
    return parts
  end

  -- heldOf is what is held of a limit by part.
  local function heldOf(l, own)
    local all, by = holds.held(l)
    local parts = {}
    for j = 1, #l.shares do
      parts[j] = j == own and 0 or by[j]
      all = all - parts[j]
    end
    parts[0] = all
    return parts
  end

  -- takenOf is what is used and held of a limit by part.
  local function takenOf(l, own, win)
    local parts, held = partsOf(l, own, l.calls and 'calls' or 'units', win), heldOf(l, own)
    for j = 0, #parts do parts[j] = parts[j] + held[j] end
    return parts
  end

  -- sumUnder is the sum of parts under a stage.
  local function sumUnder(parts, stage)
    local sum = parts[0]
    for j = 1, #parts do sum = sum + math.max(parts[j], stage[j]) end
    return sum
  end

  -- sumOf is sumUnder of the parts of a window: all that is used and held, and what the other
  -- shares' guarantees exceed that of theirs by.
  local function sumOf(l, field, w, stage)
    local all, by = holds.held(l)
    local sum = allOf(l, field, w) + all
    for j = 1, #l.shares do
      local left = stage[j] > 0 and stage[j] - sumFor(l.shares[j], field, w, l.win) - by[j] or 0
      if left > 0 then sum = sum + left end
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

  -- spellOf is the stage of a spell, in which records say what is guaranteed.
  local function spellOf(l, own, k)
    local stage = {}
    for j = 1, #l.shares do stage[j] = j == own and 0 or l.spells[k].units[j] end
    return stage
  end

  -- inForce is the stage of the present instant: in a calendar, that of the longest lapse
  -- that has begun; while there are records, that of their spell.
  local function inForce(l, own)
    local w = l.win
    for k = 1, l.spells and #l.spells or 0 do
      if M.last < l.spells[k]['until'] then return spellOf(l, own, k) end
    end
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
    if sumOf(l, field, l.win, stage) > room then return false, keptOf(takenOf(l, own), stage) end
    local w = l.nextWin
    if not w or score <= (M.last >= w.p1 and w.c1 or w.c0) then return true end
    stage = stageOf(l, own)
    if sumOf(l, field, w, stage) > room then return false, keptOf(takenOf(l, own, w), stage) end
    return true
  end

  -- stagesOf are the sums that a wait is for: {stage, room} each. In a calendar they are
  -- those of the whole period, and after each of the limit's lapses; the last is what a
  -- floor leaves, without one nil; then come those of the spells of records.
  local function stagesOf(l, own, item, i)
    local amount = item.takes[i]
    local room, list, none = (item.rooms or item.bounds)[i] - amount, {}, {}
    for j = 1, #l.shares do none[j] = 0 end
    for k = 0, #l.lapses do list[k + 1] = {item.free[i] and none or stageOf(l, own, l.lapses[k]), room} end
    if item.rooms then
      list[#l.lapses + 2] = {none, item.free[i] and room or item.bounds[i] - amount}
    elseif l.spells then
      list[#l.lapses + 2] = {none, math.huge}
    end
    for k = 1, l.spells and #l.spells or 0 do
      local over = l.spells[k]['until'] <= M.last
      list[#list + 1] = {(item.free[i] or over) and none or spellOf(l, own, k), over and math.huge or room}
    end
    return list
  end

  -- A walk's progress is by part: all entries of a part up to the score at are walked, and
  -- free that much. What returns to a share within its guarantee frees nothing, and is not
  -- walked until the share has charged more than that.
  --
  -- beginning is the progress of a walk that has not begun. In a calendar whose next
  -- period is counted, all that returns at the reset is walked.
  local function beginning(l, own, used)
    local from, w = {at = {}, freed = {}}, l.nextWin
    local kept = w and takenOf(l, own, w)
    local cut = w and (M.last >= w.p1 and w.c1 or w.c0) or -1
    for j = 0, #l.shares do from.at[j], from.freed[j] = cut, kept and used[j] - kept[j] or 0 end
    return from
  end

  -- walkStage goes upwards through the entries until the sum under a stage is at most room,
  -- and moves the progress on to before the last score that it looked at. It returns that
  -- score: 0 if the present use fits, -1 if no use does, -2 if the entries are not all that
  -- is used, nil if the steps ran out.
  local function walkStage(l, own, used, stage, room, from)
    if sumUnder(used, stage) <= room then return 0 end
    local left, partOf, done, heap, base, most, held = {}, {}, {}, {}, 0, -1, heldOf(l, own)
    local function within(part) return part > 0 and left[part] <= stage[part] end
    for j = 0, #l.shares do
      left[j], most, base = used[j] - from.freed[j], math.max(most, from.at[j]), base + math.max(stage[j] or 0, held[j])
      done[j] = within(j)
    end
    if base > room then return -1 end
    local sum = sumUnder(left, stage)
    if sum <= room then return most end
    for j = 1, #l.shares do
      for _, op in ipairs(l.shares[j].ops) do partOf[op] = j == own and 0 or j end
    end
    for i = 1, #l.covered do
      local op = l.covered[i]
      local r, part = row(l.win, op), partOf[op] or 0
      steps = steps + 1
      if (r.calls > 0 or r.units > 0) and not done[part] then
        steps = steps + 4
        local sources = {cursor(zkey(op), math.max(from.at[part], r.cut, l.win.adv), false)}
        if l.calls then sources[2] = cursor(ykey(op), math.max(from.at[part], r.zcut, l.win.adv), true) end
        for j = 1, #sources do
          sources[j].part = part
          if step(sources[j]) then heap[#heap + 1] = sources[j] end
        end
      end
    end
    for i = math.floor(#heap / 2), 1, -1 do sink(heap, i) end
    -- Up to whole, every entry is in the progress; those of the score last are not yet.
    local whole, last, n, parts, amounts, met, stepsEnd = -1, nil, 0, {}, {}, -2, M.extended and limitSteps or math.max(limitSteps, steps + limitSteps / 4)
    while met == -2 and #heap > 0 do
      local c = heap[1]
      if c.score ~= last then
        for i = 1, n do
          local part = parts[i]
          from.freed[part] = from.freed[part] + amounts[i]
          if within(part) and not done[part] then from.at[part], done[part] = math.max(from.at[part], last), true end
        end
        whole, last, n = last or whole, c.score, 0
        if steps >= stepsEnd and whole >= 0 then met, M.extended = nil, true end
      end
      local part = c.part
      if met and not done[part] then
        local amount, before = l.calls and c.calls or c.units, left[part]
        steps, n = steps + 1, n + 1
        parts[n], amounts[n], left[part] = part, amount, before - amount
        sum = sum - (part == 0 and amount or math.max(before, stage[part]) - math.max(left[part], stage[part]))
        if sum <= room then met = last end
      end
      if done[part] or not step(c) then
        heap[1] = heap[#heap]
        heap[#heap] = nil
      end
      if #heap > 1 then sink(heap, 1) end
    end
    for j = 0, #l.shares do
      if not done[j] then from.at[j] = math.max(from.at[j], whole) end
    end
    return met
  end

  -- packWalk is the progress of a stage's walk as text, with what had returned before.
  local function packWalk(l, own, i, k, met, from)
    local at, freed, back = {}, {}, partsOf(l, own, l.calls and 'bcalls' or 'bunits')
    for j = 0, #l.shares do at[j + 1], freed[j + 1] = int(from.at[j]), int(from.freed[j] + back[j]) end
    return table.concat({i, k, int(met or 0), table.concat(at, ','), table.concat(freed, ',')}, ':')
  end

  -- resumeWalk reads the progress of a stage's walk, the score that met it, or 0, and whether
  -- it still does. The progress is valid if nothing that the walk passed was settled or
  -- released, and nothing charged since is among that.
  local function resumeWalk(l, own, used, i, k, progress)
    local chg, newest, seen, rest = string.match(progress, '^(%d+) (%d+) (%d+) %S* ?(.*)$')
    local same, ats, freeds, found = tonumber(newest) == M.newest, nil, nil, nil
    if tonumber(chg) == M.chg then
      for limit, stage, met, at, freed in string.gmatch(rest, '(%d+):(%d+):(-?%d+):([%d,-]+):([%d,-]+)') do
        if tonumber(limit) == i and tonumber(stage) == k then ats, freeds, found = at, freed, tonumber(met) end
      end
    end
    if not ats then return beginning(l, own, used), 0, false end
    local from, back, j = {at = {}, freed = {}}, partsOf(l, own, l.calls and 'bcalls' or 'bunits'), 0
    for n in string.gmatch(ats, '-?%d+') do
      from.at[j], j = tonumber(n), j + 1
    end
    j = 0
    for n in string.gmatch(freeds, '-?%d+') do
      if not back[j] or from.at[j] > tonumber(seen) and not same then return beginning(l, own, used), 0, false end
      from.freed[j] = tonumber(n) - back[j]
      if from.at[j] <= l.win.adv then from.at[j], from.freed[j] = -1, 0 end -- all of that has returned
      j = j + 1
    end
    if j ~= #l.shares + 1 then return beginning(l, own, used), 0, false end
    return from, found, same and found > 0
  end

  -- waitShared is the wait of an item for a limit: the scores that meet its stages, and what
  -- is kept, or nil if the steps ran out; the progress of the walks; and i if the limit is
  -- damaged.
  function shares.waitShared(l, i, item, kept)
    local own = item.own[i]
    local used, met, packed, done, bad = takenOf(l, own), {}, {}, true, nil
    for k, stage in ipairs(stagesOf(l, own, item, i)) do
      local from, found, known = resumeWalk(l, own, used, i, k, item.progress or '')
      if known then
        met[k] = found
      elseif found > 0 or done or steps < limitSteps then -- a run goes on with one stage at least
        met[k] = walkStage(l, own, used, stage[1], stage[2], from)
      end
      packed[k] = packWalk(l, own, i, k, met[k], from)
      done, bad = done and met[k] ~= nil, bad or met[k] == -2 and i
      met[k] = int(met[k] or 0)
    end
    if not item.rooms and not l.spells then met[#met + 1] = '0' end
    return done and table.concat(met, ',') .. ' ' .. (kept or keptOf(used, inForce(l, own))) or nil, table.concat(packed, ';'), bad
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

  -- narrowest returns a function that finds the narrowest pattern of split for a job, or nil.
  local function narrowest()
    local patterns, found = {}, {}
    for pattern in string.gmatch(M.split, '[^,]+') do patterns[#patterns + 1] = pattern end
    return function(job)
      if found[job] == nil then
        found[job] = false
        for i = 1, job ~= '' and #patterns or 0 do
          local pattern = patterns[i]
          local exact = string.sub(pattern, -1) ~= '*'
          if matches(pattern, job) and (not found[job] or exact or #pattern > #found[job] and string.sub(found[job], -1) == '*') then found[job] = pattern end
        end
      end
      return found[job] or nil
    end
  end

  -- splits reports whether a pattern of split is narrower than a pair's, or the name is an
  -- operation's.
  local function splits(name)
    local own = string.match(name, '@(.*)$')
    if not own then return true end
    for pattern in string.gmatch(M.split, '[^,]+') do
      if pattern ~= own and string.sub(own, -1) == '*' and matches(own, pattern) then return true end
    end
    return false
  end

  -- movePage moves a page of a zset's entries to the zsets of their patterns: of an eighth of
  -- the steps, since moving an entry costs as much more than walking over it. It returns how
  -- far it got, and whether that is the end; or nil and the names to register first.
  local function movePage(op, name, place, from, numbers, pairsLeft, patternFor)
    local key, whole = zset(place), limitSteps
    limitSteps = steps + math.ceil((whole - steps) / 8)
    local list, n, reached, done = page(key, from, WHOLE, true)
    limitSteps, steps = whole, steps + 7 * n
    local moves, missing, order = {}, {}, {}
    for at = 1, n, 1000 do
      local to, ids = math.min(n, at + 999), {}
      for i = at, to do ids[#ids + 1] = idOf(list[2 * i - 1]) end
      local found = redis.call('HMGET', keyE, unpack(ids))
      for i = 1, #found do
        local e = parse(found[i])
        local pattern = patternFor(string.match(e.labels, '^([^|]*)'))
        local pair = pattern and name .. '@' .. pattern
        if pair and numbers[pair] ~= op then
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
      redis.call('ZADD', zset(3 * (m.to - op) + place), int(e.score), m.member)
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

  -- moveAll gives the entries of jobs whose patterns the ledger has just met zsets of their
  -- own. It returns true when done, else false; then the next run continues, and registers
  -- the names that it lists.
  function shares.moveAll(now)
    if M.spos == '' then return true, {} end
    for i = 1, #wins do
      if wins[i].len and not bring(wins[i], now) then return false, {} end
    end
    local names, numbers, left, patternFor = {}, {}, MAXPAIRS, narrowest()
    for name in string.gmatch(M.ops, '[^,]+') do
      names[#names + 1] = name
      numbers[name] = #names
      if string.find(name, '@', 1, true) then left = left - 1 end
    end
    local place, from = string.match(M.spos, '^(%d+) (-?%d+)$')
    place, from = tonumber(place), tonumber(from)
    while place <= 3 * nops do
      local op = math.floor((place + 2) / 3)
      if not string.find(names[op], '/', 1, true) and splits(names[op]) then
        local reached, done = movePage(op, string.match(names[op], '^[^@]*'), place, from, numbers, left, patternFor)
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
