-- How a charge compares an item with the limits, and what must return until it fits. Comes before
-- charge.lua, which sets the limits of the batch and the later clock.

-- more: the caller has to ask for more stages of the last item.
local weighing = {limits = {}, later = 0, more = false}
do -- a block, because Lua limits the local names of a scope
  -- resume reads a walk's progress: how far each limit's walk got, and what it had
  -- freed plus what had returned before. The progress is valid while nothing that the
  -- walk passed was settled or released, and for the part that still counts.
  local function resume(progress)
    local chg, newest, seen, rest = string.match(progress, '^(%d+) (%d+) (%d+) (%S*)')
    local known = {}
    if not chg or tonumber(chg) ~= M.chg then return known end
    for i, pos, freed in string.gmatch(rest, '(%d+):(-?%d+):(%d+)') do
      if tonumber(pos) <= tonumber(seen) or tonumber(newest) == M.newest then
        local l = weighing.limits[tonumber(i)]
        if tonumber(pos) > l.win.adv then known[tonumber(i)] = {tonumber(pos), tonumber(freed) - back(l)} end
      end
    end
    return known
  end

  -- spent is what a limit has used.
  function weighing.spent(l)
    if l.meter then return (levelAt(l.meter, M.last)) end
    return used(l)
  end

  -- weigh compares an item with the limits at a stage of the holds, and finds what must return
  -- until it fits those that refuse it; with asked false, only whether one does. closed: something
  -- else refuses it.
  function weighing.weigh(item, stage, asked)
    local to = {refused = false, scores = {}, came = {}, shared = {}, again = false, observed = 0, damaged = nil}
    local known, draw = nil, nil
    holds.stage, item.takes, item.free = stage, {}, {}
    draw = holds.drawn(item)
    local begins = math.max(M.last, weighing.later, item.needs and 0 or M.newest + 1)
    for i = 1, item.age and 0 or #weighing.limits do
      local l, bound = weighing.limits[i], item.bounds[i]
      local takes, free, taken = 0, false, 0
      if bound < UNBOUND then
        takes, free = holds.takes(item, l, i, draw)
        if free then bound = (item.rooms or item.bounds)[i] end
        taken = weighing.spent(l) + holds.held(l)
      end
      item.takes[i], item.free[i] = takes, free
      local deficit = bound < UNBOUND and taken + takes - bound or 0
      local fits, kept = deficit <= 0, nil
      if l.shares and bound < UNBOUND and not free then
        local within
        within, kept = shares.divides(l, item.own[i], (item.rooms or item.bounds)[i] - takes, begins + math.max(item.lease, item.needs and item.span or 0))
        fits = fits and within
      end
      if not fits and l.observe then
        if to.observed == 0 then to.observed = i end
        fits = true
      end
      if not fits then
        addNow()
        to.refused = true
      end
      if fits or not asked then -- nothing to wait for
      elseif l.shares then
        local met, progress, bad = shares.waitShared(l, i, item, kept)
        to.scores[i], to.again, to.damaged, to.shared[#to.shared + 1] = met, to.again or not met, to.damaged or bad, progress
      elseif l.meter then
        local _, part = levelAt(l.meter, M.last)
        to.scores[i] = int(part) .. '/' .. int(math.max(l.meter.at, M.last))
      elseif deficit > weighing.spent(l) and #holds.list > 0 then
        to.scores[i] = '-1' -- what is held is too much
      else
        known = known or resume(item.progress or '')
        local from = known[i] or {-1, 0}
        local score, pos, freed = walk(l, from[1], from[2], deficit)
        if score == nil then to.again = true else to.scores[i] = int(score) end
        if score == 0 then to.damaged = i end
        if pos and pos >= 0 then to.came[#to.came + 1] = i .. ':' .. int(pos) .. ':' .. int(freed + back(l)) end
      end
    end
    return to
  end

  -- lapse adds to what weigh found the wait for the limits that may refuse the item later.
  function weighing.lapse(item, to)
    for i = 1, not to.again and #weighing.limits or 0 do
      local l = weighing.limits[i]
      if (#l.lapses > 0 or l.spells) and not l.observe and not to.scores[i] and item.bounds[i] < UNBOUND then
        addNow()
        local met, progress, bad = shares.waitShared(l, i, item)
        to.scores[i], to.again, to.damaged, to.shared[#to.shared + 1] = met and '=' .. met, to.again or not met, to.damaged or bad, progress
      end
    end
  end

  -- progressOf is how far the walks of an item got.
  function weighing.progressOf(to)
    return table.concat({int(M.chg), int(M.newest), int(M.last), table.concat(to.came, ','), table.concat(to.shared, ';')}, ' ')
  end

  -- stagesFrom answers what a refused item waits for once holds have ended: those from an instant
  -- on, until the steps run out. It returns how far the walks of the next stage got, and whether
  -- the caller has to ask for more.
  function weighing.stagesFrom(item, from, stages, closed)
    for _, till in ipairs(holds.ends()) do
      if till >= from then
        local begun = item.from == till
        if #stages == holds.stages or steps >= limitSteps and not (begun and #stages == 0) then return '', true, nil end
        if not begun then item.progress = nil end
        local to = weighing.weigh(item, till, true)
        weighing.lapse(item, to)
        holds.stage = 0
        if to.damaged then return '', true, to.damaged end
        if to.again then return weighing.progressOf(to), true, nil end
        local stage, waits = {int(till)}, false
        for i = 1, #weighing.limits do
          stage[1 + i], waits = to.scores[i] or 0, waits or to.scores[i]
        end
        stages[#stages + 1] = stage
        if not waits and not closed then return '', false, nil end -- it fits then
      end
    end
    return '', false, nil
  end
end
