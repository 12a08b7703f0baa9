-- Sums who spent what of a budget, a page at a time.
--
-- KEYS  m, e, then z:<op>, y:<op> and r:<op> for each operation in order of
--       number
-- ARGV  1 spentArgs
-- Returns {status, clock, …}, the status as in charge.lua:
--   0 {…, since, rows, where the page ended: empty at the end}; a row is {name or
--     the operation's number, units, calls, open, observed}

local raw = clock()
local unfit = load(raw) or check(raw, 0)
if unfit then return unfit end
if not M.v then return {0, int(raw), '0', {}, ''} end

limitSteps = args.steps
local now = moment(raw, args.now)
local above, since = math.max(M.gone, horizon(now)), 0
if M.born <= above then since = above end
if args.span > 0 then above = math.max(above, now - args.span) end

local sums, order = {}, {}
local function sum(name, units, calls, open, observed)
  local row = sums[name]
  if not row then
    row = {0, 0, 0, 0}
    sums[name] = row
    order[#order + 1] = name
  end
  row[1], row[2], row[3], row[4] = row[1] + units, row[2] + calls, row[3] + open, row[4] + observed
end

-- namesOf returns the groups of a page's entries, nil for those of other runs than the
-- one asked for, and which entries have a mark. It reads the entries themselves only if
-- these need them.
local RUN = '^[^|]*|[^|]*|([^|]*)'
local part = ({job = '^([^|]*)', region = '^[^|]*|([^|]*)', run = RUN})[args.by]
local function namesOf(list, n, op)
  local names, marks, reads = {}, {}, part or args.run ~= '' or M.marks ~= ''
  for at = 1, n, 1000 do
    local to, ids = math.min(n, at + 999), {}
    for i = at, to do
      if reads then ids[#ids + 1] = idOf(list[2 * i - 1]) end
      names[i] = tostring(op)
    end
    local found = reads and redis.call('HMGET', keyE, unpack(ids)) or {}
    for i = 1, #found do
      local e = parse(found[i])
      if part then names[at + i - 1] = string.match(e.labels, part) end
      if args.run ~= '' and string.match(e.labels, RUN) ~= args.run then names[at + i - 1] = nil end
      marks[at + i - 1] = marked(e)
    end
  end
  return names, marks
end

local place, from = string.match(args.came, '^(%d+) (-?%d+)$')
place, from = tonumber(place or 1), tonumber(from or above)
local came = ''
while place <= 2 * nops do
  local op = math.floor((place + 1) / 2)
  local key = place % 2 == 1 and zkey(op) or ykey(op)
  local list, n, reached, done = page(key, from, WHOLE, true)
  local names, marks = namesOf(list, n, op)
  for i = 1, n do
    local member = list[2 * i - 1]
    local calls = callsIn(member)
    if names[i] then
      sum(names[i], unitsOf(member), calls, tonumber(list[2 * i]) > now and isOpen(member) and 1 or 0, marks[i] and calls or 0)
    end
  end
  if not done then
    came = place .. ' ' .. int(reached)
    break
  end
  place, from = place + 1, above
end
local rows = {}
for i = 1, #order do
  local row = sums[order[i]]
  rows[i] = {order[i], int(row[1]), int(row[2]), int(row[3]), int(row[4])}
end
return {0, int(raw), int(since), rows, came}
