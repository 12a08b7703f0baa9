-- Changes a job's document, values and history, in one step, if the document still
-- has the version that was read.
--
-- KEYS  s, k, h, r, see job_read.lua
-- ARGV  1 swapArgs   2 the new text; then, kept byte for byte: key, value of each
--       value to set; key of each value to remove; at, id, text of each record
-- Returns {result, clock, more}. result: 1 done, by this run or an earlier one; 0 the
--   document has another version; 2 late; 3 the history is damaged: h and r do not hold
--   the same records. more: 1 if the same swap must run again to forget further records,
--   else 0

local now = clock()
local history, texts = KEYS[3], KEYS[4]
local function answer(result, more) return {result, string.format('%.0f', now), more} end

-- drop removes records; ids are those of the oldest.
local function drop(ids)
  if #ids == 0 then return end
  redis.call('HDEL', texts, unpack(ids))
  redis.call('ZREMRANGEBYRANK', history, '0', string.format('%.0f', #ids - 1))
end

-- forget removes up to a thousand records that are too old or too many, and returns
-- whether there may be more.
local function forget()
  if args.records == 0 then return 0 end
  local old = redis.call('ZRANGEBYSCORE', history, '-inf', '(' .. args.before, 'LIMIT', '0', '1000')
  drop(old)
  if #old == 1000 then return 1 end
  local over = args.most > 0 and redis.call('ZCARD', history) - args.most or 0
  if over > 0 then drop(redis.call('ZRANGE', history, '0', string.format('%.0f', math.min(over, 1000) - 1))) end
  return over > 1000 and 1 or 0
end

if now > args.deadline then return answer(2, 0) end
local f = redis.call('HMGET', KEYS[1], 'version', 'swaps')
local version, swaps = f[1] or '0', f[2] or ''
if string.find(swaps, args.id, 1, true) then return answer(1, forget()) end
if args.remove and (version == '0' or version == args.version) then
  redis.call('DEL', KEYS[1], KEYS[2], history, texts)
  return answer(1, 0)
end
if version ~= args.version then return answer(0, 0) end

-- A key of the wrong type or a missing permission must not show halfway through a
-- write. So the first swap tries each writing command before it changes anything.
redis.call('HLEN', KEYS[2])
if redis.call('ZCARD', history) ~= redis.call('HLEN', texts) and args.records > 0 then return answer(3, 0) end
if swaps == '' then
  redis.call('HDEL', KEYS[2], '')
  redis.call('ZADD', history, 'XX', '0', '')
  redis.call('ZREMRANGEBYRANK', history, '1', '0')
  redis.call('HSET', KEYS[1], 'swaps', '')
end

local place = 2
for from = 1, 2 * args.sets, 1000 do
  redis.call('HSET', KEYS[2], unpack(ARGV, place + from, place + math.min(2 * args.sets, from + 999)))
end
place = place + 2 * args.sets
for from = 1, args.removes, 1000 do
  redis.call('HDEL', KEYS[2], unpack(ARGV, place + from, place + math.min(args.removes, from + 999)))
end
place = place + args.removes
for i = 1, args.records do
  redis.call('ZADD', history, ARGV[place + 1], ARGV[place + 2])
  redis.call('HSET', texts, ARGV[place + 2], ARGV[place + 3])
  place = place + 3
end

-- If a swap's answer is lost, the next attempt finds its id among these, even after
-- other swaps.
swaps = string.sub(args.id .. ' ' .. swaps, 1, 16 * (#args.id + 1))
if args.put then
  redis.call('HSET', KEYS[1], 'version', string.format('%.0f', version + 1), 'text', ARGV[2], 'swaps', swaps)
else
  redis.call('HSET', KEYS[1], 'swaps', swaps)
end
return answer(1, forget())
