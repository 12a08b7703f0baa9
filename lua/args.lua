-- The arguments of a script, by the names of its struct in budget/redisstore/args.go.
-- A field that the struct leaves out is nil. Whole numbers are exact below 2^53.
local args = cjson.decode(ARGV[1])
