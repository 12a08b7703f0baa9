package main

// here is the module of the peers.
const here = "testdata/bench"

// sections are all that is measured, in the order of the table.
func sections() []section {
	stores := []string{"./budget/redisstore", "./budget/sqlitestore"}
	return []section{
		{title: "Redis, beside its peers", dir: here, bench: "^BenchmarkRedis$", times: "1x", pkgs: []string{"."}, words: redisWords, asked: redisAsked},
		{
			title: "SQLite, one process", dir: here, bench: "^BenchmarkSQLite$", times: "1x", pkgs: []string{"."},
			words: map[string]string{
				"SQLite/peer=insert":     "*an INSERT with one fsync, from one goroutine*",
				"SQLite/charge/limits=1": "Charge, one limit", "SQLite/charge/limits=3": "Charge, three limits",
			},
			asked: []ask{{name: "bench/SQLite/charge/limits=1", atOnce: "1", unit: "times-insert", atMost: 1.15}},
		},
		{
			title: "SQLite, processes", bench: "^BenchmarkProcesses$/^unpaced$/^processes=(1|4|16|100)$", times: "1x", count: "3", pkgs: []string{"./budget/open"},
			words: map[string]string{"Processes/unpaced": "Charge, from processes that share a file"},
		},
		{
			title: "Redis, processes", bench: "^BenchmarkRedisProcesses$", times: "1x", count: "3", pkgs: []string{"./budget/open"},
			words: map[string]string{
				"RedisProcesses/unpaced":  "Charge, from processes that share a server",
				"RedisProcesses/one-shot": "One charge a process, all of the process",
			},
		},
		{
			title: "HTTP, 200 connections, beside an empty handler", bench: "^BenchmarkHTTP", times: "20x", count: "3", pkgs: []string{"./budget/redisstore"},
			words: map[string]string{
				"HTTP/Redis": "/v1/charge, Redis", "HTTP/SQLite": "/v1/charge, SQLite", "HTTP/none": "/v1/charge, a store that grants at once",
				"HTTPLeased": "/v1/charge, Redis: decided there, or from a lease",
			},
			asked: []ask{
				{name: "redisstore/HTTP/Redis", unit: "ratio", atLeast: 0.65}, {name: "redisstore/HTTP/SQLite", unit: "ratio", atLeast: 0.5},
				{name: "redisstore/HTTP/(Redis|SQLite)", unit: "p99-ratio", atMost: 3},
			},
		},
		{
			title: "A metered client, beside the bare one", bench: "^BenchmarkMetered$", times: "20x", pkgs: []string{"./budget/redisstore"},
			words: map[string]string{"Metered/Redis": "a request, Redis", "Metered/SQLite": "a request, SQLite"},
			asked: []ask{
				{name: "redisstore/Metered/Redis", atOnce: "1", unit: "ratio", atLeast: 0.12}, {name: "redisstore/Metered/SQLite", atOnce: "1", unit: "ratio", atLeast: 0.1},
				{name: "redisstore/Metered/Redis", atOnce: "16", unit: "ratio", atLeast: 0.3}, {name: "redisstore/Metered/SQLite", atOnce: "16", unit: "ratio", atLeast: 0.25},
				{name: "redisstore/Metered/Redis", atOnce: "64", unit: "ratio", atLeast: 0.4}, {name: "redisstore/Metered/SQLite", atOnce: "64", unit: "ratio", atLeast: 0.3},
				{name: "redisstore/Metered/Redis", atOnce: "64", unit: "cpu-µs/metered", atMost: 120}, {name: "redisstore/Metered/SQLite", atOnce: "64", unit: "cpu-µs/metered", atMost: 200},
			},
		},
		{
			title: "quotactl meter, beside a bare proxy with the same CA", bench: "^BenchmarkGateway$", times: "20x", pkgs: []string{"./internal/gateway"},
			words: map[string]string{"Gateway/Redis": "a request, Redis", "Gateway/SQLite": "a request, SQLite"},
			asked: []ask{
				{name: "gateway/Gateway/.*", atOnce: "1", unit: "ratio", atLeast: 0.25}, {name: "gateway/Gateway/.*", atOnce: "64", unit: "ratio", atLeast: 0.4},
				{name: "gateway/Gateway/.*", atOnce: "256", unit: "ratio", atLeast: 0.4},
			},
		},
		{
			title: "Large ledgers", bench: "^Benchmark(Million|Expiry)$", times: "5x", pkgs: stores,
			words: map[string]string{
				"Million": "beside 1,000,000 charges", "Expiry/rolling": "100,000 charges leave a rolling window at once",
				"Expiry/coarse": "100,000 charges leave a coarse window at once",
			},
			asked: []ask{
				{name: ".*/Million", unit: "deep-refusal-ms", atMost: 30}, {name: ".*/Million", unit: "new-window-ms", atMost: 30},
				{name: ".*/Million", unit: "narrowed-window-ms", atMost: 30}, {name: ".*/Million", unit: "status-ms", atMost: 2},
				{name: ".*/(Million|Expiry.*)", unit: "longest-script-ms", atMost: 10}, {name: ".*/Expiry.*", unit: "first-decision-ms", atMost: 20},
			},
		},
		{
			title: "A charge's bytes and allocations", dir: here, bench: "^Benchmark(Bytes|Allocs)$", times: "1x", pkgs: []string{"."},
			words: map[string]string{
				"Bytes/store=redis": "Redis: memory of a charge with job, region and run", "Bytes/store=sqlite": "SQLite: file of a charge with job, region and run",
				"Allocs/charge": "Charge on a store that does nothing", "Allocs/decide/items=1": "Redis: Decide of one item",
				"Allocs/decide/items=128": "Redis: an item of a Decide of 128",
			},
			asked: []ask{{name: "bench/Bytes/store=redis", unit: "B/charge", atMost: 150}, {name: "bench/Bytes/store=sqlite", unit: "B/charge", atMost: 90}},
		},
		{
			title: "Leases", bench: "^BenchmarkLease", pkgs: []string{"./budget"}, count: "3",
			words: map[string]string{"Lease": "takes of a unit, in millions"},
			asked: []ask{{name: "budget/Lease.*", atOnce: "16", unit: "Mtakes/s", atLeast: 5}},
		},
		{
			title: "The process alone", bench: "^Benchmark(Flights|Decide)$", pkgs: []string{"./budget", "./budget/refusals"},
			words: map[string]string{
				"Flights/at-once": "Charge on a store that answers at once", "Flights/300us": "Charge on a store that takes 300 µs",
				"Flights/hosted": "Charge on a store that answers at once, as a host", "Decide/granted/alone": "granted, refusals not remembered",
				"Decide/granted/behind": "granted, refusals remembered", "Decide/refused/alone": "refused, refusals not remembered",
				"Decide/refused/learnt": "refused by the store, and remembered", "Decide/refused/remembered": "refused from memory",
			},
		},
		{
			title: "Programs under meter", bench: "^BenchmarkMeter$", times: "10x", pkgs: []string{"./cmd/quotactl"},
			words: map[string]string{"Meter/start": "one that does nothing, beside exec", "Meter/calls": "100 calls that take 50 ms each, beside itself"},
			asked: []ask{{name: "quotactl/Meter/start", unit: "later-ms", atMost: 60}, {name: "quotactl/Meter/calls", unit: "ratio", atMost: 1.1}},
		},
		{title: "Start, beside a program that prints a line", bench: "^BenchmarkStart", times: "20x", pkgs: []string{"./cmd/quotactl"}},
		{title: "Shares and history on SQLite", bench: "^Benchmark(Shares|History)$", times: "40x", pkgs: []string{"./budget/sqlitestore"}},
		{title: "Reading 30 days of history", bench: "^BenchmarkPast$", times: "20x", pkgs: stores},
		{title: "One command beside a million charges", bench: "^BenchmarkOneShot$", times: "40x", pkgs: []string{"./budget/sqlitestore"}},
		{title: "Noticing lost data", bench: "^BenchmarkMemory$", times: "20x", pkgs: []string{"./budget/outage"}},
		{title: "Jobs", bench: "^BenchmarkJobs$", times: "100x", pkgs: stores},
		{title: "A master that goes away", bench: "^BenchmarkFailover$", times: "3x", pkgs: []string{"./budget/redisstore"}},
		{
			title: "Waiters of one budget", bench: "^BenchmarkWaiters$", times: "1x",
			flags: []string{"-p", "1"}, pkgs: append([]string{"./budget/memstore"}, stores...),
		},
	}
}

// redisWords are the rows of BenchmarkRedis.
var redisWords = map[string]string{
	"Redis/peer=empty":                             "*an empty script*",
	"Redis/peer=PING":                              "*PING*",
	"Redis/peer=redis_rate":                        "*redis_rate, one decision*",
	"Redis/peer=log/units=1":                       "*a plain sliding log, 1 unit*",
	"Redis/peer=log/units=100":                     "*a plain sliding log, 100 units*",
	"Redis/decide/limits=1":                        "alone, one limit",
	"Redis/decide/limits=3":                        "alone, three limits",
	"Redis/decide/shares=4":                        "alone, one limit with four shares",
	"Redis/decide/history=none":                    "alone, one limit, no history kept",
	"Redis/decide/units=100":                       "alone, one limit, 100 units",
	"Redis/decide/limits=50-of-100-operations":     "alone, two limits, one over 50 of 100 operations",
	"Redis/decide/limits=50-of-100-operations/due": "the same with something due at each charge",
	"Redis/decide/window=coarse":                   "alone, one coarse limit",
	"Redis/decide/window=calendar":                 "alone, one calendar limit",
	"Redis/decide/window=bucket":                   "alone, one bucket",
	"Redis/decide/window=concurrent":               "alone, one concurrent limit: a reservation",
	"Redis/batch/limits=1":                         "128 a script, one limit",
	"Redis/batch/limits=3":                         "128 a script, three limits",
	"Redis/batch/mixed/limits=3":                   "128 a script, three limits, unlike charges",
	"Redis/charge/limits=1":                        "Charge, one limit",
	"Redis/charge/limits=3":                        "Charge, three limits",
}

// redisAsked is what was asked of them.
var redisAsked = []ask{
	{name: "bench/Redis/decide/limits=1", atOnce: "16|64", unit: "of-empty", atLeast: 0.30},
	{name: "bench/Redis/decide/limits=3", atOnce: "16|64", unit: "of-empty", atLeast: 0.25},
	{name: "bench/Redis/decide/limits=50-of-100-operations", atOnce: "16|64", unit: "of-empty", atLeast: 0.25},
	{name: "bench/Redis/decide/limits=50-of-100-operations/due", atOnce: "16|64", unit: "of-empty", atLeast: 0.20},
	{name: "bench/Redis/decide/shares=4", atOnce: "16|64", unit: "of-undivided", atLeast: 0.8},
	{name: "bench/Redis/decide/limits=1", atOnce: "16|64", unit: "server-of-empty", atMost: 4.5},
	{name: "bench/Redis/decide/limits=3", atOnce: "16|64", unit: "server-of-empty", atMost: 5},
	{name: "bench/Redis/decide/limits=[13]", atOnce: "1", unit: "server-µs", atMost: 110},
	{name: "bench/Redis/batch/limits=[13]", unit: "of-redis_rate", atLeast: 3},
	{name: "bench/Redis/batch/limits=[13]", unit: "server-µs", atMost: 12},
	{name: "bench/Redis/charge/limits=[13]", atOnce: "64", unit: "of-redis_rate", atLeast: 2},
	{name: "bench/Redis/charge/limits=[13]", atOnce: "256", unit: "of-redis_rate", atLeast: 3},
}
