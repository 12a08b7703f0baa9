-- Windows for charge.lua: brings their totals up to date in bounded steps, and begins
-- and drops windows. Comes after ledger.lua.

local bring, use, useCovers
do -- a block, because Lua limits the local names of a scope
  -- gather sums a page of a zset; with open, only open reservations. It returns units,
  -- calls, the score up to which it got, and whether that is the end.
  local gather
  function gather(key, zero, from, to, up, open, op)
    if op and not zero and not open then
      local begins, ends, units, calls = blocks.whole(op, from, to)
      if ends then
        local first, firstCalls, reached, done = gather(key, zero, from, begins, false)
        if not done then return first, firstCalls, reached, done end
        local rest, restCalls
        rest, restCalls, reached, done = gather(key, zero, ends, to, up)
        return first + units + rest, firstCalls + calls + restCalls, reached, done
      end
    end
    local list, n, reached, done = page(key, from, to, up)
    local units, calls = 0, 0
    for i = 1, n do
      local member = list[2 * i - 1]
      if not open or isOpen(member) then
        calls = calls + callsIn(member)
        if not zero then units = units + unitsOf(member) end
      end
    end
    return units, calls, reached, done
  end

  -- first is the smallest score above cut, or nil.
  local function first(key, cut)
    local list = redis.call('ZRANGEBYSCORE', key, '(' .. int(cut), '+inf', 'WITHSCORES', 'LIMIT', '0', '1')
    return list[2] and tonumber(list[2])
  end

  -- dueOf is the instant at which the first entry of a row leaves its rolling window.
  local function dueOf(w, op, r)
    local z, y = first(zkey(op), r.cut), first(ykey(op), r.zcut)
    local score = z
    if y and (not z or y < z) then score = y end
    return score and leaves(w, score) or NEVER
  end

  -- advance subtracts entries that have left the window from one row. It returns true when
  -- done.
  local function advance(w, op, target)
    local r = row(w, op)
    for _, zero in ipairs({false, true}) do
      local key = zero and ykey(op) or zkey(op)
      local cut = zero and r.zcut or r.cut
      if cut < target then
        local units, calls, reached, done = gather(key, zero, cut, target, false, w.len == 0, op)
        count(w, op, -units, -calls)
        comeBack(w, op, units, calls)
        if zero then r.zcut = reached else r.cut = reached end
        if not done then return false end
      end
    end
    r.due = dueOf(w, op, r)
    return true
  end

  -- build counts the entries above a row's cut into the row. It returns true when done.
  local function build(w, op)
    local r = row(w, op)
    for _, zero in ipairs({false, true}) do
      local key = zero and ykey(op) or zkey(op)
      local built = zero and r.zbuilt or r.built
      if built < WHOLE then
        local units, calls, reached, done = gather(key, zero, built, WHOLE, true, w.len == 0, op)
        count(w, op, units, calls)
        if zero then r.zbuilt = reached else r.built = reached end
        if not done then return false end
      end
    end
    if w.len then r.due = dueOf(w, op, r) end
    return true
  end

  -- restart empties a window's rows, to be built from cut upwards.
  local function restart(w, cut, period)
    loadAll()
    for op = 1, nops do
      local old = totals[op][w]
      totals[op][w] = {units = 0, calls = 0, cut = cut, built = cut, zcut = cut, zbuilt = cut, due = NEVER, was = old and old.was, bunits = 0, bcalls = 0}
      touch(op)
    end
    w.star = {units = 0, calls = 0, due = 0, period = period, bunits = 0, bcalls = 0}
    for i = 1, #allCovers do
      if allCovers[i].win == w then allCovers[i].units, allCovers[i].calls = 0, 0 end
    end
  end

  -- recount empties one row of a window that counts open reservations, to be built anew
  -- from those that are open after now. Subtracting the ended ones would read the plain
  -- charges among them too.
  local function recount(w, op, now)
    local r = row(w, op)
    count(w, op, -r.units, -r.calls)
    r.cut, r.built, r.zcut, r.zbuilt, r.due = now, now, now, now, NEVER
    M.chg = M.chg + 1
  end

  -- bring brings a window's totals to now. It returns false if the steps ran out; the next
  -- run continues.
  function bring(w, now)
    local s = star(w)
    if w.len then
      local target = lowerAt(w, now)
      if s.due <= now then
        addNow()
        loadAll()
        local due = NEVER
        s.due = 0 -- until all is done
        for op = 1, nops do
          local r = row(w, op)
          if w.len == 0 and r.due <= now and r.due < NEVER then recount(w, op, now) end
          if r.built < WHOLE or r.zbuilt < WHOLE then
            if not build(w, op) then return false end
          end
          if r.due <= now and not advance(w, op, target) then return false end
          due = math.min(due, r.due)
        end
        s.due = due
      end
      w.adv = target
      return true
    end
    if w.p0 then -- else no limit of the batch has it, and its period is not known here
      local start = w.p0
      if now >= w.p1 then start = w.p1 end
      if s.period ~= start then
        restart(w, math.max(now >= w.p1 and w.c1 or w.c0, w.floor), start)
        M.chg = M.chg + 1 -- entries that walks have passed no longer count
        s = star(w)
      end
      w.adv = now >= w.p1 and w.c1 or w.c0
    end
    if s.due ~= NEVER then -- a calendar's due only means that it is not built yet
      addNow()
      loadAll()
      for op = 1, nops do
        if not build(w, op) then return false end
      end
      s.due = NEVER
    end
    return true
  end

  -- useCovers gives limits and their shares covers: asked has the place of each such limit,
  -- and 0 or that of its share. It returns the covers' places in the batch's order; 0: there is
  -- no room for it. A cover that is not used for a day makes room for others.
  function useCovers(asked, limits, now)
    local MAXCOVERS = 48
    local places = {}
    for i = 1, #asked do
      local l = limits[asked[i][1]]
      local to = l.shares and l.shares[asked[i][2]] or l
      local win, ops, free = l.win, to.ops or to.covered, nil
      local key = 'o:' .. string.sub(redis.sha1hex(table.concat(ops, ',')), 1, 16)
      for j = 1, #allCovers do
        local c = allCovers[j]
        if c.win == win and c.key == key then
          places[i] = j
          if now - c.used >= HOUR then c.used = now end
        elseif not free and (not c.win or now - c.used >= DAY) then
          free = j
        end
      end
      if not places[i] and not free and #allCovers < MAXCOVERS then free = #allCovers + 1 end
      if not places[i] and free then
        local c, counts = {win = win, key = key, used = now, units = 0, calls = 0}, {}
        allCovers[free], places[i] = c, free
        for j = 1, #ops do counts[ops[j]] = true end
        loadAll()
        for op = 1, nops do
          local o = totals[op]
          if isIn(free, o) ~= (counts[op] or false) then
            o.mask = o.mask + (counts[op] and 1 or -1) * 2 ^ (free - 1)
            touch(op)
          end
          if counts[op] then
            local r = row(win, op)
            c.units, c.calls = c.units + r.units, c.calls + r.calls
          end
        end
      end
      to.cover, places[i] = places[i], places[i] or 0
    end
    return places
  end

  -- use makes a batch's windows live: {key, longest, p0, p1, p2, c0, c1} each. It returns
  -- them in the batch's order.
  function use(asked, now)
    for i = #wins, 1, -1 do
      local w = wins[i]
      if now > w.used + w.longest + WEEK then
        winByKey[w.key] = nil
        table.remove(wins, i)
      end
    end
    local batch = {}
    for i = 1, #asked do
      local a = asked[i]
      local w = winByKey[a.key]
      if not w then
        w = {key = a.key, kind = string.sub(a.key, 1, 1), used = now, floor = M.gone, adv = M.gone}
        shape(w)
        wins[#wins + 1] = w
        winByKey[a.key] = w
        w.fresh = true
      end
      w.longest, w.p0, w.p1, w.p2, w.c0, w.c1 = a.longest, a.p0, a.p1, a.p2, a.c0, a.c1
      if now - w.used >= HOUR then w.used = now end
      if not w.len then
        w.start, w.lower = w.p0, w.c0
        if now >= w.p1 then w.start, w.lower = w.p1, w.c1 end
      end
      batch[i] = w
    end
    for i = 1, #batch do
      local w = batch[i]
      if w.fresh then
        w.fresh = nil
        if w.len then
          restart(w, math.max(lowerAt(w, now), w.floor), 0)
        else
          restart(w, math.max(w.lower, w.floor), w.start)
        end
      end
      if not w.len then w.adv = w.lower end
    end
    return batch
  end
end
