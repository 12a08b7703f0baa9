-- Adds rows of an exported ledger. Comes before charge.lua, which calls importRows in
-- mode import.

local importRows
do -- a block, because Lua limits the local names of a scope
  -- ownID is the id under which this ledger keeps a row: a row that it merged itself has
  -- only a number, and its own charge that another ledger kept under OtherID has its own
  -- id again.
  local function ownID(id)
    local number = string.match(id, '^ ' .. M.lid .. '/(%d+)$')
    if not number then return string.match(id, '^ ' .. M.lid .. '/:(.*)$') or id end
    M.rowno = math.max(M.rowno, tonumber(number))
    return ' ' .. number
  end

  -- memberAt returns the zset and the member of an entry or a merged row.
  local function memberAt(e, id)
    if e.state ~= 'm' then return place(e, id) end
    return e.units == 0 and ykey(e.op) or zkey(e.op), memberOf(e, id), e.units == 0
  end

  -- count adds an entry to the totals, or with sign -1 takes it out.
  local function count(e, zero, sign)
    addAll(e.op, e.score, e.units, e.state == 'm' and e.asked or callsOf(e), zero, sign, e.state)
    M.n = M.n + sign
  end

  -- entryOf converts a row to an entry; a merged row's asked is its calls.
  local function entryOf(row)
    local e = {op = row.op, asked = row.asked, units = row.units, state = row.state, start = row.start, score = row.score, labels = row.labels}
    if e.state == 'm' then
      e.asked, M.rowno = row.calls, math.max(M.rowno, 1)
    end
    if row.observed then
      e.labels, M.marks = e.labels .. '|o', '1'
    end
    return e
  end

  -- joined combines an entry of the ledger with a row of the same id. It returns the
  -- entry to keep, or nil if the ledger has it already.
  local function joined(old, e, pseudo)
    if pseudo then
      if e.units <= old.units and e.asked <= old.asked and e.score <= old.score then return nil end
      e.units, e.asked, e.score = math.max(e.units, old.units), math.max(e.asked, old.asked), math.max(e.score, old.score)
      e.start = e.score
      return e
    end
    return old.state == 'o' and (e.state == 's' or e.state == 'r') and e or nil
  end

  local placed, toWrite = {}, {}

  -- entryHeld returns the entry that the ledger holds under an id, or nil and what is
  -- left of a forgotten one.
  local function entryHeld(id, text)
    local e = placed[id] or parse(text)
    if e and e.score <= M.gone then return nil, e end
    return e, nil
  end

  -- importRow adds one row. It returns 1 if it did, else 0.
  local function importRow(row, id, text)
    local e = entryOf(row)
    local old, left = entryHeld(id, text)
    if old and e.state ~= 'm' and (old.op ~= e.op and baseOf(old.op) ~= baseOf(e.op) or old.asked ~= e.asked or (old.state == 'p') ~= (e.state == 'p')) then
      id = ' ' .. args.import.ledger .. '/:' .. row.id -- the id is another charge's here
      old, left = entryHeld(id, redis.call('HGET', keyE, id))
    end
    if old then
      e = joined(old, e, row.pseudo)
      if not e then return 0 end
    end
    if old or left then
      addNow()
      local key, member, zero = memberAt(old or left, id)
      redis.call('ZREM', key, member)
      count(old or left, zero, -1)
      M.emptied = true
    end
    local key, member, zero = memberAt(e, id)
    addLater(key, int(e.score), member)
    count(e, zero, 1)
    placed[id] = e
    toWrite[#toWrite + 1], toWrite[#toWrite + 2] = id, pack(e)
    M.seq = M.seq + 1
    if not args.kept then M.unnoted = nil end
    if e.state ~= 'm' then
      M.merged = math.min(M.merged, e.score - 1)
      if e.start > M.newest and id == row.id then M.newest, M.nid = e.start, id end
    end
    return 1
  end

  -- importLocks adds the exported ledger's locks, unless this one has a lock in their
  -- place that ends no earlier.
  local function importLocks(list)
    for i = 1, #list do
      local k = list[i]
      local old = locks[k.name]
      if k.till > M.last and (not old or k.till > old.till) then
        locks[k.name] = k
        holds.fenced(k.name)
        M.seq = M.seq + 1
      end
    end
    packLocks(M.last)
  end

  -- importRows adds the rows that were not added before. It returns how many rows of the
  -- export the ledger has imported so far, and how many of these it added, had already,
  -- and skipped as too old to count.
  function importRows()
    local task, notes, at, done = args.import, {}, nil, 0
    for export, rows in string.gmatch(redis.call('HGET', keyM, 'imports') or '', '(%S+) (%d+)') do
      notes[#notes + 1] = export .. ' ' .. rows
      if export == task.export then at, done = #notes, tonumber(rows) end
    end
    local upto = task.from + #task.rows
    if done < task.from or at and done >= upto then return {int(done), '0', '0', '0'} end
    if args.kept then M.unnoted = math.max(M.unnoted, task.unnoted) end
    local ids, ops = {}, {}
    for i = 1, #task.rows do
      local row = task.rows[i]
      ids[i] = ownID(row.id)
      if row.state ~= 'h' then ops[#ops + 1] = row.op end
    end
    preload(ops)
    local found = #ids > 0 and redis.call('HMGET', keyE, unpack(ids)) or {}
    local added, had, gone, lower = 0, 0, 0, math.max(M.gone, horizon(M.last))
    for i = 1, #task.rows do
      local row = task.rows[i]
      if task.from + i > done then
        if row.state == 'h' then
          history.import(row)
        elseif row.score <= lower then
          gone = gone + 1
        else
          local one = importRow(row, ids[i], found[i])
          added, had = added + one, had + 1 - one
        end
      end
    end
    addNow()
    for from = 1, #toWrite, 1000 do
      redis.call('HSET', keyE, unpack(toWrite, from, math.min(#toWrite, from + 999)))
    end
    if not at then importLocks(task.locks) end
    for i = #meters, 1, -1 do
      if task.last then -- the next run replays them from the entries
        meterByKey[meters[i].key] = nil
        table.remove(meters, i)
      elseif meters[i].reached ~= WHOLE then
        replayAnew(meters[i])
      end
    end
    M.chg = M.chg + 1 -- walks under way may have passed the added rows
    notes[at or #notes + 1] = task.export .. ' ' .. int(upto)
    redis.call('HSET', keyM, 'imports', table.concat(notes, ' ', math.max(1, #notes - task.most + 1)))
    return {int(upto), int(added), int(had), int(gone)}
  end
end
