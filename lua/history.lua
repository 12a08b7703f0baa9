-- What was charged, by the hour: in two keys of their own for each day (UTC), which come
-- last in KEYS, in the order of args.days. Comes after meters.lua.
--
--   h:<day>  hash operation|job|region -> "hour units calls" of the day's hours, by comma,
--            refusals and waits as calls of refused/LIMIT/OPERATION and waited/LIMIT/OPERATION;
--            the latest noted first; what an import brought has the id of the history from
--            which it comes as a fourth name, and after the calls of an hour the instant (µs)
--            whose numbers these are; "#" is how many such fields there are, "@" the
--            day's own id: that of the ledger that charged first in the day
--   l:<day>  what is not in h:<day> yet: a line "hour=operation|job|region units calls;…"
--            of each script run. It goes into h:<day> once it is longer than LOG, and before
--            h:<day> is read
--
-- A reset leaves these keys, and they expire by themselves.

local history = {own = #KEYS - 2 * #(args.days or {})} -- how many keys are the ledger's
do
  local MAXSERIES, LOG = 1024, 32768
  local keys, logs, noted = {}, {}, {}
  local charged, first, latest = {}, nil, nil -- the new entries, and when the first and the last began
  for i, day in ipairs(args.days or {}) do
    keys[day], logs[day] = KEYS[history.own + 2 * i - 1], KEYS[history.own + 2 * i]
  end

  local function dayOf(at) return floorTo(at, DAY) / DAY end

  -- endOf is when a day's keys expire, in ms.
  local function endOf(day) return int(expiry(((day + 1) * DAY + HOUR + args.kept) / 1000)) end

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
  local function note(at, name, units, calls)
    if not args.kept or units == 0 and calls == 0 then return end
    local hour = floorTo(at, HOUR)
    local sums = noted[hour] or {}
    noted[hour] = sums
    local sum = sums[name] or {0, 0}
    sums[name] = sum
    sum[1], sum[2] = sum[1] + units, sum[2] + calls
  end

  -- add notes calls of a series that charges nothing.
  function history.add(at, name, calls) note(at, name, 0, calls) end

  -- spent notes an item's new entry.
  function history.spent(e)
    if not args.kept then
      M.unnoted = nil
      return
    end
    charged[#charged + 1] = e
    first, latest = math.min(first or e.start, e.start), math.max(latest or e.start, e.start)
  end

  local function seriesOf(e) return baseOf(e.op) .. '|' .. string.match(e.labels, '^[^|]*|[^|]*') end

  -- ended notes how a reservation's end changes what its entry counts, if the history has
  -- its charge.
  function history.ended(e, units, calls)
    if not args.kept or e.start <= M.unnoted then return end
    note(e.start, seriesOf(e), units, calls)
  end

  -- found notes drift or recovered units of a limit, in the present hour.
  function history.found(l, kind, amount)
    note(M.last, kind .. '/' .. l.name .. '||', l.calls and 0 or amount, l.calls and amount or 0)
  end

  -- with is a day's text of a series with the sum of an hour added: "hour ".
  local function with(text, hour, units, calls)
    local n = #hour
    if string.sub(text, 1, n) == hour then -- as most often
      local u, c, rest = string.match(text, '^(-?%d+) (-?%d+)()', n + 1)
      if rest > #text then return fmt('%s%.0f %.0f', hour, u + units, c + calls) end
      return fmt('%s%.0f %.0f%s', hour, u + units, c + calls, string.sub(text, rest))
    end
    local before, u, c, rest = string.match(text, '^(.*,)' .. hour .. '(-?%d+) (-?%d+)(.*)$')
    if before then return fmt('%s%s%.0f %.0f%s', before, hour, u + units, c + calls, rest) end
    return fmt('%s%.0f %.0f%s%s', hour, units, calls, text == '' and '' or ',', text)
  end

  -- full reports whether a day already has as many series as it keeps apart.
  local function full(key, added)
    local n = redis.call('HLEN', key) + added
    if n < MAXSERIES then return false end
    local more = redis.call('HMGET', key, '#', '@')
    return n - (more[1] and tonumber(more[1]) + 1 or 0) - (more[2] and 1 or 0) >= MAXSERIES
  end

  -- beyond is the series under which a full day keeps another one: that of the operation, or of
  -- refusals the limit, alone. It is nil for drift and recovered units.
  local function beyond(name)
    local alone = string.match(name, '^refused/[^/]*/') or string.match(name, '^waited/[^/]*/')
    if not alone and string.find(name, '/', 1, true) then return nil end
    return (alone or string.match(name, '^[^|]*')) .. '||'
  end

  -- writeNew adds series to a day that lacks some of them.
  local function writeNew(key, day, hour, names, units, calls)
    local fields, added = {}, 0
    for i, name in ipairs(names) do
      local text = fields[name] or redis.call('HGET', key, name) or ''
      local alone = text == '' and beyond(name)
      if alone and full(key, added) then
        name = alone
        text = fields[name] or redis.call('HGET', key, name) or ''
      end
      if text == '' then added = added + 1 end
      fields[name] = with(text, hour, units[i], calls[i])
    end
    for name, text in pairs(fields) do redis.call('HSET', key, name, text) end
    redis.call('PEXPIREAT', key, endOf(day))
  end

  -- writeHour writes the sums of series in the hour that begins at start: at most one for
  -- each item and limit. Most often the day has all series.
  local function writeHour(start, names, units, calls)
    local day = dayOf(start)
    local key, hour = keys[day], int((start - day * DAY) / HOUR) .. ' '
    if not key or start < floorTo(math.max(0, M.last - args.kept), HOUR) then return end
    local found, list = redis.call('HMGET', key, unpack(names)), {}
    for i = 1, #names do
      if not found[i] then return writeNew(key, day, hour, names, units, calls) end
      list[2 * i - 1], list[2 * i] = names[i], with(found[i], hour, units[i], calls[i])
    end
    redis.call('HSET', key, unpack(list))
  end

  -- count counts the parts of a text that end with a mark, alike ones together: each is in list
  -- once, and in often as many times more.
  local function count(text, from, mark, more, list, often)
    local find, sub = string.find, string.sub
    local to = find(text, mark, from, true)
    while to do
      local part = sub(text, from, to)
      local times = often[part] or 0
      if times == 0 then list[#list + 1] = part end
      often[part], from = times + more, to + 1
      to = find(text, mark, from, true)
    end
  end

  -- fold moves what a day's log has into the day's hash. Most lines of an hour are alike, and
  -- most of what unlike ones have, so that it counts both before it reads them. With on, the log
  -- goes on, so that usual.lua does not begin it anew.
  local function fold(day, on)
    local lines, often, hours, order = {}, {}, {}, {}
    count(redis.call('GET', logs[day]) or '', 1, '\n', 1, lines, often)
    for i = 1, #lines do
      local hour = string.match(lines[i], '^(%d+)=')
      if hour then
        local at = hours[hour]
        if not at then
          at = {parts = {}, often = {}}
          hours[hour], order[#order + 1] = at, hour
        end
        count(lines[i], #hour + 2, ';', often[lines[i]], at.parts, at.often)
      end
    end
    if #order > 0 then redis.call('DEL', logs[day]) end
    if #order > 0 and on then
      redis.call('APPEND', logs[day], '\n')
      redis.call('PEXPIREAT', logs[day], endOf(day))
    end
    for _, hour in ipairs(order) do
      local at, places, names, units, calls = hours[hour], {}, {}, {}, {}
      for _, part in ipairs(at.parts) do
        local name, u, c = string.match(part, '^(%S+) (-?%d+) (-?%d+);$')
        if name then
          local i, times = places[name], at.often[part]
          if not i then
            i = #names + 1
            places[name], names[i], units[i], calls[i] = i, name, 0, 0
          end
          units[i], calls[i] = units[i] + u * times, calls[i] + c * times
        end
      end
      if #names > 0 then writeHour(day * DAY + hour * HOUR, names, units, calls) end
    end
  end

  -- name gives a day its own id, if it has none.
  local function name(day)
    if redis.call('HGET', keys[day], '@') or M.lid == '' then return end
    redis.call('HSET', keys[day], '@', M.lid)
    redis.call('PEXPIREAT', keys[day], endOf(day))
  end

  -- tidy does so where a log is long.
  function history.tidy()
    for day, log in pairs(logs) do
      local length = #(redis.call('GET', log) or '')
      if length > 0 then name(day) end -- usual.lua may have begun it
      if length > LOG then fold(day, true) end
    end
  end

  -- read brings a day's hash up to date.
  function history.read(i) fold(args.days[i]) end

  -- append notes series of an hour in its day's log.
  local function append(at, series)
    local day = dayOf(at)
    if not keys[day] or at < floorTo(math.max(0, M.last - args.kept), HOUR) then return end
    local line = int(math.fmod(floorTo(at, HOUR), DAY) / HOUR) .. '=' .. series .. '\n'
    local n = redis.call('APPEND', logs[day], line)
    if n == #line then
      redis.call('PEXPIREAT', logs[day], endOf(day))
      name(day)
    end
    if n > LOG then fold(day, true) end
  end

  -- write writes what the run has noted. Most often that is all items, of which the caller
  -- has given the text.
  function history.write()
    if #charged > 0 and #charged == #args.items and floorTo(first, HOUR) == floorTo(latest, HOUR) then
      append(first, args.spent)
    else
      for i = 1, #charged do note(charged[i].start, seriesOf(charged[i]), charged[i].units, 1) end
    end
    for start, sums in pairs(noted) do
      local list = {}
      for name, sum in pairs(sums) do list[#list + 1] = fmt('%s %.0f %.0f;', name, sum[1], sum[2]) end
      append(start, table.concat(list))
    end
    noted, charged, first, latest = {}, {}, nil, nil
  end

  -- try calls the commands that only history needs.
  function history.try()
    for _, log in pairs(logs) do
      redis.call('APPEND', log, '')
      if redis.call('GET', log) == '' then redis.call('DEL', log) end
    end
  end

  -- import takes over a row of another history, in place of one that an earlier
  -- import brought, unless that has the numbers of a later instant.
  function history.import(row)
    local day, hour = dayOf(row.start), int(math.fmod(row.start, DAY) / HOUR) .. ' '
    local key = keys[day]
    if not key or not args.kept or row.id == M.lid or row.start < floorTo(math.max(0, M.last - args.kept), HOUR) then return end
    local name = row.labels .. '|' .. row.id
    local old = redis.call('HMGET', key, name, '@')
    if old[2] == row.id then return end
    local text = old[1] or ''
    local from, to, asOf = string.find(',' .. text, ',' .. hour .. '%-?%d+ %-?%d+ ?(%d*)')
    if (tonumber(asOf) or 0) > row.asOf then return end
    local sums = fmt('%s%.0f %.0f %.0f', hour, row.units, row.calls, row.asOf)
    if from then
      sums = string.sub(text, 1, from - 1) .. sums .. string.sub(text, to)
    elseif text ~= '' then
      sums = sums .. ',' .. text
    end
    redis.call('HSET', key, name, sums)
    if text == '' then
      redis.call('HSET', key, '#', int(tonumber(redis.call('HGET', key, '#') or 0) + 1))
      redis.call('PEXPIREAT', key, endOf(day))
    end
  end
end
