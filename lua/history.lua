-- What was charged, by the hour: in keys of their own, one a day (UTC), which come last in
-- KEYS, in the order of args.days. Comes after meters.lua.
--
--   h:<day>  hash operation|job|region -> "hour units calls" of the day's hours, by comma,
--            the latest noted first; what another ledger charged has that ledger's id as a
--            fourth name, and "#" is how many such fields there are
--
-- A reset leaves these keys, and they expire by themselves.

local history = {own = #KEYS - #(args.days or {})} -- how many keys are the ledger's
do
  local MAXSERIES = 1024
  local keys, noted = {}, {}
  local latest, lastOp, lastHour = {}, nil, 0 -- the sums of one operation and hour, by labels
  local bases = {}
  for i, op in ipairs(args.ops or {}) do bases[op] = args.bases[i] end
  for i, day in ipairs(args.days or {}) do keys[day] = KEYS[history.own + i] end

  local function dayOf(at) return floorTo(at, DAY) / DAY end

  -- lacks lists the days from one instant to another whose keys the caller did not give.
  local function lacks(from, to, list)
    for day = dayOf(math.max(0, from)), dayOf(math.max(0, to)) do
      if not keys[day] then list[#list + 1] = int(day) end
    end
    return list
  end

  -- missing is the answer where the caller must give more days, else nil.
  function history.missing(raw, now, latest, items)
    if not args.kept then return nil end
    local day = dayOf(now)
    local list = keys[day] and day == dayOf(latest) and {} or lacks(now, latest, {})
    for i = 1, #items do
      if items[i].age then lacks(now - items[i].age, latest - items[i].age, list) end
    end
    return #list > 0 and {8, int(raw), table.concat(list, ',')} or nil
  end

  -- note adds to the hour of an instant; write writes it.
  function history.note(at, name, units, calls)
    if not args.kept or units == 0 and calls == 0 then return end
    local hour = floorTo(at, HOUR)
    local sums = noted[hour]
    if not sums then
      sums = {}
      noted[hour] = sums
    end
    local sum = sums[name]
    if not sum then
      sum = {0, 0}
      sums[name] = sum
    end
    sum[1], sum[2] = sum[1] + units, sum[2] + calls
    return sum, hour
  end

  -- charged notes a change of what an entry counts, in the hour in which it was charged.
  function history.charged(e, units, calls)
    if not args.kept then return end
    local sum = e.op == lastOp and e.start >= lastHour and e.start < lastHour + HOUR and latest[e.labels]
    if sum then -- as most items of a batch
      sum[1], sum[2] = sum[1] + units, sum[2] + calls
      return
    end
    local hour
    sum, hour = history.note(e.start, (bases[e.op] or baseOf(e.op)) .. '|' .. string.match(e.labels, '^[^|]*|[^|]*'), units, calls)
    if e.op ~= lastOp or hour ~= lastHour then lastOp, lastHour, latest = e.op, hour or 0, {} end
    latest[e.labels] = sum
  end

  -- found notes drift or recovered units of a limit, in the present hour.
  function history.found(l, kind, amount)
    history.note(M.last, kind .. '/' .. l.name .. '||', l.calls and 0 or amount, l.calls and amount or 0)
  end

  -- with is a day's text of a series with an hour's sum added.
  local function with(text, hour, units, calls)
    local first, u, c, rest = string.match(text, '^(%d+) (-?%d+) (-?%d+)(.*)$')
    if not first then return fmt('%.0f %.0f %.0f', hour, units, calls) end
    if tonumber(first) == hour then return fmt('%s %.0f %.0f%s', first, u + units, c + calls, rest) end
    local before
    before, u, c, rest = string.match(text, '^(.*,)' .. int(hour) .. ' (-?%d+) (-?%d+)(.*)$')
    if before then return fmt('%s%.0f %.0f %.0f%s', before, hour, u + units, c + calls, rest) end
    return fmt('%.0f %.0f %.0f,%s', hour, units, calls, text)
  end

  -- full reports whether a day tells no further series apart.
  local function full(key, added)
    local n = redis.call('HLEN', key) + added
    if n < MAXSERIES then return false end
    local others = tonumber(redis.call('HGET', key, '#') or 0)
    return n - others - (others > 0 and 1 or 0) >= MAXSERIES
  end

  -- writeNew adds series to a day that lacks some of them.
  local function writeNew(key, day, hour, sums)
    local fields, added = {}, 0
    for name, sum in pairs(sums) do
      local text = fields[name] or redis.call('HGET', key, name) or ''
      if text == '' and not string.find(name, '/', 1, true) and full(key, added) then
        name = string.match(name, '^[^|]*') .. '||'
        text = fields[name] or redis.call('HGET', key, name) or ''
      end
      if text == '' then added = added + 1 end
      fields[name] = with(text, hour, sum[1], sum[2])
    end
    for name, text in pairs(fields) do redis.call('HSET', key, name, text) end
    redis.call('PEXPIREAT', key, int(expiry(((day + 1) * DAY + HOUR + args.kept) / 1000)))
  end

  -- writeHour writes what was noted of one hour of a day. Most often that has all series.
  local function writeHour(key, day, hour, sums)
    local one, sum = next(sums)
    local text = next(sums, one) == nil and redis.call('HGET', key, one)
    if text then -- most often there is one
      redis.call('HSET', key, one, with(text, hour, sum[1], sum[2]))
      return
    end
    local names, list, n = {}, {}, 0
    for name in pairs(sums) do
      n = n + 1
      names[n] = name
    end
    for from = 1, n, 1000 do
      local to = math.min(n, from + 999)
      local found = redis.call('HMGET', key, unpack(names, from, to))
      for i = from, to do
        text, sum = found[i - from + 1], sums[names[i]]
        if not text then return writeNew(key, day, hour, sums) end
        list[2 * i - 1], list[2 * i] = names[i], with(text, hour, sum[1], sum[2])
      end
    end
    for from = 1, 2 * n, 1000 do redis.call('HSET', key, unpack(list, from, math.min(2 * n, from + 999))) end
  end

  function history.write()
    if next(noted) == nil then return end
    local earliest = floorTo(math.max(0, M.last - args.kept), HOUR)
    for start, sums in pairs(noted) do
      local day = dayOf(start)
      if keys[day] and start >= earliest then writeHour(keys[day], day, (start - day * DAY) / HOUR, sums) end
    end
    noted, lastOp = {}, nil
  end

  -- import takes over a row of another ledger's history, in place of one that an earlier
  -- import brought.
  function history.import(row)
    local day, hour = dayOf(row.start), math.fmod(row.start, DAY) / HOUR
    local key = keys[day]
    if not key or row.id == M.lid or row.start < floorTo(math.max(0, M.last - args.kept), HOUR) then return end
    local name = row.labels .. '|' .. row.id
    local text = redis.call('HGET', key, name) or ''
    local units, calls = string.match(',' .. text, ',' .. int(hour) .. ' (-?%d+) (-?%d+)')
    redis.call('HSET', key, name, with(text, hour, row.units - (units or 0), row.calls - (calls or 0)))
    if text == '' then
      redis.call('HSET', key, '#', int(tonumber(redis.call('HGET', key, '#') or 0) + 1))
      redis.call('PEXPIREAT', key, int(expiry(((day + 1) * DAY + HOUR + args.kept) / 1000)))
    end
  end
end
