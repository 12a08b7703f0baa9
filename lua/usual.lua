-- Decides a batch of charges that all fit, of a ledger on which nothing else goes on, and before
-- it settles reservations that cost what was charged for them, as finish.lua does. It
-- leaves anything else to these, and has written nothing then. It is flat, and gives
-- tables their size at once where it can, since each function that a script defines, and
-- each growth of a table, costs a quarter of a command. It makes few long strings, since
-- Redis hashes each of them in full.
--
-- doubles, which is defined before this script, is the format of as many packed numbers as it
-- takes at most: a beginning of it costs less than string.rep.
--
-- KEYS  m, e, the zset of each run of items, then l:<day> if history is kept. It reads the
--       zsets of other operations too when something leaves a window; they have the same
--       hash tag.
-- ARGV  1 the head of the state, as charge.lua gave it in a plan
--       2 numbers, packed as doubles: the caller's clock; the first of the items' deadlines on
--         the server's clock; until when the plan serves; up to which score a
--         calendar counts in its next period nothing; the changes that the caller has seen;
--         how many numbers s has, how many windows and covers; how many rows, runs, known
--         ids, items, places and labels follow; when the day of l:<day> begins (-1: no history),
--         and when that key expires (ms); how many entries beyond the last block are too many; then
--         for each live window its length (0: open reservations, -1: a calendar), precision,
--         and whether a limit of the call has it (1 or 0); the places in s and the rows of
--         what the caller wants to know; for each bucket the amount and the period of its refill;
--         and for each run how many items, one if a bucket counts it, their units, their
--         row, lease, what each bucket counts of an item (-1: it does not count it),
--         how many checks: place, amount and bound each; how many checks of
--         divided limits: place, amount and bound each, how many other shares, place,
--         guarantee and lapse each; at last units and age of each settlement, and how many there are
--       then the fields of the rows; for each run the beginning of a member, that of an entry
--       and what it adds to the history; known ids, which the ledger must have; those
--       of the settlements; the items' ids; and the ends of their entries, one for all or one each
-- Returns a number: the caller is to run charge.lua, or if it is 18, to have finish.lua settle. Or an
--   error, if a command failed: a single charge is then not written. Else, packed: clock, last seen, time of the
--   first charge, changes, whether there is something to tidy that the caller is to have
--   charge.lua do, the settlements' scores, and for each run that fits its places' numbers after it.
--   Runs after the first that does not fit are not charged. The script asks at most one caller to tidy.

local call, K, A, sub, up, pack, floor = redis.call, KEYS, ARGV, string.sub, struct.unpack, struct.pack, math.floor
local fmt, fmod = string.format, math.fmod

-- text is an instant of at least 10^8 in digits. %d is cheaper than %.0f, and so it is used for
-- numbers in names too; but where C's long has 32 bits it cannot write an instant at once.
local function text(instant)
  local rest = fmod(instant, 100000000)
  return fmt('%d%08d', (instant - rest) / 100000000, rest)
end

local a = {up(sub(doubles, 1, #A[2] / 8), A[2])}
local size, nw, nc, nk, nr, n = a[6], a[7], a[8], a[9], a[10], a[12]
local levels = 10 + 7 * nw + 3 * nc -- where those of buckets begin in s
local nm = (size - levels) / 3
local runsAt = 17 + 3 * nw + a[13] + 2 * nm
local stride = 5 + 6 * nw
local rowFormat = sub(doubles, 1, stride)
local f = call('HMGET', K[1], 's', 'chg', 'gone', 'merged', unpack(A, 3, 2 + nk))
local s, restarts = f[1], tonumber(f[2] or 0)
local forgotten = math.max(f[3] or 0, f[4] or 0)
if not s or sub(s, 1, 24) ~= A[1] then return 1 end
for i = 5, nk + 4 do
  if not f[i] or #f[i] ~= 8 * stride then return 2 end
end
local t = {up(sub(doubles, 1, size), s, 25)} -- the numbers of s
local rows, listed = {0, 0, 0, 0}, nk -- those of the rows of the runs, and later of other operations, each with its field after them
local ofOperation = {} -- the rows by operation
for i = 1, nk do
  local row = {up(rowFormat, f[i + 4])}
  row[stride + 1], rows[i], ofOperation[tonumber(sub(A[2 + i], 2))] = A[2 + i], row, row
end

-- value is the number of a place: after s come the rows.
local function value(place)
  if place <= size then return t[place] end
  local at = place - size - 1
  return rows[floor(at / stride) + 1][at % stride + 1]
end

local raw, caller, last = clock(), a[1], t[1]
if raw - last > 60000000 and raw - caller > 60000000 or caller - raw > 86400000000 or raw > a[2] then return 3 end
local now, at = raw, raw
if caller > raw then at = caller elseif raw - caller <= 60000000 then now = caller end
if now < last then now = last end
if at < now then at = now end
local ending = at -- what ends now does so by the later clock
if at <= t[2] then at = t[2] + 1 end
local final = at + n - 1
local latest = at <= now + 1 and final or now -- what charge.lua has seen by the last item
if latest >= t[4] or latest >= a[3] or final - latest > 600000000 or t[5] < a[5] then return 4 end

local firstRun, nt, ns = 3 + nk, a[11], a[#A[2] / 8]
local firstID = firstRun + 3 * nr + nt + ns
local single = n + ns == 1
if single then -- whether the ledger has its id, the first write shows
  for i = firstID - nt, firstID - 1 do
    if not call('HGET', K[2], A[i]) then return 5 end
  end
else
  f = call('HMGET', K[2], unpack(A, firstRun + 3 * nr, firstID + n - 1))
  for i = 1, nt do
    if not f[i] then return 5 end
  end
  for i = nt + ns + 1, nt + ns + n do
    if f[i] then return 6 end
  end
end
if call('HLEN', K[2]) ~= t[3] then return 7 end
local p = runsAt
for i = 1, nr do
  local entries = rows[a[p + 3]][a[p + 2] > 0 and 1 or 2]
  if entries == 0 or call('ZCARD', K[2 + i]) ~= entries then return 8 end
  p = p + 5 + nm + 3 * a[p + 5 + nm]
  local shared = a[p + 1]
  p = p + 1
  for _ = 1, shared do p = p + 4 + 3 * a[p + 4] end
end

local read = 0 -- how many entries leave
local queues, firsts = {}, {} -- by window: the groups of its queue that change, each with its field after it; and q<w>
local prefix = sub(K[1], 1, -2)
local groups = floor((t[6] + 7) / 8)
for w = 1, nw do
  local j = 10 + 7 * (w - 1)
  local length, precision = a[15 + 3 * w], a[16 + 3 * w]
  if a[17 + 3 * w] == 1 and length >= 0 and t[j + 3] <= latest then
    if length == 0 then return 9 end
    local target = now - length
    if precision > 0 then target = target - fmod(target, precision) end
    local name, first, queue = fmt('q%d', w), nil, {}
    if groups > 1 then
      local packed = call('HGET', K[1], name)
      if not packed or #packed ~= 8 * groups then return 10 end
      first = {up(sub(doubles, 1, groups), packed)}
    else
      first = {t[j + 3]}
    end
    queues[w], firsts[w] = queue, first
    local least, earliest = 9000000000000000, now -- when the first leaves after this run, and in it
    local names, places, due = {0, 0, 0, 0}, {0, 0, 0, 0}, 0
    for g = 1, groups do
      if first[g] <= now then
        due = due + 1
        names[due], places[due] = fmt('%s:%d', name, g), g
      elseif first[g] < least then
        least = first[g]
      end
    end
    if due == 0 then return 14 end
    local found = due == 1 and {call('HGET', K[1], names[1])} or call('HMGET', K[1], unpack(names, 1, due))
    local leaving, missing, leaves, misses = {0, 0, 0, 0}, {0, 0, 0, 0}, 0, 0
    for i = 1, due do
      if not found[i] or #found[i] ~= 64 then return 10 end
      local list, op = {up('dddddddd', found[i])}, 8 * places[i] - 8
      queue[places[i]], list[9] = list, names[i]
      for k = 1, 8 do
        if list[k] <= now then
          leaves = leaves + 1
          leaving[leaves] = op + k
          if list[k] < earliest then earliest = list[k] end
          if not ofOperation[op + k] then
            misses = misses + 1
            missing[misses] = fmt('o%d', op + k)
          end
        elseif list[k] < least then
          least = list[k]
        end
      end
    end
    if misses > 100 then return 11 end
    if misses > 0 then
      local found = misses == 1 and {call('HGET', K[1], missing[1])} or call('HMGET', K[1], unpack(missing, 1, misses))
      for i = 1, misses do
        if not found[i] or #found[i] ~= 8 * stride then return 12 end
        local row = {up(rowFormat, found[i])}
        listed = listed + 1
        row[stride + 1], rows[listed], ofOperation[tonumber(sub(missing[i], 2))] = missing[i], row, row
      end
    end
    local since = math.max(0, earliest - length - precision) -- nothing that leaves has a lower score
    local from = text(since)
    for i = 1, leaves do
      local op = leaving[i]
      local row, c = ofOperation[op], 6 * w - 1
      local units, calls, next, start = 0, 0, 9000000000000000, from
      if row[c + 3] >= since then start = row[c + 3] + 1 end
      for kind = 1, 2 do
        if row[kind] > 0 then
          local key = fmt(kind == 1 and '%sz:%d' or '%sy:%d', prefix, op)
          -- Mostly one leaves. Scores cost more than members, so for more than one they are left out.
          local list = call('ZRANGEBYSCORE', key, start, '+inf', 'WITHSCORES', 'LIMIT', '0', '2')
          local gone, every, after = 0, 2, tonumber(list[2])
          if after and after <= target then gone, after = 1, tonumber(list[4]) end
          if after and after <= target then
            local to = text(target)
            list, every = call('ZRANGEBYSCORE', key, start, to, 'LIMIT', '0', '200'), 1
            gone, after = #list, tonumber(call('ZRANGEBYSCORE', key, '(' .. to, '+inf', 'WITHSCORES', 'LIMIT', '0', '1')[2])
          end
          if after and after < next then next = after end
          read = read + gone
          if gone == 200 or read > 1000 then return 13 end
          for i = 1, gone do
            local member = list[every * i - every + 1]
            local u, k = string.byte(member, 1, 2)
            if k == 58 then -- "7:id", as in unitsOf
              u, k = u - 48, 1
            else
              u, k = string.match(member, '^(%d+),?(%d*)')
              if k == '' then k = 1 end
            end
            units, calls = units + u, calls + k
          end
        end
      end
      if next < 9000000000000000 then
        if precision > 0 and fmod(next, precision) > 0 then next = next - fmod(next, precision) + precision end
        next = next + length
      end
      row[c + 1], row[c + 2], row[c + 3], row[c + 4] = row[c + 1] - units, row[c + 2] - calls, target, next
      row[c + 5], row[c + 6] = row[c + 5] + units, row[c + 6] + calls
      local g = floor((op + 7) / 8)
      queue[g][op - 8 * g + 8] = next
      if next < least then least = next end
      t[j + 1], t[j + 2], t[j + 5], t[j + 6] = t[j + 1] - units, t[j + 2] - calls, t[j + 5] + units, t[j + 6] + calls
      local mask, v = row[3], 10 + 7 * nw
      while mask > 0 do
        if mask % 2 == 1 then
          if t[v + 3] == w then t[v + 1], t[v + 2] = t[v + 1] - units, t[v + 2] - calls end
          mask = mask - 1
        end
        mask, v = mask / 2, v + 3
      end
    end
    if least <= latest then return 14 end
    t[j + 3], t[j + 4] = least, target
  end
end

-- enter notes when an entry leaves a rolling window. It returns false if the queue is not as it
-- should be.
local function enter(w, row, score)
  local leaves, precision, j = score + a[15 + 3 * w], a[16 + 3 * w], 7 * w + 3
  if precision > 0 and fmod(score, precision) > 0 then leaves = leaves - fmod(score, precision) + precision end
  if leaves < t[j + 3] then t[j + 3] = leaves end
  if leaves >= row[6 * w + 3] then return true end -- not the first of its operation
  local op = tonumber(sub(row[stride + 1], 2))
  local g = floor((op + 7) / 8)
  queues[w] = queues[w] or {}
  if not queues[w][g] then
    local name = fmt('q%d:%d', w, g)
    local found = call('HMGET', K[1], name, fmt('q%d', w))
    if not found[1] or #found[1] ~= 64 or groups > 1 and (not found[2] or #found[2] ~= 8 * groups) then return false end
    local list = {up('dddddddd', found[1])}
    queues[w][g], list[9] = list, name
    firsts[w] = firsts[w] or groups > 1 and {up(sub(doubles, 1, groups), found[2])}
  end
  row[6 * w + 3], queues[w][g][op - 8 * g + 8] = leaves, leaves
  return true
end

local drain -- brings the buckets' levels to a later instant, as drain in meters.lua does
if nm > 0 then
  function drain(to)
    for m = 1, nm do
      local j, r = levels + 3 * m - 3, runsAt - 2 * nm + 2 * m - 2
      local used, span, amount, period = t[j + 1], to - t[j + 3], a[r + 1], a[r + 2]
      if span > 0 then
        local rest = fmod(span, period)
        local part = t[j + 2] + amount * rest
        local over = fmod(part, period)
        t[j + 1], t[j + 2], t[j + 3] = used - amount * ((span - rest) / period) - (part - over) / period, over, to
        if t[j + 1] <= 0 then t[j + 1], t[j + 2] = 0, 0 end
      end
    end
  end
  drain(now)
end

local reply, told, counted = {raw, now, at, 0, 0, 0, 0, 0, 0}, 5, {0, 0, 0}

-- An entry counts before its settlement and after it, so that of all sums none changes, and a
-- bucket only drains, if it does so from now on. When it leaves a window does.
if ns > 0 and nm > 0 and ending - now > 60000000 then return 18 end
local entries, members = {}, {} -- what e is given, and by zset what that is
for i = 1, ns do
  local k, id = #A[2] / 8 - 2 * (ns - i + 1), A[firstID - ns + i - 1]
  local op, units, start, was, labels = string.match(f[nt + i] or '', '^1|(%d+)|(%d+)||o|(%d+)|(%d+)|([^|]*|[^|]*|[^|]*)$')
  if not op or tonumber(units) ~= a[k] then return 18 end
  local row = ofOperation[tonumber(op)]
  if not row then
    local name = 'o' .. op
    local found = call('HGET', K[1], name)
    if not found or #found ~= 8 * stride then return 18 end
    row, listed = {up(rowFormat, found)}, listed + 1
    row[stride + 1], rows[listed], ofOperation[tonumber(op)] = name, row, row
  end
  local score = math.max(ending - a[k + 1], start)
  if score >= tonumber(was) or score <= forgotten or score <= now - 3600000000 or score <= row[5] then return 18 end
  for w = 1, nw do
    local length = a[15 + 3 * w]
    if length == 0 or score <= row[6 * w + 2] or length > 0 and (score + length <= latest or not enter(w, row, score)) then return 18 end
  end
  local kind = a[k] > 0 and 1 or 2
  local key = prefix .. (kind == 1 and 'z:' or 'y:') .. op
  if not members[key] then
    if row[kind] == 0 or call('ZCARD', key) ~= row[kind] then return 8 end
    members[key] = {}
  end
  local list, ends = members[key], text(score)
  list[#list + 1], list[#list + 2] = ends, units .. ':' .. id
  entries[2 * i - 1], entries[2 * i] = id, fmt('1|%s|%s||s|%s|%s|%s', op, units, start, ends ~= start and ends or '', labels)
  reply[told + i] = score
end
told = told + ns
local granted, charged, wants = 0, 0, 0 -- items and runs
p = runsAt
while charged < nr do
  local count, units, row, lease = a[p + 1], a[p + 2], rows[a[p + 3]], a[p + 4]
  local amount, fits = count * units, true
  local poured, q = p + 4, p + 5 + nm
  for _ = 1, a[q] do
    if value(a[q + 1]) + count * a[q + 2] > a[q + 3] then fits = false end
    q = q + 3
  end
  local shared = a[q + 1]
  q = q + 1
  for _ = 1, shared do
    local sum = value(a[q + 1]) + count * a[q + 2]
    local bound, parts = a[q + 3], a[q + 4]
    q = q + 4
    for _ = 1, parts do
      local kept = a[q + 2] - value(a[q + 1])
      if kept > 0 and now < a[q + 3] then sum = sum + kept end
      q = q + 3
    end
    if sum > bound or final + lease > a[4] then fits = false end
  end
  local score = at + granted + lease
  for w = 1, nw do
    local length, cut = a[15 + 3 * w], row[2 + 6 * w]
    counted[w] = length > 0 or length == 0 and lease > 0 or length < 0 and score > cut
    if t[7 * w + 4] + amount > 1000000000000000 or length < 0 and not counted[w] and score + count > cut
      or length >= 0 and counted[w] and score + length <= latest then -- what leaves within the batch
      fits = false
    end
  end
  if not fits then break end
  p = q
  local mask, v = row[3], 10 + 7 * nw
  for w = 1, nw do
    if counted[w] then
      local j, c = 10 + 7 * (w - 1), 6 * w - 1
      t[j + 1], t[j + 2], row[c + 1], row[c + 2] = t[j + 1] + amount, t[j + 2] + count, row[c + 1] + amount, row[c + 2] + count
      if a[15 + 3 * w] >= 0 and not enter(w, row, score) then return 16 end
    end
  end
  while mask > 0 do
    if mask % 2 == 1 then
      if counted[t[v + 3]] then t[v + 1], t[v + 2] = t[v + 1] + amount, t[v + 2] + count end
      mask = mask - 1
    end
    mask, v = mask / 2, v + 3
  end
  local kind = units > 0 and 1 or 2
  row[kind] = row[kind] + count
  if kind == 1 then
    local fresh = row[4] + count
    if fresh >= a[17] and floor(2 * fresh / a[17]) > floor(2 * row[4] / a[17]) then wants = 1 end
    row[4] = fresh
  end
  granted, charged = granted + count, charged + 1
  if nm > 0 then
    local seen, later = at <= now + 1 and at + granted - 1 or now, math.max(raw, caller)
    drain(seen)
    for m = 1, nm do
      if a[poured + m] >= 0 then
        local j = levels + 3 * m - 3
        t[j + 1], t[j + 3] = t[j + 1] + a[poured + m], math.max(t[j + 3], seen, later - now > 60000000 and later or now)
      end
    end
  end
  for i = 1, a[13] do reply[told + i] = value(a[17 + 3 * nw + i]) end
  told = told + a[13]
end
if granted == 0 then return 15 end
final = at + granted - 1
latest = at <= now + 1 and final or now
local hour = a[15] >= 0 and floor((at - a[15]) / 3600000000) or 0
if a[15] >= 0 and (hour < 0 or hour > 23 or final >= a[15] + (hour + 1) * 3600000000) then return 17 end

-- From here on the script writes.
local id, score = A[firstID], text(at)
if single then
  local start, ends, lease = score, A[firstID + 1], a[runsAt + 4]
  if lease > 0 then
    score = text(at + lease)
    ends = score .. ends
  end
  if call('HSETNX', K[2], id, A[firstRun + 1] .. start .. '|' .. ends) == 0 then return 6 end
end
local failed -- what a command that failed said
if a[15] >= 0 then
  local line = A[firstRun + 2]
  for i = 2, charged do line = line .. A[firstRun + 3 * i - 1] end
  line = fmt('%d=', hour) .. line .. '\n'
  local length = redis.pcall('APPEND', K[3 + nr], line)
  if type(length) == 'table' then
    failed = length
  else
    if length == #line then
      local done = redis.pcall('PEXPIREAT', K[3 + nr], text(expiry(a[16])))
      failed, wants = type(done) == 'table' and done, 1
    end
    if floor(length / 32768) > floor((length - #line) / 32768) then wants = 1 end
  end
end
if single then
  local member = A[firstRun] .. id
  if not failed then
    local done = redis.pcall('ZADD', K[3], score, member)
    failed = type(done) == 'table' and done
  end
  if failed then call('HDEL', K[2], id) end
end
if failed then return failed end
if not single then
  local from, one = 0, a[14] == 1
  local digit, tens = tonumber(sub(score, -1)), sub(score, 1, -2)
  p = runsAt
  for i = 1, charged do
    local list = members[K[2 + i]] or {}
    local q, had = firstRun + 3 * (i - 1), #list
    local member, begin = A[q], A[q + 1]
    local count, lease = a[p + 1], a[p + 4]
    for k = 1, count do
      local item = from + k
      id = A[firstID + item - 1]
      local start, ends = tens .. sub('0123456789', digit + 1, digit + 1), A[firstID + n - 1 + (one and 1 or item)]
      digit = digit + 1
      if digit == 10 then digit, tens = 0, text((at + item) / 10) end
      if lease > 0 then
        score = text(at + item - 1 + lease)
        entries[2 * (ns + item)] = begin .. start .. '|' .. score .. ends
      else
        score = start
        entries[2 * (ns + item)] = begin .. start .. '|' .. ends
      end
      entries[2 * (ns + item) - 1], list[had + 2 * k - 1], list[had + 2 * k] = id, score, member .. id
    end
    members[K[2 + i]] = list
    from = from + count
    p = p + 5 + nm + 3 * a[p + 5 + nm]
    local shared = a[p + 1]
    p = p + 1
    for _ = 1, shared do p = p + 4 + 3 * a[p + 4] end
  end
  for key, list in pairs(members) do call('ZADD', key, unpack(list)) end
  call('HSET', K[2], unpack(entries))
end
t[1], t[2], t[3], t[5] = latest, final, t[3] + granted, t[5] + granted + ns
if latest >= t[9] then t[9], wants = latest + 1000000, 1 end
reply[2], reply[4], reply[5] = latest, t[5], wants
local fields, k = {'s', A[1] .. pack(sub(doubles, 1, size), unpack(t, 1, size)) .. A[firstID + granted - 1], 0, 0, 0, 0, 0, 0, 0, 0}, 2
if ns > 0 then fields[3], fields[4], k = 'chg', fmt('%.0f', restarts + ns), 4 end
for i = 1, listed do
  local row = rows[i]
  fields[k + 1], fields[k + 2] = row[stride + 1], pack(rowFormat, unpack(row, 1, stride))
  k = k + 2
end
for w, queue in pairs(queues) do
  for g, list in pairs(queue) do
    fields[k + 1], fields[k + 2] = list[9], pack('dddddddd', unpack(list, 1, 8))
    k = k + 2
    if groups > 1 then firsts[w][g] = math.min(unpack(list, 1, 8)) end
  end
  if groups > 1 then
    fields[k + 1], fields[k + 2] = fmt('q%d', w), pack(sub(doubles, 1, groups), unpack(firsts[w], 1, groups))
    k = k + 2
  end
end
call('HSET', K[1], unpack(fields, 1, k))
return pack(sub(doubles, 1, told), unpack(reply, 1, told))
