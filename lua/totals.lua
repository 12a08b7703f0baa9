-- The running totals of a ledger, packed in m, and how they change. Comes after
-- layout.lua, which describes them.

-- shape reads a rolling window's length and precision off its key.
local function shape(w)
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

-- lastLower is the instant up to which a calendar counted nothing when a batch
-- last used it, whatever a reset in the midst of that batch made of it.
local function lastLower(w) return w.lower or w.adv end

-- isNoted reports whether the history has what the ledger charges.
local function isNoted() return M.unnoted and (saved.unnoted or args.kept) end

local blocks = {} -- see blocks.lua
local loadState, preload, loadAll, row, saveTotals
do -- a block, because Lua limits the local names of a scope
  local UNUSUAL = string.rep('-', HEAD)
  local STATE, STAR, COVER, METER = 10, 7, 3, 3 -- numbers of s
  local ROW, SHORT, LONG = 5, 6, 9 -- numbers of o<op>
  local GROUP = 8 -- numbers of q<w>:<g>

  local PIECE = 2000 -- Lua's stack holds a few times as many values

  -- unpackNumbers reads the numbers of a text, from a place of it.
  local function unpackNumbers(text, from)
    local n, list = math.floor((#text - from + 1) / 8), {}
    if n <= PIECE then
      list = {struct.unpack(string.rep('d', n), text, from)}
      list[#list] = nil -- the place after the last
      return list
    end
    for first = 1, n, PIECE do
      local piece = {struct.unpack(string.rep('d', math.min(PIECE, n - first + 1)), text, from + 8 * (first - 1))}
      for i = 1, #piece - 1 do list[first + i - 1] = piece[i] end
    end
    return list
  end

  local function packNumbers(list)
    if #list <= PIECE then return struct.pack(string.rep('d', #list), unpack(list)) end
    local pieces = {}
    for first = 1, #list, PIECE do
      local last = math.min(#list, first + PIECE - 1)
      pieces[#pieces + 1] = struct.pack(string.rep('d', last - first + 1), unpack(list, first, last))
    end
    return table.concat(pieces)
  end

  -- newRow is the total of an operation before its first charge. A calendar's reset in
  -- the midst of a batch is not in adv yet: the first operation's row tells.
  local function newRow(w)
    local cut, first = math.max(w.adv, w.floor), totals[1]
    if not w.len and first and first[w] then cut = math.max(cut, first[w].cut) end
    return {units = 0, calls = 0, cut = cut, built = WHOLE, zcut = cut, zbuilt = WHOLE, due = NEVER, bunits = 0, bcalls = 0}
  end

  -- loadState reads the state s: the numbers of the ledger, the sums of its windows, the covers and
  -- the levels of its meters. Windows and meters must be loaded. It returns false if s does not fit
  -- them.
  function loadState(text)
    local size = STATE + STAR * #wins
    if not text or #text < HEAD + 8 * size then return false end
    local t = unpackNumbers(text, HEAD + 1)
    local used = size + COVER * t[8] + METER * t[10]
    if t[7] ~= #wins or t[10] ~= #meters or #text < HEAD + 8 * used then return false end
    M.last, M.newest, M.n, M.seq, M.nops = t[1], t[2], t[3], t[5], t[6]
    for i = 1, #wins do
      local at, w = STATE + STAR * (i - 1), wins[i]
      w.star = {units = t[at + 1], calls = t[at + 2], due = t[at + 3], bunits = t[at + 5], bcalls = t[at + 6], period = t[at + 7]}
      w.adv = t[at + 4]
      loaded[i] = w
    end
    for i = 1, t[8] do
      local at = size + COVER * (i - 1)
      allCovers[i] = {units = t[at + 1], calls = t[at + 2], win = wins[t[at + 3]], key = '-', used = 0}
    end
    local i = 0
    for key, used in string.gmatch(M.covers, '([^%s;]+) (%d+)') do
      i = i + 1
      if allCovers[i] then allCovers[i].key, allCovers[i].used = key, tonumber(used) end
    end
    for i = 1, #meters do
      local at, m = size + COVER * t[8] + METER * (i - 1), meters[i]
      m.used, m.part, m.at = t[at + 1], t[at + 2], t[at + 3]
    end
    M.nid = string.sub(text, HEAD + 8 * used + 1)
    return true
  end

  -- unpackRow reads the totals of one operation. While one of them is not counted up to the
  -- end, or its two cuts differ, all are in the long form.
  local function unpackRow(op, text)
    local o = {zs = 0, ys = 0, mask = 0, fresh = 0, ended = 0}
    totals[op] = o
    if not text then return o end
    local t = unpackNumbers(text, 1)
    o.zs, o.ys, o.mask, o.fresh, o.ended = t[1], t[2], t[3], t[4], t[5]
    local long = #text > 8 * (ROW + SHORT * #loaded)
    for i = 1, #loaded do
      local r
      if long then
        local at = ROW + LONG * (i - 1)
        r = {units = t[at + 1], calls = t[at + 2], cut = t[at + 3], due = t[at + 4], bunits = t[at + 5], bcalls = t[at + 6],
          zcut = t[at + 7], built = t[at + 8], zbuilt = t[at + 9]}
      else
        local at = ROW + SHORT * (i - 1)
        r = {units = t[at + 1], calls = t[at + 2], cut = t[at + 3], due = t[at + 4], bunits = t[at + 5], bcalls = t[at + 6],
          zcut = t[at + 3], built = WHOLE, zbuilt = WHOLE}
      end
      r.was = r.due
      o[loaded[i]] = r
    end
    return o
  end

  local function packRow(o)
    local long = false
    for i = 1, #wins do
      local r = o[wins[i]]
      if r and (r.built ~= WHOLE or r.zbuilt ~= WHOLE or r.cut ~= r.zcut) then long = true end
    end
    local t, stride = {o.zs, o.ys, o.mask, o.fresh, o.ended}, long and LONG or SHORT
    for i = 1, #wins do
      local w = wins[i]
      local r, at = o[w] or newRow(w), ROW + stride * (i - 1)
      t[at + 1], t[at + 2], t[at + 3], t[at + 4], t[at + 5], t[at + 6] = r.units, r.calls, r.cut, r.due, r.bunits, r.bcalls
      if long then t[at + 7], t[at + 8], t[at + 9] = r.zcut, r.built, r.zbuilt end
    end
    return packNumbers(t)
  end

  -- preload fetches the totals of operations at once.
  function preload(ops)
    local missing, fields = {}, {}
    for i = 1, #ops do
      local op = ops[i]
      if not totals[op] then
        totals[op] = true
        missing[#missing + 1], fields[#fields + 1] = op, 'o' .. op
      end
    end
    for from = 1, #missing, 1000 do
      local to = math.min(#missing, from + 999)
      local found = redis.call('HMGET', keyM, unpack(fields, from, to))
      for i = from, to do unpackRow(missing[i], found[i - from + 1]) end
    end
  end

  -- loadAll fetches the totals of all operations.
  function loadAll()
    local ops = {}
    for op = 1, nops do ops[op] = op end
    preload(ops)
  end

  -- row is a window's total of one operation; one that is not there yet has nothing below
  -- the window's cut.
  function row(w, op)
    if not totals[op] then preload({op}) end
    local o = totals[op]
    local r = o[w]
    if not r then
      r = newRow(w)
      o[w] = r
    end
    return r
  end

  local function groupOf(op) return math.floor((op + GROUP - 1) / GROUP) end

  -- saveQueue writes groups of a window's queue, and the first of each. If anew, the totals of all
  -- operations are loaded, and all groups are to be written; else the old queue has what is not
  -- loaded. It returns false if that is not so: an operation is new, or an earlier build wrote
  -- the ledger.
  local function saveQueue(i, groups, anew, fields)
    local w, names, places = wins[i], {'q' .. i}, {}
    for g in pairs(groups) do names[#names + 1], places[#places + 1] = 'q' .. i .. ':' .. g, g end
    local found = anew and {} or redis.call('HMGET', keyM, unpack(names))
    local firsts = unpackNumbers(found[1] or '', 1)
    if not anew and nops > GROUP and #firsts ~= groupOf(nops) then return false end
    for j = 1, #places do
      local g, list = places[j], unpackNumbers(found[j + 1] or '', 1)
      if not anew and #list ~= GROUP then return false end
      for k = 1, GROUP do
        local o = totals[GROUP * (g - 1) + k]
        local r = o and o[w]
        list[k] = r and r.due or list[k] or NEVER
      end
      firsts[g] = math.min(unpack(list))
      fields[#fields + 1], fields[#fields + 2] = names[j + 1], packNumbers(list)
    end
    if nops > GROUP then fields[#fields + 1], fields[#fields + 2] = names[1], packNumbers(firsts) end
    return true
  end

  -- saveQueues does so for each rolling window of which the queue changed. anew: of all, and the
  -- totals of all operations are loaded.
  local function saveQueues(anew, fields)
    local all = {}
    for g = 1, groupOf(nops) do all[g] = true end
    for i = 1, #wins do
      local w, changed = wins[i], {}
      if w.len then
        for op, o in pairs(totals) do
          local r = o[w]
          if r and r.due ~= (r.was or NEVER) then changed[groupOf(op)] = true end
        end
        if anew then
          saveQueue(i, all, true, fields)
        elseif next(changed) and not saveQueue(i, changed, false, fields) then
          loadAll()
          saveQueue(i, all, true, fields)
        end
        for _, o in pairs(totals) do
          if o[w] then o[w].was = o[w].due end
        end
      end
    end
  end

  -- headOf begins the state: with it the usual script checks that the ledger is as its caller
  -- knows it, of its caller's format too, and that nothing goes on in it which that script leaves to
  -- the others.
  local function headOf()
    if M.mpos ~= '' or M.spos ~= '' or M.lid == '' or isLocked() or #holds.list > 0 then return UNUSUAL end
    local since = tonumber(string.match(M.loss, '^%d+') or nil)
    if since and since + RECOVERY > M.last then return UNUSUAL end
    local names, places = {M.v, M.lid, M.sig, M.hosts, isNoted() and 'noted' or '', M.plans}, {}
    for i = 1, #wins do
      if wins[i].star.due == 0 then return UNUSUAL end -- it is being counted
      names[#names + 1], places[wins[i]] = wins[i].key, i
    end
    for i = 1, #allCovers do names[#names + 1] = allCovers[i].key .. ' ' .. (places[allCovers[i].win] or 0) end
    for i = 1, #meters do
      if meters[i].reached ~= WHOLE then return UNUSUAL end
      names[#names + 1] = meters[i].key
    end
    return string.sub(redis.sha1hex(table.concat(names, '\n')), 1, HEAD)
  end

  -- saveTotals writes the totals that changed, and the state.
  function saveTotals(slow, tidy)
    local anew = #loaded ~= #wins
    for i = 1, #wins do anew = anew or loaded[i] ~= wins[i] end
    if anew then -- the rows have the windows in their order
      loadAll()
      for op = 1, nops do dirty[op] = true end
    end
    local fields = {}
    saveQueues(anew, fields)
    blocks.save()
    for op in pairs(dirty) do
      if not totals[op] then preload({op}) end
      local o = totals[op]
      o.zs, o.ys = redis.call('ZCARD', zkey(op)), redis.call('ZCARD', ykey(op))
      fields[#fields + 1], fields[#fields + 2] = 'o' .. op, packRow(o)
    end
    dirty = {}
    for i = 1, #loaded do loaded[i] = nil end
    local places = {}
    for i = 1, #wins do loaded[i], places[wins[i]] = wins[i], i end
    local t = {M.last, M.newest, M.n, slow, M.seq, nops, #wins, #allCovers, tidy, #meters}
    for i = 1, #wins do
      local at, w = STATE + STAR * (i - 1), wins[i]
      local s = w.star
      t[at + 1], t[at + 2], t[at + 3], t[at + 4], t[at + 5], t[at + 6], t[at + 7] =
        s.units, s.calls, s.due, w.len and w.adv or lastLower(w), s.bunits, s.bcalls, s.period
    end
    for i = 1, #allCovers do
      local at, c = STATE + STAR * #wins + COVER * (i - 1), allCovers[i]
      t[at + 1], t[at + 2], t[at + 3] = c.units, c.calls, places[c.win] or 0
    end
    for i = 1, #meters do
      local at, m = STATE + STAR * #wins + COVER * #allCovers + METER * (i - 1), meters[i]
      t[at + 1], t[at + 2], t[at + 3] = m.used, m.part, m.at
    end
    M.head = headOf()
    fields[#fields + 1], fields[#fields + 2] = 's', M.head .. packNumbers(t) .. M.nid
    for from = 1, #fields, 1000 do
      redis.call('HSET', keyM, unpack(fields, from, math.min(#fields, from + 999)))
    end
  end
end

local function touch(op) dirty[op] = true end

-- star is the sum over a window's operations.
local function star(w) return w.star end

-- isIn reports whether a cover counts an operation.
local function isIn(cover, o) return math.floor(o.mask / 2 ^ (cover - 1)) % 2 == 1 end

-- count changes a row, and with it the sum of its window and those of the covers.
local function count(w, op, units, calls)
  local r, s = row(w, op), w.star
  r.units, r.calls = r.units + units, r.calls + calls
  s.units, s.calls = s.units + units, s.calls + calls
  local o = totals[op]
  if o.mask > 0 then
    for i = 1, #allCovers do
      local c = allCovers[i]
      if c.win == w and isIn(i, o) then c.units, c.calls = c.units + units, c.calls + calls end
    end
  end
  dirty[op] = true
end

-- comeBack notes what has returned to a row.
local function comeBack(w, op, units, calls)
  local r, s = row(w, op), w.star
  r.bunits, r.bcalls = r.bunits + units, r.bcalls + calls
  s.bunits, s.bcalls = s.bunits + units, s.bcalls + calls
end

-- add changes one window's totals by an entry that counts, or no longer does.
local function add(w, op, score, units, calls, zero, sign, state)
  if w.len == 0 and state ~= 'o' then return end
  local r = row(w, op)
  if w.len and score <= w.adv then -- what the window has left behind; the row's cut may lag
    if r.cut < w.adv or r.zcut < w.adv then
      r.cut, r.zcut = math.max(r.cut, w.adv), math.max(r.zcut, w.adv)
      touch(op)
    end
    return
  end
  local cut, built = r.cut, r.built
  if zero then cut, built = r.zcut, r.zbuilt end
  if score <= cut or score > built then return end
  count(w, op, sign * units, sign * calls)
  if w.len and sign > 0 then
    local due = leaves(w, score)
    r.due = math.min(r.due, due)
    w.star.due = math.min(w.star.due, due)
  end
end

-- total adds up one field of a limit's rows: l.win, l.all, l.cover, l.covered (operations).
local function total(l, field)
  if l.all then return l.win.star[field] end
  local c = l.cover and allCovers[l.cover]
  if c and c[field] then return c[field] end
  local sum = 0
  for i = 1, #l.covered do sum = sum + row(l.win, l.covered[i])[field] end
  return sum
end

-- used is what a limit counts; back is what has come back to it so far.
local function used(l) return total(l, l.calls and 'calls' or 'units') end
local function back(l) return total(l, l.calls and 'bcalls' or 'bunits') end

-- addAll does so in every live window.
local function addAll(op, score, units, calls, zero, sign, state)
  touch(op)
  M.reach = math.max(M.reach or 0, score)
  if calls == 0 then return end -- released: it counts nowhere
  if not zero then
    preload({op})
    blocks.change(op, score, sign * units, sign * calls)
  end
  for i = 1, #wins do add(wins[i], op, score, units, calls, zero, sign, state) end
end
