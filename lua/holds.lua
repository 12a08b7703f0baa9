-- The holds of a ledger: what is kept for passes, and what their charges draw from it. Comes
-- within ledger.lua's scope, before load.
--
-- The field holds of m has how many were taken so far, and a line for each that lives, in the
-- order in which they were taken: number|fence|job|region|run|units|span|since|
-- until|needs. A need is
-- "operation's number:units:calls:name,", with what was not drawn. A reservation that drew from
-- one has a mark after its run: d, the hold's number, the place of the need, units and calls.

-- At a stage above 0, the holds that end up to then count no more. version changes whenever what
-- is held does. At most so many live, and one run answers at most so many stages of an item.
local holds = {list = {}, taken = 0, stage = 0, version = 0, most = 64, stages = 8}
do -- a block, because Lua limits the local names of a scope
  local LINE = '\n(%d+)|([^|]*)|([^|]*|[^|]*|[^|]*)|(%d+)|(%d+)|(%d+)|(%d+)|([^\n]*)'
  local list = holds.list

  local function holdOf(no, fence, labels, units, span)
    local job, region = string.match(labels, '^([^|]*)|([^|]*)')
    return {no = no, fence = fence, labels = labels, job = job, region = region, units = units, span = span}
  end

  function holds.load()
    holds.taken = tonumber(string.match(M.holds, '^%d+') or 0)
    for no, fence, labels, units, span, since, till, left in string.gmatch(M.holds, LINE) do
      local h = holdOf(tonumber(no), fence, labels, tonumber(units), tonumber(span))
      h.since, h.till, h.needs = tonumber(since), tonumber(till), {}
      for op, units, calls, name in string.gmatch(left, '(%d+):(%d+):(%d+):([^,]*),') do
        h.needs[#h.needs + 1] = {op = tonumber(op), units = tonumber(units), calls = tonumber(calls), name = name}
      end
      list[#list + 1] = h
    end
  end

  -- changed must be called when a hold comes, ends or is renewed: walks begin anew.
  local function changed() holds.version, M.chg = holds.version + 1, M.chg + 1 end

  -- drop ends the holds for which a function returns true.
  function holds.drop(ends)
    for i = #list, 1, -1 do
      if ends(list[i]) then
        table.remove(list, i)
        changed()
      end
    end
  end

  local function hasEnded(h) return h.till <= M.last end

  -- pass ends those whose lease is over.
  function holds.pass()
    if #list > 0 then holds.drop(hasEnded) end
  end

  -- fenced ends the holds of a pass.
  function holds.fenced(fence)
    holds.drop(function(h) return h.fence == fence end)
  end

  -- lineOf is a hold as a line.
  function holds.lineOf(h)
    local left = {}
    for i, need in ipairs(h.needs) do left[i] = fmt('%d:%s:%s:%s,', need.op, int(need.units), int(need.calls), need.name) end
    return table.concat({int(h.no), h.fence, h.labels, int(h.units), int(h.span), int(h.since), int(h.till), table.concat(left)}, '|')
  end

  -- lines are those of all that live.
  function holds.lines()
    local lines = {}
    for i = 1, #list do lines[i] = holds.lineOf(list[i]) end
    return lines
  end

  -- pack is the text of those that live.
  function holds.pack()
    holds.pass()
    if holds.taken == 0 then return '' end
    return table.concat({int(holds.taken), unpack(holds.lines())}, '\n')
  end

  -- named is the hold of a name, or nil.
  function holds.named(fence, region)
    for i = 1, #list do
      if list[i].till > holds.stage and list[i].fence == fence and list[i].region == region then return list[i] end
    end
    return nil
  end

  -- take adds a hold: an item whose needs are kept.
  function holds.take(item, till)
    holds.taken = holds.taken + 1
    local h = holdOf(holds.taken, item.fence, item.labels, item.units, item.span or 0)
    h.since, h.till, h.needs = M.last, till, item.needs
    list[#list + 1] = h
    changed()
  end

  -- ends are the instants at which holds end, each once, in order.
  function holds.ends()
    local all, seen = {}, {}
    for i = 1, #list do
      if not seen[list[i].till] then
        seen[list[i].till], all[#all + 1] = true, list[i].till
      end
    end
    table.sort(all)
    return all
  end

  local function isCovered(l, op)
    if not l.has then
      l.has = {}
      for i = 1, #l.covered do l.has[l.covered[i]] = true end
    end
    return l.has[op]
  end

  -- counts reports whether a limit counts a hold, and how much of it is left there.
  local function counts(l, h)
    local any, sum = false, 0
    for i = 1, l.shortest and l.shortest >= h.span and #h.needs or 0 do
      local need = h.needs[i]
      if isCovered(l, need.op) then any, sum = true, sum + (l.calls and need.calls or need.units) end
    end
    return any, sum
  end

  -- held is how much a limit has held, and by share.
  function holds.held(l)
    local sums = l.held
    if sums and sums.version == holds.version and sums.stage == holds.stage then return sums.all, sums end
    sums = {version = holds.version, stage = holds.stage, all = 0}
    l.held = sums
    for j = 1, l.shares and #l.shares or 0 do sums[j] = 0 end
    for i = 1, #list do
      local h = list[i]
      local _, amount = counts(l, h)
      if amount > 0 and h.till > holds.stage then
        sums.all = sums.all + amount
        for j = 1, h.job ~= '' and #sums or 0 do
          for _, pattern in ipairs(l.shares[j].jobs) do
            if matches(pattern, h.job) then
              sums[j] = sums[j] + amount
              break
            end
          end
        end
      end
    end
    return sums.all, sums
  end

  -- drawn returns the hold that a charge draws from, the place of its need there, and what it
  -- draws; nil without one.
  function holds.drawn(item)
    if #list == 0 or not item.fence or item.needs then return nil end
    local region = string.match(item.labels, '^[^|]*|([^|]*)')
    local h = holds.named(item.fence, region) or holds.named(item.fence, '')
    for place, need in ipairs(h and h.needs or {}) do
      if need.name == item.name then
        return {hold = h, place = place, units = math.min(item.units, need.units), calls = math.min(1, need.calls)}
      end
    end
    return h and {hold = h, units = 0, calls = 0}
  end

  -- takes is how much an item takes of the limit at a place beside what it draws, and whether
  -- floor and share are not checked there. What is drawn wholly takes its amount of what nobody has
  -- used, held or not: what is held falls as it is charged.
  function holds.takes(item, l, i, draw)
    local amount = item.amounts and item.amounts[i] or l.calls and 1 or item.units
    if not draw or not counts(l, draw.hold) then return amount, false end
    local beside = amount - (l.calls and draw.calls or draw.units)
    if beside == 0 then return amount - holds.held(l), true end
    return beside, false
  end

  -- draw takes what a charge draws. It returns the mark of its entry.
  function holds.draw(draw, open)
    if not draw or draw.units + draw.calls == 0 then return '' end
    local need = draw.hold.needs[draw.place]
    need.units, need.calls = need.units - draw.units, need.calls - draw.calls
    holds.version = holds.version + 1
    return open and fmt('|d%s:%d:%s:%d', int(draw.hold.no), draw.place, int(draw.units), draw.calls) or ''
  end

  -- finish gives back what an entry drew above the units that it ends at, and the call of one
  -- that is released; or it takes what the entry ends at above its units, as far as that is left.
  -- It takes the entry's mark away.
  function holds.finish(e, endUnits, released)
    local labels, no, place, drew, calls, rest = string.match(e.labels, '^([^|]*|[^|]*|[^|]*)|d(%d+):(%d+):(%d+):(%d+)(.*)$')
    if not no then return end
    e.labels = labels .. rest
    for i = 1, #list do
      if list[i].no == tonumber(no) and list[i].till > M.last then
        local need = list[i].needs[tonumber(place)]
        need.units = need.units + math.max(0, tonumber(drew) - endUnits)
        need.units = need.units - math.min(need.units, math.max(0, endUnits - e.units))
        if released then need.calls = need.calls + tonumber(calls) end
        changed()
      end
    end
  end
end
