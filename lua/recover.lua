-- What was lost, recorded: one charge for each limit under a pseudo-operation of
-- its own, and ledgers begun anew. Comes after replay.lua.

-- lowerOf is the instant up to which a window that is asked for counts nothing.
local function lowerOf(a, now)
  if a.p0 then return now >= a.p1 and a.c1 or a.c0 end
  local w = {key = a.key}
  shape(w)
  return lowerAt(w, now)
end

-- forgetWindows drops all windows and their totals; those that are used are built
-- from the entries.
local function forgetWindows()
  redis.call('DEL', keyX)
  for i = #wins, 1, -1 do
    winByKey[wins[i].key] = nil
    wins[i] = nil
  end
  for field in pairs(rows) do rows[field] = nil end
  M.emptied, M.chg = true, M.chg + 1 -- what has come back is counted from 0 again
end

-- lossNow is until when the last loss that was noticed holds charges back, where
-- so many hosts share the store; nil when it holds none back.
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

-- report notes that a host reports a loss. The first report on a ledger begins its
-- recovery, and so does one that finds it rolled back, which then gets a new id.
local function report(host, candidate)
  local rolledBack = goneLedger()
  if rolledBack then M.lid = candidate end
  if rolledBack or M.loss == '' then M.loss = int(M.last) end
  local _, n = string.gsub(M.loss, ' ', '')
  if host ~= '' and n < MAXREPORTS and not string.find(M.loss .. ' ', ' ' .. host .. ' ', 1, true) then M.loss = M.loss .. ' ' .. host end
  M.seq = M.seq + 1
end

-- note notes that a host decides; those not seen for long are forgotten, and of too
-- many those that were noted first.
local function note(host)
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

-- broken reports whether the ledger's parts do not agree: KEYS has all that there may
-- be, so that what is left of an operation that m does not know shows too.
local function broken()
  for from = M.v and 4 + 3 * nops or 1, #KEYS, 1000 do
    if redis.call('EXISTS', unpack(KEYS, from, math.min(#KEYS, from + 999))) > 0 then return true end
  end
  return M.v and counted(0) ~= nil
end

-- blank makes of what was read an empty ledger that has seen the same time.
local function blank()
  M.v, M.born, M.n, M.nops, M.ops, M.sig, M.chg, M.exp, M.prune, M.gone = nil, 0, 0, 0, '', '', 0, 0, 0, 0
  saved.locks, saved.marks, M.marks = '', '', '' -- locks are kept
  saved.lid, saved.loss, saved.hosts, M.lid, M.nid, M.loss, M.reset, M.seq = '', '', '', '', '', '', 0, 0 -- hosts are kept
  M.meters, M.merged, M.rowno, M.mpos, M.emptied = '', 0, 0, '', true
  nops, opNames = 0, nil
  for i = #wins, 1, -1 do
    winByKey[wins[i].key] = nil
    wins[i] = nil
  end
  for i = #meters, 1, -1 do
    meterByKey[meters[i].key] = nil
    meters[i] = nil
  end
  for key in pairs(there) do there[key] = nil end
end

-- forgetAll deletes the ledger.
local function forgetAll()
  for from = 1, #KEYS, 1000 do redis.call('DEL', unpack(KEYS, from, math.min(#KEYS, from + 999))) end
end

-- cutOf is the score up to which nothing counts in a window that is up to date.
local function cutOf(w) return math.max(w.adv, w.floor) end

local function memberOf(e, id) return int(e.units) .. ',' .. int(e.asked) .. ':' .. id end

-- record puts a charge of a limit in the place of the old one.
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
do -- a block: a script has few places for local names
  -- amountOf is what a limit counts of an entry.
  local function amountOf(l, e) return l.calls and e.asked or e.units end

  -- sideOf is the side of l.from on which a limit has fewer entries: a above it, b
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

  -- survived sums what counts in a limit of scores up to l.from, but for what was
  -- recovered. It walks over the side of l.from with fewer entries: what is above it
  -- is taken off what is used. It returns nil, and how far it came, when steps ran out.
  --
  -- The progress of an earlier run holds for the same ledger, while nothing that was
  -- taken in changed. What left the window since is taken off again with what has
  -- come back.
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

  -- standing are the charges that stand for what was lost of a limit.
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

  -- recoverOne records what is missing of a limit: what each host has charged itself
  -- in a charge of its own, and what else was seen in one more. All are of the latest
  -- instant. It returns what they come to.
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
    if over or score <= cut or all <= 0 then all, amounts = 0, {} end
    for i = 1, #olds do
      local old = olds[i]
      record(l, old.id, old, amounts[old.id] or 0, score)
      amounts[old.id] = nil
    end
    for id, amount in pairs(amounts) do record(l, id, nil, amount, score) end
    return all
  end

  -- recoverAll records what is missing of each limit once all are summed; until then
  -- the next run goes on with each from where it came.
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
          answers[i][1] = int(add)
        end
      elseif l.wanted then
        answers[i][1] = int(recoverOne(l, sums[i], olds[i]))
      end
    end
    return answers, done
  end
end
