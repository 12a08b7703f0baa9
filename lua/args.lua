-- The arguments of a script, with the names of its struct in budget/redisstore/args.go.
-- An omitted field is nil. Whole numbers are exact below 2^53.
local args = cjson.decode(ARGV[1])
