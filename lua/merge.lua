-- Merges entries that only coarse windows can still count: those of one slot, operation,
-- job, region and mark become one row and give up their ids, in bounded steps. Comes
-- after windows.lua.

do -- a block, because Lua limits the local names of a scope
  -- boundaryOf returns the score up to which to merge entries at now, and the precisions
  -- of the live coarse windows.
  local function boundaryOf(now)
    local boundary, precs = M.merged, {}
    for i = 1, #wins do
      local w = wins[i]
      if w.prec then
        precs[#precs + 1] = w.prec
        boundary = math.max(boundary, floorTo(now - HELD, w.prec))
      end
    end
    return boundary, precs
  end

  -- settleCuts brings every live window to now, and its rows' cuts up to the window's,
  -- so that merging moves no entry past a cut. It returns true when done.
  local function settleCuts(now)
    for i = 1, #wins do
      if not bring(wins[i], now) then return false end
    end
    for i = 1, #wins do
      local w = wins[i]
      local target = lowerAt(w, now)
      loadAll()
      for op = 1, nops do
        local r = totals[op][w]
        if r and (r.cut < target or r.zcut < target) then
          r.cut, r.zcut = math.max(r.cut, target), math.max(r.zcut, target)
          touch(op)
        end
      end
    end
    return true
  end

  -- mergePage merges one page of a zset, of a quarter of the steps, since merging an entry costs
  -- much more than walking over it. It returns how far it got, and whether
  -- that is the end.
  local function mergePage(op, key, from, boundary, precs)
    local whole = limitSteps
    limitSteps = math.ceil(whole / 4)
    local list, n, reached, done = page(key, from, boundary, false)
    limitSteps = whole
    local ids, members = {}, {}
    for i = 1, n do
      local id = idOf(list[2 * i - 1])
      if string.sub(id, 1, 1) ~= ' ' then
        ids[#ids + 1] = id
        members[#members + 1] = list[2 * i - 1]
      end
    end
    if #ids == 0 then return reached, done end
    if key == zkey(op) then blocks.trim(op, boundary) end
    local slots, order = {}, {}
    for at = 1, #ids, 1000 do
      local to = math.min(#ids, at + 999)
      local found = redis.call('HMGET', keyE, unpack(ids, at, to))
      for i = at, to do
        local e = parse(found[i - at + 1])
        M.n = M.n - 1
        if e.state ~= 'r' and e.score > M.gone then
          local fin = ceilTo(e.score, precs[1])
          for j = 2, #precs do fin = math.min(fin, ceilTo(e.score, precs[j])) end
          local labels = string.match(e.labels, '^([^|]*|[^|]*|)') .. (marked(e) and '|o' or '')
          local name = int(fin) .. '|' .. labels
          local slot = slots[name]
          if not slot then
            slot = {op = op, units = 0, asked = 0, state = 'm', start = fin, score = fin, labels = labels}
            slots[name] = slot
            order[#order + 1] = slot
          end
          slot.units, slot.asked = slot.units + e.units, slot.asked + 1
        end
      end
      redis.call('ZREM', key, unpack(members, at, to))
      redis.call('HDEL', keyE, unpack(ids, at, to))
    end
    for i = 1, #order do
      local slot = order[i]
      M.rowno = M.rowno + 1
      local id = ' ' .. int(M.rowno)
      redis.call('ZADD', key, int(slot.score), int(slot.units) .. ',' .. int(slot.asked) .. ':' .. id)
      redis.call('HSET', keyE, id, pack(slot))
      M.n = M.n + 1
    end
    touch(op)
    M.emptied = true
    M.chg = M.chg + 1 -- walks under way counted them at their old scores
    for i = 1, #meters do
      if meters[i].reached ~= WHOLE then replayAnew(meters[i]) end
    end
    return reached, done
  end

  -- all merges everything due at now. It returns false if the steps ran out; the
  -- next run continues. While an export reads, no merging begins: see export.lua.
  function merging.all(now)
    if M.mpos == '' and now < M.pause then return true end
    if now < merging.at() then
      local target = string.match(M.mpos, '(%d+)$')
      if target then M.merged, M.mpos = math.max(M.merged, tonumber(target)), '' end -- a window has come that ends the merging
      return true
    end
    local boundary, precs = boundaryOf(now)
    if not settleCuts(now) then return false end
    local place, from, target = string.match(M.mpos, '^(%d+) (-?%d+) (%d+)$')
    local first = math.max(M.merged, M.gone) -- entries that no window counts are removed, not merged
    place, from, target = tonumber(place or 1), tonumber(from or first), tonumber(target or boundary)
    while place <= 3 * nops do
      local op = math.floor((place + 2) / 3)
      local key = zset(place)
      local reached, done = mergePage(op, key, from, target, precs)
      if not done then
        M.mpos = table.concat({place, int(reached), int(target)}, ' ')
        return false
      end
      place, from = place + 1, first
    end
    M.merged, M.mpos = target, ''
    return target == boundary or merging.all(now) -- time has passed since the merge began
  end
end
