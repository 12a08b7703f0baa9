-- Reading and writing a ledger, and what the scripts on one share. Comes after
-- totals.lua.

-- The fields of m that are written when they change.
local TEXTS = {'v', 'ops', 'sig', 'wins', 'covers', 'meters', 'mpos', 'locks', 'marks', 'lid', 'loss', 'hosts', 'split', 'spos', 'tables', 'holds', 'plans'}
local NUMBERS = {'born', 'chg', 'exp', 'prune', 'gone', 'merged', 'rowno'}

-- load reads m. It returns the answer where m is of another format, else nil. M.torn: the
-- totals are missing, or not those of the windows.
local function load(raw)
  local f = redis.call('HMGET', keyM, 'v', 's', 'covers', 'born', 'pause', 'split', 'ops', 'wins', 'chg', 'exp', 'prune', 'gone', 'sig',
    'meters', 'merged', 'rowno', 'mpos', 'locks', 'marks', 'lid', 'spos', 'loss', 'hosts', 'reset', 'tables', 'unnoted', 'holds', 'plans')
  M.v = f[1]
  if M.v and M.v ~= FORMAT and M.v ~= HOLDING then return {6, int(raw), M.v} end
  M.last, M.newest, M.n, M.seq, M.nops, M.nid = 0, 0, 0, 0, 0, ''
  M.covers, M.born, M.pause, M.split = f[3] or '', tonumber(f[4] or 0), tonumber(f[5] or 0), f[6] or ''
  M.ops, M.wins, M.chg, M.exp, M.prune, M.gone = f[7] or '', f[8] or '', tonumber(f[9] or 0), tonumber(f[10] or 0), tonumber(f[11] or 0), tonumber(f[12] or 0)
  M.sig, M.meters, M.merged, M.rowno, M.mpos = f[13] or '', f[14] or '', tonumber(f[15] or 0), tonumber(f[16] or 0), f[17] or ''
  M.locks, M.marks, M.lid, M.spos, M.loss = f[18] or '', f[19] or '', f[20] or '', f[21] or '', f[22] or ''
  M.hosts, M.reset, M.tables, M.holds = f[23] or '', tonumber(f[24] or 0), f[25] or '', f[27] or ''
  M.plans = f[28] or ''
  for key, longest, used, floor in string.gmatch(M.wins, '([^%s;]+) (%d+) (%d+) (-?%d+)') do
    local w = {key = key, kind = string.sub(key, 1, 1), longest = tonumber(longest), used = tonumber(used), floor = tonumber(floor)}
    shape(w)
    wins[#wins + 1] = w
    winByKey[key] = w
  end
  loadMeters()
  M.torn = M.v and not loadState(f[2])
  M.unnoted = tonumber(f[26] or M.v and M.newest or 0)
  for name, value in pairs(M) do saved[name] = value end
  if not f[26] then saved.unnoted = nil end
  loadLocks()
  if f[27] then holds.load() end
  nops = M.nops
  return nil
end

-- there has the zsets that hold something. M.emptied: one of them may have been
-- empty for a moment, and with it lost when it is to expire.
local there = {}

-- counted compares the entries there are with those there should be; every
-- key's type is checked by it before anything is written, those of the
-- operations still to be registered too.
local function counted(more)
  if M.torn then return 'm lacks the totals of its windows or buckets' end
  local held = redis.call('HLEN', keyE)
  if held ~= M.n then return fmt('e holds %d entries, m says %.0f', held, M.n) end
  local sorted = 0
  for op = 1, nops + more do
    for i = 3 * op, 2 + 3 * op do
      local n = redis.call('ZCARD', KEYS[i])
      if n > 0 then there[KEYS[i]] = true end
      sorted = sorted + n
    end
  end
  if sorted ~= M.n then return fmt('z, y and r hold %d entries, m says %.0f', sorted, M.n) end
  return nil
end

-- horizon is the instant up to which nothing is held at now.
local function horizon(now)
  local h = now - HELD
  for i = 1, #wins do
    local w = wins[i]
    local lower = w.len and lowerAt(w, now) or lastLower(w)
    if lower < h then h = lower end
  end
  return h
end

-- earliest is the first instant that is neither forgotten nor merged.
local function earliest() return math.max(horizon(M.last), M.gone, M.merged) + 1 end

-- held reports whether an entry's id still stands for it; one that is not may
-- lie there until it is removed. An id that a merge has not reached when a new window ended it
-- stands for its charge on.
local function held(e) return e.score > math.max(horizon(M.last), M.gone) end

local unitsOf
do
  local byte, match = string.byte, string.match
  function unitsOf(member)
    local digit, colon = byte(member, 1, 2)
    if colon == 58 then return digit - 48 end -- "7:id": most have one digit
    return tonumber(match(member, '^(%d+)'))
  end
end
local function idOf(member) return string.match(member, '^[%d,]+:(.*)$') end

-- callsIn is how many calls a member stands for.
local function callsIn(member)
  if M.rowno == 0 then return 1 end
  return tonumber(string.match(member, '^%d+,(%d+):') or 1)
end

-- parse is an entry as a table, or nil.
local function parse(text)
  if not text then return nil end
  local op, asked, units, state, start, score = string.match(text, '^1|(%d+)|(%d+)|(%d*)|(%a)|(%d+)|(%d*)|')
  local e = {op = tonumber(op), asked = tonumber(asked), state = state, start = tonumber(start)}
  e.units = units == '' and e.asked or tonumber(units)
  e.score = score == '' and e.start or tonumber(score)
  e.labels = string.match(text, '^1|%d+|%d+|%d*|%a|%d+|%d*|(.*)$')
  return e
end

-- marked reports whether observe mode alone kept an entry from being refused.
local function marked(e) return string.sub(e.labels, -2) == '|o' and string.find(e.labels, '|[^|]*|[^|]*|') ~= nil end

-- pack is the text of an entry.
local function pack(e)
  return fmt('1|%d|%s|%s|%s|%s|%s|%s', e.op, int(e.asked), e.units ~= e.asked and int(e.units) or '', e.state,
    int(e.start), e.score ~= e.start and int(e.score) or '', e.labels)
end

-- place is the zset and the member of an entry.
local function place(e, id)
  if e.state == 'r' then return rkey(e.op), '0:' .. id, true end
  if e.units == 0 then return ykey(e.op), '0:' .. id, true end
  return zkey(e.op), int(e.units) .. ':' .. id, false
end

-- isOpen reports whether a member is that of an open reservation. What ended may
-- have a score above now, where the clocks differ.
local stateOf = {} -- of what this run has charged, by id: e has it at the end
local function isOpen(member)
  local id = idOf(member)
  local e = not stateOf[id] and parse(redis.call('HGET', keyE, id))
  return (stateOf[id] or e and e.state) == 'o'
end

-- page lists the entries of a zset with from < score <= to (no end when up), at
-- most as many as there are steps left, but whole groups of one score: the list
-- of members and scores, how many, the score up to which it came (to when it came
-- to the end), and whether it did.
local function page(key, from, to, up)
  local room = limitSteps - steps
  if room <= 0 then return {}, 0, from, false end
  local top = '+inf'
  if not up then top = int(to) end
  local list = redis.call('ZRANGEBYSCORE', key, '(' .. int(from), top, 'WITHSCORES', 'LIMIT', '0', int(room + 1))
  local n = #list / 2
  if n <= room then
    steps = steps + n
    return list, n, to, true
  end
  local last, edge = n, list[2 * n]
  while last > 0 and list[2 * last] == edge do last = last - 1 end
  if last == 0 then -- one group larger than the steps left: whole, or never
    list = redis.call('ZRANGEBYSCORE', key, edge, edge, 'WITHSCORES')
    last = #list / 2
  end
  steps = steps + last
  return list, last, tonumber(list[2 * last]), false
end

-- Entries are added to their zsets together, before anything reads these.
local adding = {}
local function addLater(key, score, member)
  local list = adding[key]
  if not list then
    list = {}
    adding[key] = list
  end
  list[#list + 1] = score
  list[#list + 1] = member
end

-- addNow adds what is still to be added.
local function addNow()
  for key, list in pairs(adding) do
    for from = 1, #list, 1000 do
      redis.call('ZADD', key, unpack(list, from, math.min(#list, from + 999)))
    end
  end
  adding = {}
end

-- callsOf is what an entry adds to a count of calls.
local function callsOf(e) return e.state == 'r' and 0 or 1 end

local merging = {} -- see merge.lua
local save
do -- a block, because Lua limits the local names of a scope
  -- at is when the next entries are to be merged: never if a window that is not coarse may
  -- count them longer than their ids are held, or if no window does.
  function merging.at()
    local at, long = NEVER, false
    for i = 1, #wins do
      local w = wins[i]
      if not w.len or not w.prec and w.len > HELD then return NEVER end
      if w.prec then
        at = math.min(at, floorTo(M.merged, w.prec) + w.prec + HELD)
        long = long or w.len > HELD
      end
    end
    return long and at or NEVER
  end

  -- expires is when the keys are to expire (ms): an hour to a week after nothing of the ledger
  -- counts any more, as long as its longest window counts. What a bucket has above its limit
  -- drains for longer. save notes this up to 15 minutes late.
  local function expires()
    local longest = metersLongest(HELD)
    for i = 1, #wins do longest = math.max(longest, wins[i].longest) end
    local at = math.max(M.last, M.reach or 0) + longest
    for _, k in pairs(locks) do at = math.max(at, k.till) end
    for _, h in ipairs(holds.list) do at = math.max(at, h.till) end
    for _, m in ipairs(meters) do at = math.max(at, m.at + math.min((m.used + 1) * m.period / m.amount, 366 * DAY)) end
    return math.floor((at + math.min(longest, WEEK)) / 1000)
  end

  -- save writes m and the totals that changed, and keeps all keys alive together.
  function save(fresh)
    history.write()
    if args.mode == 'look' then M.gone = saved.gone end -- only a decision forgets
    local live, named = {}, {}
    for i = 1, #wins do
      local w = wins[i]
      live[i] = table.concat({w.key, int(w.longest), int(w.used), int(w.floor)}, ' ')
    end
    for i = 1, #allCovers do named[i] = allCovers[i].key .. ' ' .. int(allCovers[i].used) end
    M.wins, M.covers, M.meters = table.concat(live, ';'), table.concat(named, ';'), packMeters()
    local expire = expires()
    local renew = fresh or M.emptied or expire - M.exp >= 900000
    if renew then M.exp = math.max(M.exp, expire) end -- marks have told it: it does not fall
    M.holds = holds.pack()
    M.v = M.v == HOLDING and HOLDING or M.holds == '' and FORMAT or HOLDING
    local fields = {}
    for i = 1, #TEXTS do
      local name = TEXTS[i]
      if M[name] ~= (saved[name] or '') then fields[#fields + 1], fields[#fields + 2] = name, M[name] end
    end
    for i = 1, #NUMBERS do
      local name = NUMBERS[i]
      if M[name] ~= (saved[name] or 0) then fields[#fields + 1], fields[#fields + 2] = name, int(M[name]) end
    end
    if args.kept and M.unnoted ~= saved.unnoted then
      fields[#fields + 1], fields[#fields + 2] = 'unnoted', int(M.unnoted)
    elseif not M.unnoted and saved.unnoted then
      redis.call('HDEL', keyM, 'unnoted')
    end
    if #fields > 0 then redis.call('HSET', keyM, unpack(fields)) end
    saveTotals(merging.at(), M.prune)
    if renew then
      local at = int(expiry(M.exp))
      redis.call('PEXPIREAT', keyM, at)
      redis.call('PEXPIREAT', keyE, at)
      for place = 1, 3 * nops do redis.call('PEXPIREAT', zset(place), at) end
    end
  end
end

-- glitch reports whether the clock stands too far past all it has seen and the
-- caller's, or the caller's further past it than a score may lie ahead.
local function glitch(raw, caller)
  return raw - M.last > TOLERANCE and raw - caller > TOLERANCE or caller - raw > LEASE
end

-- check returns the answer where a ledger is not as the caller knows it, or is not
-- whole, or the clock jumped; else nil. More operations are to be registered. One
-- that broke is begun anew, or cannot be used.
local function check(raw, more, broke, anew)
  if args.sig ~= M.sig then return {2, int(raw), M.ops, M.split} end
  if broke and not anew then return {5, int(raw), 'its parts do not agree'} end
  if not M.v and not anew and redis.call('EXISTS', keyE) > 0 then return {5, int(raw), 'm is missing'} end
  if glitch(raw, args.now) then return {4, int(raw)} end
  local problem = not anew and counted(more)
  return problem and {5, int(raw), problem} or nil
end

-- moment is the time of a decision by the earlier of the two clocks, clamped to
-- last seen, and that of the later one, from which counts what is charged. A caller
-- far behind is no witness.
local function moment(raw, caller)
  local now = raw
  if raw - caller <= TOLERANCE then now = math.min(raw, caller) end
  return math.max(now, M.last), math.max(raw, caller)
end

-- drainsFrom is from when on a bucket drains again that changes now: where the
-- clocks are far apart not until the earlier one has caught up.
local function drainsFrom(now, later)
  if later - now > TOLERANCE then return later end
  return now
end
