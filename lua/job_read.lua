-- Reads the documents of jobs.
--
-- Keys of a job, all under one hash tag {job:NAME}:
--   s   hash: version (how many documents there have been), text (the newest),
--       swaps (the ids of the latest swaps, the newest first)
--   k   hash of the values beside it
--   h   zset of the history: at -> id of a record
--   r   hash of the history: id of a record -> text
--
-- KEYS  s of each job
-- Returns {clock, version, text or nothing, version, …}

local answer = {string.format('%.0f', clock())}
for i = 1, #KEYS do
  local f = redis.call('HMGET', KEYS[i], 'version', 'text')
  answer[2 * i], answer[2 * i + 1] = f[1] or '0', f[2]
end
return answer
