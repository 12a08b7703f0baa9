-- Decides a batch of charges for one budget in one step, or brings its totals
-- up to date if the batch is empty.
--
-- KEYS  m, e, then z:<op>, y:<op> and r:<op> for each operation in order of
--       number, new ones included; to recover, for all that there may be; then h:<day>
--       and l:<day> for the days of the history
-- ARGV  1 chargeArgs
-- Returns {status, clock, …}:
--   0 {…, items, born, now, looks, used per limit or empty: ask again, locks as m
--     has them, for a look, {the ledger's id, its changes, the newest charge's id,
--     its time, hosts as m has them, until when a loss holds charges back or 0, share
--     tables as m has them, what usual.lua needs, the records of what shares need as m has them, up
--     to when the ledger is there for sure}, for a
--     look which of the further marks' charges are missing; for a look the living holds, see
--     holds.lua, and how many entries there are}
--     An item is {result, replayed, units, at, limit, progress, used and score per
--     limit}. result is a driver.Result, or 100: again, or 101: its totals exceed its
--     entries. For a grant, limit is the first in observe mode that would have refused
--     the item, one past the last for a lock on the budget. For a refusal, at is when,
--     and progress has a line for each lock on the item: limit, 0 for the budget or -1 for a loss;
--     until; why. For a replay, progress is the entry's state (x: open, with its lease
--     over) and its labels. For a bucket that refuses, the score is part/at of its level. used is
--     with what is held. A refusal beside living holds goes by stages: it is as if none of them
--     ever ended, with the score -1 if no use fits then, or, where limit is 1, without scores, since
--     it goes on with further stages. Then follows {when holds end, stages, how far the walks of
--     the next stage got}: a stage is an instant at which some end, and the scores as if all
--     that end up to then had ended, and the others never did. Items after it may be left.
--     A look is {used, floor, least score that counts or 0, the sum, where the sum
--     ended: empty at its end, how much of used was recovered, and drifted}; for a
--     bucket {used, part, at}; for a recovery {the recovered amount, where the sum
--     ended: empty if done}; for a report {added, the drift in total, its score}.
--   1 {…, names to register, by comma} again: the totals are not up to date yet
--   2 {…, operations by comma, patterns of jobs whose charges are counted apart}
--   3 now, for which calendar periods are needed 4 the clock jumped
--   5 {…, what is wrong}: damaged                6 {…, version}: newer format
--   7 the ledger has lost something that the caller's mark shows
--   9 {…, the records of what shares need}, which are not those that the guarantees are by
--   8 {…, days by comma} whose keys are needed beside the given ones

local raw = clock()
local unfit = load(raw)
if unfit then return unfit end
local looking, recovering, reporting = args.mode == 'look', args.mode == 'recover' or args.mode == 'begin anew', args.mode == 'report'
local broke = recovering and broken()
local anew = args.mode == 'begin anew' and broke
if anew then blank() end
unfit = check(raw, #args.add, broke, anew)
if unfit then return unfit end

if args.plans and args.plans ~= M.plans then return {9, int(raw), M.plans} end

limitSteps = args.steps
local now, later = moment(raw, args.now)
local drains = drainsFrom(now, later)
local goesOn = args.mode == 'go on' and M.v -- no v: the ledger was lost between two runs
if goesOn then now = M.last end
for i = 1, #args.windows do
  local w = args.windows[i]
  if w.p0 and (now < w.p0 or now >= w.p2) then return {3, int(raw), int(now)} end
end

if not looking then
  local unknown = history.missing(raw, now, math.max(now, later, M.newest) + #args.items, args.items)
  if unknown then return unknown end
end

local task = args.import -- only with import.lua in front
if task and task.at - later > TOLERANCE then return {4, int(raw)} end

local told = args.told
if looking and not M.v then
  local lower = now - HELD
  for i = 1, #args.windows do lower = math.min(lower, lowerOf(args.windows[i], now)) end
  if told[1].id ~= '' and told[1].at > lower or args.ledger ~= '' and not dropped(now, lower) then return {7, int(raw)} end
  local missing = {}
  for i = 2, #told do
    if told[i].at > lower then missing[#missing + 1] = i - 1 end
  end
  -- A write that changes nothing: a server that refuses writes must refuse a look too.
  -- Otherwise each look would report that the store is within reach again.
  redis.call('PEXPIREAT', keyE, '0')
  return {0, int(raw), {}, '0', int(now), {}, {}, '', {'', 0, '', 0, '', 0, '', {'', '', 0, {}, {}}, '', 0}, missing, {}, 0}
end
if M.lid == '' then M.lid = args.candidate end

-- planned is what the caller must know for usual.lua: the head, empty where that is of no
-- use to it; the windows; how many covers there are; the places of those that it asked for; and
-- the meters, key and patterns each.
local places
local function planned()
  if not places or args.mode ~= '' and args.mode ~= 'go on' or (isNoted() and true) ~= (args.kept and true) or string.sub(M.head, 1, 1) == '-' then
    return {'', '', 0, {}, {}}
  end
  local keys, metered = {}, {}
  for i = 1, #wins do keys[i] = wins[i].key end
  for i = 1, #meters do metered[i] = meters[i].key .. ' ' .. meters[i].patterns end
  return {M.head, table.concat(keys, ' '), #allCovers, places, metered}
end

-- mark is the ledger's mark, for the caller. A ledger that is dropped at exp may be followed by
-- one that is born earlier, by a caller's clock.
local function mark()
  return {M.lid, int(M.seq), M.nid, int(M.nid == '' and 0 or M.newest), M.hosts, int(lossNow(args.hosts) or 0), M.tables, planned(), M.plans,
    int((M.exp * 1000) - TOLERANCE)}
end

-- From here on the script writes to the ledger.
if anew then forgetAll() end
local born = not M.v
if born then M.born = now end
if born and task and task.born > 0 then M.born, M.gone = math.min(task.born, now), math.min(task.gone, now) end
if M.n == 0 then
  -- Try each writing command while the ledger is empty: a missing permission must
  -- not show halfway through a write.
  redis.call('HDEL', keyE, '')
  redis.call('ZREM', history.own > 2 and zkey(1) or keyE, '')
  redis.call('ZREMRANGEBYRANK', history.own > 2 and zkey(1) or keyE, '0', '0')
  redis.call('PEXPIREAT', keyE, '0')
  history.try()
  redis.call('HSET', keyM, 'born', int(M.born))
end
if #args.add > 0 then
  preload({1}) -- see newRow
  for op = nops + 1, nops + #args.add do touch(op) end -- each has a row, for usual.lua
  nops = nops + #args.add
  M.ops = (M.ops == '' and '' or M.ops .. ',') .. table.concat(args.add, ',')
end
if #args.split > 0 then
  M.split = (M.split == '' and '' or M.split .. ',') .. table.concat(args.split, ',')
  M.spos = M.n > 0 and '1 -1' or ''
end
if #args.add + #args.split > 0 then
  -- What a limit covers may be more now. A script that needs a cover asks for it again,
  -- since every plan depends on the signature.
  for i = 1, #allCovers do allCovers[i].win, allCovers[i].key = nil, '-' end
  M.sig = redis.sha1hex(M.ops .. (M.split == '' and '' or ';' .. M.split))
end
M.last = now
local batch = use(args.windows, now)
if args.mode ~= 'go on' or born then M.gone = math.max(M.gone, horizon(now)) end
if args.mode ~= 'look' and not merging.all(now) then
  save(born)
  return {1, int(raw), ''}
end
if args.divided then
  local moved, toRegister = shares.moveAll(now)
  if not moved then
    save(born or #args.add > 0)
    return {1, int(raw), table.concat(toRegister, ',')}
  end
end
local batchMeters = useMeters(args.meters, now)

local function bringAll()
  for i = 1, #batch do
    local w = batch[i]
    if not w.len and M.last >= w.p2 then return false end
    if not bring(w, M.last) then return false end
  end
  for i = 1, #batchMeters do
    if not replay(batchMeters[i], M.last) then return false end
  end
  return true
end
if not bringAll() then
  save(born)
  return {1, int(raw), ''}
end

local limits = args.limits
for i = 1, #limits do
  local l = limits[i]
  l.win, l.meter, l.all = batch[l.window], batchMeters[l.bucket], #l.covered == nops
  l.nextWin, l.guard, l.lapses = l.next and batch[l.next], l.guard or 0, l.lapses or {}
  for field, value in pairs(l.task or {}) do l[field] = value end
end
places = useCovers(args.covers, limits, M.last)

local items, ids, wanted = args.items, {}, {}
for i = 1, #items do
  ids[i] = items[i].id
  if not items[i].needs then wanted[#wanted + 1] = items[i].op end
end
for i = 1, #limits do
  local l = limits[i]
  for j = 1, l.win and not l.all and not l.cover and #l.covered or 0 do wanted[#wanted + 1] = l.covered[j] end
end
preload(wanted)

local entries, written = {}, {}
for i = 1, #told do ids[#ids + 1] = told[i].id end
local found = redis.call('HMGET', keyE, unpack(ids))
for i = 1, #items do entries[ids[i]] = parse(found[i]) end
local lost, missing = false, {}
for i = 1, #told do
  local e = parse(found[#items + i])
  local held = e and e.score > M.gone -- else absent, or forgotten and not removed yet
  if told[i].id ~= '' and told[i].at > math.max(M.gone, M.merged) and not held then
    lost = lost or i == 1 or not looking
    if i > 1 then missing[#missing + 1] = i - 1 end
  end
end
lost = lost or args.ledger ~= '' and args.seen > M.reset and (M.lid ~= args.ledger or M.seq < args.changes) and not dropped(M.born, M.gone)
local fresh = born or #args.add > 0
if task then
  local imported = importRows()
  limitSteps = WHOLE
  bringAll()
  save(true)
  return {0, int(raw), {}, int(M.born), int(M.last), {imported}, {0}, '', mark(), {}, {}, int(M.n)}
end
if recovering then
  lost = lost or goneLedger()
  local recovered, done = recoverAll(limits, lost)
  if lost and done then report(args.host, args.candidate) end
  save(fresh)
  return {0, int(raw), {}, int(M.born), int(M.last), recovered, {0}, '', mark(), {}, {}, int(M.n)}
end
if reporting then
  local reported = {}
  for i = 1, #limits do
    local added, total, score = 0, 0, 0
    if limits[i].counted then added, total, score = drift(limits[i], later) end
    reported[i] = {int(added), int(total), int(score)}
  end
  save(fresh)
  return {0, int(raw), {}, int(M.born), int(M.last), reported, {0}, '', mark(), {}, {}, int(M.n)}
end
if not looking and not goesOn then note(args.host, args.table) end -- a batch's first run has noted them
if lost then
  save(fresh)
  return {7, int(raw)}
end

weighing.limits, weighing.later = limits, later

local function reply(result, replayed, units, at, limit, progress, scores)
  local r = {result, replayed and 1 or 0, units, at, limit, progress} -- Redis returns whole numbers below 2^53 exactly
  for i = 1, #limits do
    r[5 + 2 * i] = math.min(weighing.spent(limits[i]) + holds.held(limits[i]), MAXSUM)
    r[6 + 2 * i] = scores[i] or 0
  end
  return r
end

local lossTill = not looking and lossNow(args.hosts)

local function decide(item)
  if raw > item.deadline then return reply(5, false, 0, 0, 0, '', {}) end
  local recorded = item.age ~= nil
  if item.fence and not recorded and lockOn(item.fence) then return reply(10, false, 0, 0, 0, '', {}) end
  if not bringAll() then return reply(100, false, 0, 0, 0, '', {}) end
  holds.pass()
  if item.needs and not item.dry then
    local h = holds.named(item.fence, string.match(item.labels, '^[^|]*|([^|]*)'))
    if h then return reply(1, true, h.units, h.since, 0, 'p' .. h.labels, {}) end
  end
  local e = not item.dry and not item.needs and entries[item.id] or nil
  local old = nil
  if e and not held(e) then old, e = e, nil end
  if e then
    if e.op ~= item.op and baseOf(e.op) ~= baseOf(item.op) or e.asked ~= item.units or (e.state ~= 'p') ~= (item.lease > 0) then
      return reply(4, false, 0, 0, 0, '', {})
    end
    local state = e.state == 'o' and e.score <= M.last and 'x' or e.state
    return reply(1, true, e.asked, e.start, 0, state .. e.labels, {})
  end
  local draw = item.never and holds.drawn(item)
  for _, at in ipairs(not recorded and item.never or {}) do
    local i = math.abs(at)
    local _, free = holds.takes(item, limits[i], i, draw)
    if at > 0 or not free then return reply(3, false, 0, 0, i, '', {}) end
  end
  local to = weighing.weigh(item, 0, not item.from)
  local ends = holds.ends()
  if item.from and to.refused and (ends[#ends] or 0) < item.from then -- those that it waited for are gone
    item.from, item.progress = nil, nil
    to = weighing.weigh(item, 0, true)
  end
  local closed, observed = {}, to.observed
  if not recorded and M.locks ~= '' then observed = askLocks(limits, item, args.observe, closed, observed) end
  if lossTill and lossTill > M.last and not recorded then -- it may end within the batch
    if not args.observe then
      closed[#closed + 1] = '-1 ' .. int(lossTill) .. ' '
    else
      observed = #limits + 1
    end
  end
  local refused = to.refused or #closed > 0
  if refused and not item.from then weighing.lapse(item, to) end
  if to.damaged then return reply(101, false, 0, 0, to.damaged, '', {}) end
  if to.again then return reply(100, false, 0, 0, 0, weighing.progressOf(to), {}) end
  if refused then
    local r = reply(2, false, 0, M.last, item.from and 1 or 0, table.concat(closed, '\n'), to.scores)
    if #holds.list > 0 then
      local stages = {}
      local progress, more, bad = weighing.stagesFrom(item, item.from or 0, stages, #closed > 0)
      if bad then return reply(101, false, 0, 0, bad, '', {}) end
      for k = 1, #ends do ends[k] = int(ends[k]) end
      weighing.more, r[#r + 1] = more, {ends, stages, progress}
    end
    return r
  end
  if item.needs then
    if item.units > MAXUNITS or #holds.list >= holds.most then return reply(6, false, 0, 0, 0, '', {}) end
    if not item.dry then holds.take(item, math.max(M.last, later) + item.lease) end
    return reply(1, false, item.units, item.dry and 0 or M.last, observed, '', {})
  end
  for i = 1, #batch do
    if star(batch[i]).units + item.units > MAXUNITS and star(batch[i]).units - pseudoUnits(batch[i]) + item.units > MAXUNITS then return reply(6, false, 0, 0, 0, '', {}) end
  end

  if item.dry then return reply(1, false, item.units, 0, observed, '', {}) end
  local at = math.max(M.last, later, M.newest + 1)
  if recorded then at = math.max(M.last, later) - item.age end
  local new = {op = item.op, asked = item.units, units = item.units, state = 'p', start = at, score = at, labels = item.labels}
  if observed > 0 then
    new.labels, M.marks = new.labels .. '|o', '1'
  end
  if item.lease > 0 then new.state, new.score = 'o', new.score + item.lease end
  if recorded and new.score <= math.max(M.gone, horizon(M.last)) then return reply(1, false, item.units, at, 0, '', {}) end
  new.score = math.max(new.score, M.merged + 1)
  new.labels = item.labels .. holds.draw(holds.drawn(item), item.lease > 0) .. string.sub(new.labels, #item.labels + 1)
  if recorded then M.chg = M.chg + 1 end -- a walk under way may have passed it
  if old then -- the ledger no longer holds its id: remove it, and let no window count from before it, unless it was forgotten already
    addNow()
    if old.score > M.gone then M.gone = math.max(M.gone, horizon(M.last)) end
    local key, member, zero = place(old, item.id)
    redis.call('ZREM', key, member)
    addAll(old.op, old.score, old.units, callsOf(old), zero, -1, old.state)
    M.n, M.emptied = M.n - 1, true
  end
  if at > M.newest then M.newest, M.nid = at, item.id end
  if at == M.last + 1 then M.last = at end -- the next of several at one instant
  local key, member, zero = place(new, item.id)
  addLater(key, int(new.score), member)
  if not there[key] then there[key], fresh = true, true end
  addAll(new.op, new.score, new.units, 1, zero, 1, new.state)
  history.spent(new)
  for i = 1, #meters do
    local m = meters[i]
    if new.score > m.reached or not covers(m, new.op) then -- it is not counted, or not yet
    elseif recorded and m.reached ~= WHOLE then
      replayAnew(m)
    else
      pour(m, m.calls and 1 or new.units, 0, M.last, drains)
    end
  end
  written[#written + 1], written[#written + 2] = item.id, pack(new)
  entries[item.id], stateOf[item.id] = new, new.state
  M.n, M.seq = M.n + 1, M.seq + 1
  if recorded then -- it may be too old to count: one entry a window, everything else is up to date
    local steps = limitSteps
    limitSteps = WHOLE
    bringAll()
    limitSteps = steps
  end
  return reply(1, false, item.units, at, observed, '', {})
end

-- Decide the items in order: those after an unfinished one wait for it, and those for which
-- no steps are left for the next run.
local answers, waiting = {}, false
for i = 1, #items do
  answers[i] = waiting and reply(100, false, 0, 0, 0, items[i].progress or '', {}) or decide(items[i])
  waiting = waiting or answers[i][1] == 100 or weighing.more or steps >= limitSteps
end
addNow()
for from = 1, #written, 1000 do
  redis.call('HSET', keyE, unpack(written, from, math.min(#written, from + 999)))
end

for i = 1, #items do
  if not items[i].needs then blocks.make(items[i].op, args.block) end
end
for i = 1, #args.tidy do blocks.make(args.tidy[i], args.block) end
if #args.tidy > 0 then history.tidy() end

local looks, least = {}, {}
for i = 1, looking and #limits or 0 do least[i] = leastOf(limits[i]) end
steps = 0
for i = 1, #least do looks[i] = lookAt(limits[i], least[i]) end

-- Remove entries that are not held and that no total counts, a few hundred at a time.
if M.last >= M.prune and not looking then
  local safe = M.gone
  for i = 1, #wins do safe = math.min(safe, wins[i].adv) end
  local room, done = math.min(500, limitSteps - steps), true
  for op = 1, nops do
    for _, key in ipairs({zkey(op), ykey(op), rkey(op)}) do
      local list = room > 0 and redis.call('ZRANGEBYSCORE', key, '-inf', int(safe), 'LIMIT', '0', int(room)) or {}
      if #list > 0 then
        for i = 1, #list do list[i] = idOf(list[i]) end
        redis.call('ZREMRANGEBYRANK', key, '0', int(#list - 1))
        redis.call('HDEL', keyE, unpack(list))
        touch(op)
        M.n, room = M.n - #list, room - #list
      end
      if room <= 0 then done = false end
    end
  end
  local longest = HELD
  for i = 1, #wins do longest = math.max(longest, wins[i].longest) end
  M.prune = done and M.last + math.floor(longest / 64) or M.last
end
local total = {}
if bringAll() then
  for i = 1, #limits do total[i] = weighing.spent(limits[i]) end
  total[#limits + 1] = 0
  for i = 1, #wins do -- usual.lua leaves the ledger alone while any window or bucket is being counted
    if star(wins[i]).due == 0 and not bring(wins[i], M.last) then break end
  end
  for i = 1, looking and 0 or #meters do
    if not replay(meters[i], M.last) then break end
  end
end
save(fresh)
return {0, int(raw), answers, int(M.born), int(M.last), looks, total, looking and M.locks or '', mark(), looking and missing or {}, looking and holds.lines() or {}, int(M.n)}
