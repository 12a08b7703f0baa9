-- The buckets' meters: their levels, and how they drain. Comes within ledger.lua's
-- scope, before load.
--
-- A meter in m: key patterns usedat longest fill oldest reached; its level is in the state
-- s: used part at. The patterns of operations are joined by commas, '-' for none. The level
-- is used minus part / period. While a meter is replayed, entries with scores above reached
-- are not counted yet; at the oldest entry the level is fill.

local meters, meterByKey = {}, {}
local opNames = nil

-- meterOf reads a meter's key.
local function meterOf(key, patterns)
  local amount, period, counts = string.match(key, '^b:(%d+):(%d+):(%a):')
  return {key = key, patterns = patterns, amount = tonumber(amount), period = tonumber(period), calls = counts == 'c', covers = {}}
end

-- loadMeters reads the meters, without their levels.
local function loadMeters()
  for key, patterns, usedat, longest, fill, oldest, reached in
    string.gmatch(M.meters, '([^%s;]+) (%S+) (%d+) (%d+) (%d+) (%d+) (-?%d+)') do
    local m = meterOf(key, patterns)
    m.usedat, m.longest, m.fill = tonumber(usedat), tonumber(longest), tonumber(fill)
    m.oldest, m.reached = tonumber(oldest), tonumber(reached)
    meters[#meters + 1] = m
    meterByKey[key] = m
  end
end

local function packMeters()
  if #meters == 0 then return '' end
  local list = {}
  for i = 1, #meters do
    local m = meters[i]
    list[i] = table.concat({m.key, m.patterns, int(m.usedat), int(m.longest), int(m.fill), int(m.oldest), int(m.reached)}, ' ')
  end
  return table.concat(list, ';')
end

local function metersLongest(longest)
  for i = 1, #meters do longest = math.max(longest, meters[i].longest) end
  return longest
end

-- matches reports whether a pattern, a name or "prefix.*", matches a name.
local function matches(pattern, name)
  if string.sub(pattern, -1) == '*' then
    return string.sub(name, 1, #pattern - 1) == string.sub(pattern, 1, -2)
  end
  return pattern == name
end

-- baseOf is the operation of a number, which may be a pair's.
local operations = 0 -- those of calls, without pairs
local function baseOf(op)
  if not opNames then
    opNames, operations = {}, 0
    for name in string.gmatch(M.ops, '[^,]+') do
      local base = string.match(name, '^[^@]*')
      if base == name and not string.find(name, '/', 1, true) then operations = operations + 1 end
      opNames[#opNames + 1], opNames[base] = base, true
    end
  end
  return opNames[op]
end

-- covers reports whether a meter counts an operation. In a crowded ledger, entries
-- under "other" may be of any operation but the known ones.
local function covers(m, op)
  if m.covers[op] ~= nil then return m.covers[op] end
  local name, named, covered, excepted, beyond = baseOf(op), false, false, false, false
  if m.patterns ~= '-' then
    for pattern in string.gmatch(m.patterns, '[^,]+') do
      if string.sub(pattern, 1, 1) == '!' then
        excepted = excepted or matches(string.sub(pattern, 2), name)
      else
        named = true
        covered, beyond = covered or matches(pattern, name), beyond or not opNames[pattern]
      end
    end
  end
  local answer = not excepted and (covered or not named)
  if name == 'other' and operations >= 256 and (beyond or not named) then answer = true end
  if string.find(name, '/', 1, true) then answer = false end -- a pseudo-operation of one limit
  m.covers[op] = answer
  return answer
end

-- drain is the level at a later instant. Every product stays below 2^53: the program
-- checks that when it loads limits.
local function drain(m, used, part, span)
  if span <= 0 then return used, part end
  local rest = math.fmod(span, m.period)
  local whole = (span - rest) / m.period
  if whole > math.floor(used / m.amount) then return 0, 0 end
  part = part + m.amount * rest
  local over = math.fmod(part, m.period)
  used = used - m.amount * whole - (part - over) / m.period
  if used <= 0 then return 0, 0 end
  return used, over
end

-- levelAt is a meter's level at an instant, or at its last change.
local function levelAt(m, at) return drain(m, m.used, m.part, at - m.at) end

-- pour changes a meter at an instant, from which it drains again at drains. A negative
-- amount returns what was charged age ago: at most what cannot have drained since.
local function pour(m, amount, age, at, drains)
  m.used, m.part = levelAt(m, at)
  m.at = math.max(m.at, at, drains or at)
  if amount >= 0 then
    m.used = m.used + amount
    return
  end
  local used, part = drain(m, -amount, 0, math.max(age, 0))
  m.used, m.part = m.used - used, m.part - part
  if m.part < 0 then m.used, m.part = m.used + 1, m.part + m.period end
  if m.used <= 0 then m.used, m.part = 0, 0 end
end

-- replayAnew restarts a meter's replay.
local function replayAnew(m)
  m.used, m.part, m.at, m.oldest, m.reached = 0, 0, 0, 0, -1
end
