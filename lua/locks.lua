-- The locks of a budget and of its limits, and the effect of observe mode on them.
-- Comes within ledger.lua's scope, before load.

local locks = {} -- by the limit's name, or * for the budget: {name, till, since, why}

local function loadLocks()
  for line in string.gmatch(M.locks, '[^\n]+') do
    local name, till, since, why = string.match(line, '^(%S+) (%d+) (%d+) (.*)$')
    locks[name] = {name = name, till = tonumber(till), since = tonumber(since), why = why}
  end
end

-- packLocks is the text of the locks in effect at now.
local function packLocks(now)
  local lines = {}
  for name, k in pairs(locks) do
    if k.till > now then lines[#lines + 1] = table.concat({name, int(k.till), int(k.since), k.why}, ' ') end
  end
  table.sort(lines)
  M.locks = table.concat(lines, '\n')
end

-- lockOn is the lock in effect on a name, or nil.
local function lockOn(name)
  local k = locks[name]
  return k and k.till > M.last and k or nil
end

-- isLocked reports whether any lock is in effect.
local function isLocked()
  for _, k in pairs(locks) do
    if k.till > M.last then return true end
  end
  return false
end

-- askLocks adds to closed the locks that refuse an item. It returns the first limit or
-- budget whose lock refuses nothing because of observe mode: locks come before limits
-- that the item does not fit.
local function askLocks(limits, item, all, closed, observed)
  local seen, k = 0, lockOn('*')
  if k and all then
    seen = #limits + 1
  elseif k then
    closed[1] = '0 ' .. int(k.till) .. ' ' .. k.why
  end
  for i = 1, #limits do
    k = nil
    if item.bounds[i] < UNBOUND then k = lockOn(limits[i].name) end
    if k and not limits[i].observe then
      closed[#closed + 1] = i .. ' ' .. int(k.till) .. ' ' .. k.why
    elseif k and seen == 0 then
      seen = i
    end
  end
  return seen > 0 and seen or observed
end
