-- Reads one limit for a look. Comes after drift.lua.

-- leastOf is the least score that counts in a limit; 0 if nothing counts.
local function leastOf(l)
  if l.meter or used(l) == 0 then return 0 end
  return (walk(l, -1, 0, 1))
end

-- lookAt reads one limit. The limits share the steps: the next run continues a sum
-- that is not done.
local function lookAt(l, least)
  if l.meter then
    local level, part = levelAt(l.meter, M.last)
    return {int(level), int(part), int(math.max(l.meter.at, M.last))}
  end
  local part, came = 0, ''
  if least > 0 and l.to then
    local pos, freed = string.match(l.came, '^(-?%d+):(%d+)$')
    pos, part = tonumber(pos or l.from), tonumber(freed or 0)
    if steps >= limitSteps then
      came = int(pos) .. ':' .. int(part)
    else
      local score, reached, up = walk(l, pos, part, WHOLE, l.to)
      part = up
      if score == nil then came = int(reached) .. ':' .. int(up) end
    end
  end
  return {int(used(l)), int(l.win.floor), int(least), int(part), came, int(pseudoOf(l, 'recovered/')), int(pseudoOf(l, 'drift/')),
    args.divided and shares.sharesOf(l) or {}}
end
