-- Records what was lost, as one charge for each limit under its own pseudo-operation,
-- and begins ledgers anew. Comes after replay.lua.

-- lowerOf is the instant up to which a window of the arguments counts nothing.
local function lowerOf(a, now)
  if a.p0 then return now >= a.p1 and a.c1 or a.c0 end
  local w = {key = a.key}
  shape(w)
  return lowerAt(w, now)
end

-- dropped reports whether the ledger of the caller's mark may have been dropped as idle before
-- another was born; see Mark.Dropped in budget/driver.
local function dropped(born, lower)
  if args.idle == 0 then return args.seen <= lower - WEEK end
  return args.idle <= born
end

-- lossNow is the instant up to which the last loss holds charges back if so many hosts
-- share the store; nil if it holds nothing back.
local function lossNow(hosts)
  if M.loss == '' or hosts <= 1 then return nil end
  local since, reported = string.match(M.loss, '^(%d+)(.*)$')
  local _, n = string.gsub(reported, ' ', '')
  local till = tonumber(since) + RECOVERY
  if n >= hosts or till <= M.last then return nil end
  return till
end

-- goneLedger reports whether the caller knows that this ledger has lost something.
local function goneLedger() return string.find(',' .. args.gone .. ',', ',' .. M.lid .. ',', 1, true) ~= nil end

-- report notes that a host reports a loss. The first report on a ledger begins a
-- recovery. So does a report that finds the ledger rolled back, which gets a new id.
local function report(host, candidate)
  local MAXREPORTS = 256
  local rolledBack = goneLedger()
  if rolledBack then M.lid = candidate end
  if rolledBack or M.loss == '' then M.loss = int(M.last) end
  local _, n = string.gsub(M.loss, ' ', '')
  if host ~= '' and n < MAXREPORTS and not string.find(M.loss .. ' ', ' ' .. host .. ' ', 1, true) then M.loss = M.loss .. ' ' .. host end
  M.seq = M.seq + 1
end

-- note notes that a host decides, and its share table "host digest". It drops what was not
-- noted for long, and the oldest if there are too many.
local note
do
  local MAXHOSTS, MAXTABLES, MINUTE = 64, 64, 60000000

  local function noteHost(host)
    if host == '' then return end
    local list, n = {}, 0
    for other, at in string.gmatch(M.hosts, '(%S+) (%d+)') do
      if other == host and M.last - tonumber(at) < HOUR then return end
      if other ~= host and M.last - tonumber(at) < DAY then
        n = n + 1
        list[n] = other .. ' ' .. at
      end
    end
    list[n + 1] = host .. ' ' .. int(M.last)
    M.hosts = table.concat(list, ' ', math.max(1, n + 2 - MAXHOSTS))
  end

  local function noteTable(mine)
    if mine == '' then return end
    local list, n, since = {}, 0, int(M.last)
    for other, first, at in string.gmatch(M.tables, '(%S+ %S+) (%d+) (%d+)') do
      local ago = M.last - tonumber(at)
      if other == mine and ago < MINUTE then return end
      if other == mine and ago < HOUR then
        since = first
      elseif ago < HOUR then
        n = n + 1
        list[n] = table.concat({other, first, at}, ' ')
      end
    end
    list[n + 1] = table.concat({mine, since, int(M.last)}, ' ')
    M.tables = table.concat(list, ' ', math.max(1, n + 2 - MAXTABLES))
  end

  note = function(host, mine)
    noteHost(host)
    noteTable(mine)
  end
end

-- broken reports whether the ledger's parts disagree. KEYS has all that there may be, so
-- that remains of an operation that m does not know show too.
local function broken()
  for from = M.v and 3 + 3 * nops or 1, history.own, 1000 do
    if redis.call('EXISTS', unpack(KEYS, from, math.min(history.own, from + 999))) > 0 then return true end
  end
  return M.v and counted(0) ~= nil
end

-- blank turns the loaded ledger into an empty one that has seen the same time.
local function blank()
  holds.drop(function() return true end)
  holds.taken = 0
  local locks, hosts, tables, last, pause = M.locks, M.hosts, M.tables, M.last, M.pause
  for name in pairs(saved) do saved[name] = nil end
  for name in pairs(M) do M[name] = nil end
  for i = 1, #TEXTS do M[TEXTS[i]] = '' end
  for i = 1, #NUMBERS do M[NUMBERS[i]] = 0 end
  M.v, M.n, M.nops, M.newest, M.seq, M.nid, M.reset, M.unnoted, M.emptied = nil, 0, 0, 0, 0, '', 0, 0, true
  M.locks, M.hosts, M.tables, M.last, M.pause = locks, hosts, tables, last, pause
  nops, opNames = 0, nil
  for i = #wins, 1, -1 do
    winByKey[wins[i].key] = nil
    wins[i] = nil
  end
  for i = #loaded, 1, -1 do loaded[i] = nil end
  for i = #allCovers, 1, -1 do allCovers[i] = nil end
  for op in pairs(totals) do totals[op], dirty[op] = nil, nil end
  for i = #meters, 1, -1 do
    meterByKey[meters[i].key] = nil
    meters[i] = nil
  end
  for key in pairs(there) do there[key] = nil end
end

-- forgetAll deletes the ledger.
local function forgetAll()
  for from = 1, history.own, 1000 do redis.call('DEL', unpack(KEYS, from, math.min(history.own, from + 999))) end
end

-- cutOf is the score up to which nothing counts in an up-to-date window.
local function cutOf(w) return math.max(w.adv, w.floor) end

local function memberOf(e, id) return int(e.units) .. ',' .. int(e.asked) .. ':' .. id end

-- record replaces a limit's old charge, if there is one, by a new one.
local function record(l, id, old, amount, score)
  if old then
    redis.call('ZREM', old.units == 0 and ykey(l.op) or zkey(l.op), memberOf(old, id))
    redis.call('HDEL', keyE, id)
    addAll(l.op, old.score, old.units, old.asked, old.units == 0, -1, 'm')
    M.n = M.n - 1
  end
  if amount > 0 then
    local e = {op = l.op, asked = 1, units = amount, state = 'm', start = score, score = score, labels = '||'}
    if l.calls then e.asked, e.units = amount, 0 end
    redis.call('ZADD', e.units == 0 and ykey(l.op) or zkey(l.op), int(score), memberOf(e, id))
    redis.call('HSET', keyE, id, pack(e))
    addAll(l.op, score, e.units, e.asked, e.units == 0, 1, 'm')
    M.n, M.rowno = M.n + 1, math.max(M.rowno, 1)
  end
  M.chg, M.seq, M.emptied = M.chg + 1, M.seq + 1, true
end

local recoverAll
do -- a block, because Lua limits the local names of a scope
  -- amountOf is what a limit counts of an entry.
  local function amountOf(l, e) return l.calls and e.asked or e.units end

  -- sideOf is the side of l.from on which a limit has fewer entries: a is above it, b
  -- up to it.
  local function sideOf(l)
    local above, below = 0, 0
    local from, cut = int(l.from), '(' .. int(cutOf(l.win))
    for i = 1, #l.covered do
      local op = l.covered[i]
      local r = row(l.win, op)
      if r.calls > 0 or r.units > 0 then
        for _, key in ipairs({zkey(op), l.calls and ykey(op) or nil}) do
          above = above + redis.call('ZCOUNT', key, '(' .. from, '+inf')
          below = below + redis.call('ZCOUNT', key, cut, from)
        end
      end
    end
    return above < below and 'a' or 'b'
  end

  -- survived sums what counts in a limit with scores up to l.from, except what was
  -- recovered. It walks over the side of l.from with fewer entries; the sum above l.from
  -- is subtracted from the use. If the steps run out, it returns nil and how far it got.
  --
  -- The progress of an earlier run is valid for the same ledger, while no entry in it
  -- changed. The units that have returned since are subtracted again, for the entries
  -- that left the window.
  local function survived(l, olds)
    local cut = cutOf(l.win)
    if l.from <= cut then return 0, '' end
    local side, pos, sum
    local lid, chg, newest, seen, s, p, f = string.match(l.came, '^(%S+) (%d+) (%d+) (%d+) (%a) (-?%d+):(%d+)$')
    if lid == M.lid and tonumber(chg) == M.chg and (tonumber(p) <= tonumber(seen) or tonumber(newest) == M.newest) then
      if s == 'a' then
        side, pos, sum = s, tonumber(p), tonumber(f)
      elseif tonumber(p) > cut then
        side, pos, sum = s, tonumber(p), tonumber(f) - back(l)
      end
    end
    side = side or sideOf(l)
    local above = side == 'a'
    local score, reached, walked = walk(l, pos or above and l.from or cut, sum or 0, WHOLE, not above and l.from or nil)
    local came = table.concat({M.lid, int(M.chg), int(M.newest), int(M.last), side, int(reached) .. ':' .. int(above and walked or walked + back(l))}, ' ')
    if score == nil then return nil, came end
    sum = above and used(l) - walked or walked
    for i = 1, #olds do
      if olds[i].score > cut and olds[i].score <= l.from then sum = sum - amountOf(l, olds[i]) end
    end
    return sum, came
  end

  -- begunBetween is begun of the entries with scores above one and up to another, of 500 at most.
  local function begunBetween(l, low, high)
    local sum, left = 0, 500
    for i = 1, #l.covered do
      local op = l.covered[i]
      for _, key in ipairs({zkey(op), ykey(op), rkey(op)}) do
        local ids = left > 0 and redis.call('ZRANGEBYSCORE', key, '(' .. int(low), high, 'LIMIT', '0', int(left)) or {}
        left = left - #ids
        for j = 1, #ids do ids[j] = idOf(ids[j]) end
        for _, text in ipairs(#ids > 0 and redis.call('HMGET', keyE, unpack(ids)) or {}) do
          local e = parse(text)
          if e and e.state ~= 'm' and e.start <= l.from then sum = sum + (l.calls and 1 or e.asked) end
        end
      end
    end
    return sum
  end

  -- begun sums what the reservations counted at l.from that finish later: all that they asked
  -- for. It looks at 500 of those that are open and at 500 other entries at most: what it leaves
  -- out is recorded as missing.
  local function begun(l)
    if l.from <= cutOf(l.win) then return 0 end
    return begunBetween(l, M.last, '+inf') + begunBetween(l, l.from, int(M.last))
  end

  -- standing lists the charges that record what was lost of a limit.
  local function standing(l)
    local list = {}
    for _, key in ipairs({zkey(l.op), ykey(l.op)}) do
      for _, member in ipairs(redis.call('ZRANGE', key, '0', '-1')) do
        local e = parse(redis.call('HGET', keyE, idOf(member)))
        if e then
          e.id = idOf(member)
          list[#list + 1] = e
        end
      end
    end
    return list
  end

  -- recoverOne records what is missing of a limit: one charge for what each host has
  -- charged itself, and one for the rest that was seen. All have the latest score. It
  -- returns their sum.
  local function recoverOne(l, sum, olds)
    local cut, score, stood, own, amounts = cutOf(l.win), l.from, 0, 0, {}
    for i = 1, #olds do
      local old = olds[i]
      if old.score > cut then
        score, stood = math.max(score, old.score), stood + amountOf(l, old)
        if old.id ~= l.id then amounts[old.id] = amountOf(l, old) end
      end
    end
    if l.own > 0 then amounts[l.mine] = math.max(l.own, amounts[l.mine] or 0) end
    for _, amount in pairs(amounts) do own = own + amount end
    local all = math.max(l.seen - sum, stood, own)
    amounts[l.id] = all - own
    local over = score <= l.win.adv
    score = math.max(score, earliest())
    if over or score <= cut or all <= 0 then
      all, amounts = 0, {}
    else
      history.found(l, 'recovered', all - stood)
    end
    for i = 1, #olds do
      local old = olds[i]
      record(l, old.id, old, amounts[old.id] or 0, score)
      amounts[old.id] = nil
    end
    for id, amount in pairs(amounts) do record(l, id, nil, amount, score) end
    return all
  end

  -- recoverAll records what is missing of each limit once all limits are summed. Until
  -- then the next run continues each sum.
  function recoverAll(limits, lost)
    local answers, sums, olds, done = {}, {}, {}, true
    for i = 1, #limits do
      local l = limits[i]
      answers[i] = {'0', ''}
      l.wanted = lost and l.seen >= 0 and not (l.win and l.win.len == 0)
      if l.wanted and l.win then
        l.from, olds[i] = math.min(l.from, M.last), standing(l)
        sums[i], answers[i][2] = survived(l, olds[i])
        done = done and sums[i] ~= nil
      end
    end
    for i = 1, done and #limits or 0 do
      local l = limits[i]
      answers[i][2] = ''
      if l.wanted and l.meter then
        local m = l.meter
        local left = drain(m, l.seen, 0, M.last - l.from)
        local add = math.min(left, math.max(l.full, left) - levelAt(m, M.last))
        if add > 0 then
          pour(m, add, 0, M.last, M.last)
          history.found(l, 'recovered', add)
          answers[i][1] = int(add)
        end
      elseif l.wanted then
        answers[i][1] = int(recoverOne(l, sums[i] + begun(l), olds[i]))
      end
    end
    return answers, done
  end
end
