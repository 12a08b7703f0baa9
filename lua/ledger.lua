-- Reading and writing a ledger, and what the scripts on one share. Comes after
-- layout.lua, which tells its keys, and meters.lua.

-- shape reads a rolling window's length and precision off its key.
local function shape(w)
  w.rows, w.fields = {}, {}
  local len, prec = string.match(w.key, '^r:(%d+):?(%d*)$')
  w.len, w.prec = tonumber(len), tonumber(prec)
end

-- lowerAt is the instant up to which a rolling window counts nothing at now.
local function lowerAt(w, now)
  if w.prec then return floorTo(now - w.len, w.prec) end
  return now - w.len
end

-- leaves is when an entry leaves a rolling window.
local function leaves(w, score)
  if w.prec then return ceilTo(score, w.prec) + w.len end
  return score + w.len
end

-- load reads m. It returns the answer where m is of a newer format, else nil.
local function load(raw)
  local f = redis.call('HMGET', keyM, 'v', 'last', 'newest', 'born', 'n', 'nops', 'ops', 'wins', 'chg', 'exp', 'prune', 'gone', 'sig',
    'meters', 'merged', 'rowno', 'mpos', 'locks', 'marks', 'lid', 'nid', 'loss', 'hosts', 'reset', 'seq', 'pause', 'split', 'spos', 'tables', 'unnoted')
  M.v = f[1]
  M.last, M.newest, M.born = tonumber(f[2] or 0), tonumber(f[3] or 0), tonumber(f[4] or 0)
  M.n, M.nops, M.ops = tonumber(f[5] or 0), tonumber(f[6] or 0), f[7] or ''
  M.chg, M.exp, M.prune, M.gone = tonumber(f[9] or 0), tonumber(f[10] or 0), tonumber(f[11] or 0), tonumber(f[12] or 0)
  M.sig, M.meters, M.mpos = f[13] or '', f[14] or '', f[17] or ''
  M.merged, M.rowno = tonumber(f[15] or 0), tonumber(f[16] or 0)
  M.locks, M.marks = f[18] or '', f[19] or ''
  M.lid, M.nid, M.loss, M.hosts = f[20] or '', f[21] or '', f[22] or '', f[23] or ''
  M.reset, M.seq, M.pause = tonumber(f[24] or 0), tonumber(f[25] or 0), tonumber(f[26] or 0)
  M.split, M.spos, M.tables = f[27] or '', f[28] or '', f[29] or ''
  M.unnoted = tonumber(f[30] or M.v and M.newest or 0)
  saved = {unnoted = f[30] and M.unnoted, split = M.split, spos = M.spos, lid = M.lid, loss = M.loss, hosts = M.hosts, tables = M.tables, meters = M.meters, merged = M.merged, rowno = M.rowno, mpos = M.mpos, locks = M.locks, marks = M.marks}
  loadMeters()
  loadLocks()
  nops = M.nops
  if M.v and M.v ~= '1' then return {6, int(raw), M.v} end
  for no, key, longest, used, floor, adv in string.gmatch(f[8] or '', '(%d+) (%S+) (%d+) (%d+) (-?%d+) (-?%d+)') do
    local kind = string.sub(key, 1, 1)
    local w = {no = tonumber(no), key = key, kind = kind, used = tonumber(used), floor = tonumber(floor), adv = tonumber(adv),
      longest = tonumber(longest)}
    shape(w)
    wins[#wins + 1] = w
    winByKey[key] = w
  end
  return nil
end

-- there has the zsets that hold something. M.emptied: one of them may have been
-- empty for a moment, and with it lost when it is to expire.
local there = {}

-- counted compares the entries there are with those there should be; every
-- key's type is checked by it before anything is written, those of the
-- operations still to be registered too.
local function counted(more)
  local held = redis.call('HLEN', keyE)
  if held ~= M.n then return fmt('e holds %d entries, m says %.0f', held, M.n) end
  local sorted = 0
  for op = 1, nops + more do
    for i = 1 + 3 * op, 3 + 3 * op do
      local n = redis.call('ZCARD', KEYS[i])
      if n > 0 then there[KEYS[i]] = true end
      sorted = sorted + n
    end
  end
  if sorted ~= M.n then return fmt('z, y and r hold %d entries, m says %.0f', sorted, M.n) end
  return nil
end

-- preload fetches rows at once; names are fields of x.
local function preload(fields)
  local missing, n = {}, 0
  for i = 1, #fields do
    if rows[fields[i]] == nil then
      n = n + 1
      missing[n] = fields[i]
      rows[fields[i]] = false
    end
  end
  for from = 1, n, 1000 do
    local to = math.min(n, from + 999)
    local found = redis.call('HMGET', keyX, unpack(missing, from, to))
    for i = from, to do
      local text = found[i - from + 1]
      if text then
        local v, k = {}, 0
        for number in string.gmatch(text, '%-?%d+') do
          k = k + 1
          v[k] = tonumber(number)
        end
        if k == 6 then
          rows[missing[i]] = {units = v[1], calls = v[2], due = v[3], period = v[4], bunits = v[5], bcalls = v[6]}
        else
          rows[missing[i]] = {units = v[1], calls = v[2], cut = v[3], built = v[4], zcut = v[5], zbuilt = v[6], due = v[7],
            bunits = v[8], bcalls = v[9]}
        end
      end
    end
  end
end

-- preloadStars fetches the sums of all live windows, which must be there.
local function preloadStars()
  local fields = {}
  for i = 1, #wins do fields[i] = wins[i].no .. '|*' end
  preload(fields)
  for i = 1, #wins do
    if not rows[fields[i]] then return 'x lacks the total ' .. fields[i] end
  end
  return nil
end

local function touch(field) dirty[field] = true end

-- star is the sum over a window's operations.
local function star(w)
  if not w.star then
    w.starField = w.no .. '|*'
    if rows[w.starField] == nil then preload({w.starField}) end
    w.star = rows[w.starField]
  end
  return w.star, w.starField
end

-- row is a window's total of one operation; one that is not there yet has
-- nothing below the window's cut.
local function row(w, op)
  local known = w.rows[op]
  if known then return known, w.fields[op] end
  local field = w.no .. '|' .. op
  if rows[field] == nil then preload({field}) end
  if not rows[field] then
    local cut = math.max(w.adv, w.floor)
    rows[field] = {units = 0, calls = 0, cut = cut, built = WHOLE, zcut = cut, zbuilt = WHOLE, due = NEVER, bunits = 0, bcalls = 0}
  end
  w.rows[op], w.fields[op] = rows[field], field
  return rows[field], field
end

-- add changes one window's totals by an entry that counts, or no longer does.
local function add(w, op, score, units, calls, zero, sign, state)
  if w.len == 0 and state ~= 'o' then return end
  local r, field = row(w, op)
  if w.len and score <= w.adv then -- what the window has left behind; the row's cut may lag
    if r.cut < w.adv or r.zcut < w.adv then
      r.cut, r.zcut = math.max(r.cut, w.adv), math.max(r.zcut, w.adv)
      touch(field)
    end
    return
  end
  local cut, built = r.cut, r.built
  if zero then cut, built = r.zcut, r.zbuilt end
  if score <= cut or score > built then return end
  local s, sfield = star(w)
  r.units, r.calls = r.units + sign * units, r.calls + sign * calls
  s.units, s.calls = s.units + sign * units, s.calls + sign * calls
  if w.len and sign > 0 then
    local due = leaves(w, score)
    r.due = math.min(r.due, due)
    s.due = math.min(s.due, due)
  end
  touch(field)
  touch(sfield)
end

-- total adds up one field of a limit's rows: l.win, l.all, l.covered (operations).
local function total(l, field)
  if l.all then return star(l.win)[field] end
  local sum = 0
  for i = 1, #l.covered do sum = sum + row(l.win, l.covered[i])[field] end
  return sum
end

-- used is what a limit counts; back is what has come back to it so far.
local function used(l) return total(l, l.calls and 'calls' or 'units') end
local function back(l) return total(l, l.calls and 'bcalls' or 'bunits') end

-- addAll does so in every live window.
local function addAll(op, score, units, calls, zero, sign, state)
  if calls == 0 then return end -- released: it counts nowhere
  for i = 1, #wins do add(wins[i], op, score, units, calls, zero, sign, state) end
end

-- lastLower is the instant up to which a calendar counted nothing when a batch
-- last used it, whatever a reset in the midst of that batch made of it.
local function lastLower(w) return w.lower or w.adv end

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
-- lie there until it is removed.
local function held(e) return e.score >= earliest() end

local function unitsOf(member) return tonumber(string.match(member, '^(%d+)')) end
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

-- saveMore writes the fields of m that most ledgers never have.
local function saveMore()
  local meters = packMeters()
  if meters ~= saved.meters or M.merged ~= saved.merged or M.rowno ~= saved.rowno or M.mpos ~= saved.mpos then
    redis.call('HSET', keyM, 'meters', meters, 'merged', int(M.merged), 'rowno', int(M.rowno), 'mpos', M.mpos)
  end
  if M.locks ~= saved.locks or M.marks ~= saved.marks then
    redis.call('HSET', keyM, 'locks', M.locks, 'marks', M.marks)
  end
  if M.split ~= saved.split or M.spos ~= saved.spos then
    redis.call('HSET', keyM, 'split', M.split, 'spos', M.spos)
  end
  if args.kept and M.unnoted ~= saved.unnoted then
    redis.call('HSET', keyM, 'unnoted', int(M.unnoted))
  elseif not M.unnoted and saved.unnoted then
    redis.call('HDEL', keyM, 'unnoted')
  end
  if M.tables ~= saved.tables then redis.call('HSET', keyM, 'tables', M.tables) end
  if M.lid ~= saved.lid or M.loss ~= saved.loss or M.hosts ~= saved.hosts then
    redis.call('HSET', keyM, 'lid', M.lid, 'loss', M.loss, 'hosts', M.hosts)
  end
end

-- save writes m and the rows that changed, and keeps all keys alive together.
local function save(fresh)
  history.write()
  for from = 1, #gone, 1000 do
    redis.call('HDEL', keyX, unpack(gone, from, math.min(#gone, from + 999)))
  end
  local fields, n = {}, 0
  for field in pairs(dirty) do
    local r = rows[field]
    if r then
      local text
      if r.cut then
        text = table.concat({int(r.units), int(r.calls), int(r.cut), int(r.built), int(r.zcut), int(r.zbuilt), int(r.due),
          int(r.bunits), int(r.bcalls)}, ' ')
      else
        text = table.concat({int(r.units), int(r.calls), int(r.due), int(r.period), int(r.bunits), int(r.bcalls)}, ' ')
      end
      fields[n + 1], fields[n + 2] = field, text
      n = n + 2
    end
  end
  for from = 1, n, 1000 do
    redis.call('HSET', keyX, unpack(fields, from, math.min(n, from + 999)))
  end
  dirty = {}
  local live, longest = {}, locksLongest(metersLongest(HELD))
  for i = 1, #wins do
    local w = wins[i]
    live[i] = table.concat({w.no, w.key, int(w.longest), int(w.used), int(w.floor), int(w.len and w.adv or lastLower(w))}, ' ')
    longest = math.max(longest, w.longest)
  end
  local expire = math.floor((M.last + longest + LEASE + WEEK) / 1000)
  local renew = fresh or M.emptied or expire - M.exp >= HOUR / 1000 or M.exp == 0
  if renew then M.exp = expire end
  redis.call('HSET', keyM, 'v', '1', 'last', int(M.last), 'newest', int(M.newest), 'born', int(M.born), 'n', int(M.n),
    'nops', int(nops), 'ops', M.ops, 'wins', table.concat(live, ';'), 'chg', int(M.chg), 'exp', int(M.exp), 'prune', int(M.prune), 'gone', int(M.gone), 'sig', M.sig, 'nid', M.nid, 'seq', int(M.seq))
  saveMore()
  if renew then
    local at = int(expiry(expire))
    redis.call('PEXPIREAT', keyM, at)
    redis.call('PEXPIREAT', keyE, at)
    redis.call('PEXPIREAT', keyX, at)
    for op = 1, nops do
      redis.call('PEXPIREAT', zkey(op), at)
      redis.call('PEXPIREAT', ykey(op), at)
      redis.call('PEXPIREAT', rkey(op), at)
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
  if not M.v and not anew and redis.call('EXISTS', keyE, keyX) > 0 then return {5, int(raw), 'm is missing'} end
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
