# make test       every test with small effort, in minutes: real Redis servers and kills
#                included, with the race detector for the packages that build without
#                SQLite; and client libraries in testdata/clients, a module of their own
# make test-full  the same with full effort (long random walks, ten daemons, two months of
#                fake time), everything but the longest walks once more with the race
#                detector, and the pages in Chromium
# make soak       ten million charges on each store, counted by the test itself
# make simulate   a month of two daemons in fake time, by days, beside the same month with a
#                crontab; ten with shares, holds and deferral, the first beside floors and a
#                crontab; ten with a stranger who spends too; and checks the figures of
#                docs/pictures/month.svg. RUN=TestShares takes one of them
# make lint       gofmt, go vet, staticcheck among golangci-lint's, the layers, and the
#                measures of the house
# make fuzz       each fuzzer for a minute; FUZZTIME=5000x for so many inputs instead, and
#                UNGUIDED=1 for random ones
# make mutants    each known mutant must fail a test
# make bench      one table of what charges cost, beside an empty script, redis_rate, a
#                plain log and an INSERT: single ones and those decided together, over
#                HTTP, on large ledgers, their bytes and allocations, and more; ONLY=re
#                takes some sections, DOCS=1 writes the table into docs/performance.md
# make page-speed what the daemon's pages take in a browser beside a million charges and a
#                thousand jobs, and what an open page costs the daemon
# make screenshots draws the pictures of the pages in docs/pictures anew
#
# How much the tests do is one variable, QUOTACTL_EFFORT (go doc ./internal/effort), and
# QUOTACTL_SEED repeats a random test.

GO    ?= go
FUZZTIME ?= 1m
SLOW_FUZZTIME ?= $(FUZZTIME)
TOOLS := -modfile=.ci/tools/go.mod
# The race detector slows SQLite, which is C made into Go, miniredis' Lua, and what packs and
# unpacks bodies tenfold. SQLite goes by the standard library's locks, which it still sees, the
# others by one goroutine each.
UNRACED := modernc.org/sqlite/lib modernc.org/libc github.com/yuin/gopher-lua/... \
  compress/flate hash/adler32 hash/crc32 github.com/andybalholm/brotli/... github.com/klauspost/compress/...
RACE := -race $(UNRACED:%='-gcflags=%=-race=false -dwarf=false')

# Nothing is vetted here: make lint does that. The time limit is for what hangs, also
# on a busy machine. The model and miniredis' Lua make much garbage: with more memory they
# collect it less often, which is a fifth of what the tests compute.
TEST := GOGC=400 $(GO) test -vet=off -timeout 60m
# Small tests wait more than they compute, so more of them run at a time than there
# are cores. Larger ones keep the cores busy, and .ci/run has three stages side by side.
SMALL := -p 4 -parallel 8
LARGE := -p 2 -parallel 4
# These packages build without SQLite, which takes minutes to build for the race detector:
# make test runs them with it alone. make test-full takes everything, with it and without.
QUICKLY_RACED := ./budget/budgethttp ./budget ./budget/config ./budget/limit ./internal/linear ./internal/presets ./internal/proc ./internal/serve ./internal/screen ./jobs/sandbox
# These take longest and wait most, so they begin first: in the order of their names the
# last of them would run alone at the end.
LONGEST := ./budget/redisstore ./jobs ./cmd/quotactl ./budget/sqlitestore
# Goroutines meet in these: .ci/run races them, make test-full everything.
CONCURRENT := ./budget/redisstore ./jobs ./budget/sqlitestore ./budget ./budget/budgethttp ./budget/open ./budget/outage ./budget/refusals \
  ./internal/alert ./internal/daemon ./internal/door ./internal/look ./internal/page ./internal/proc ./internal/screen ./internal/serve ./jobs/sandbox
RACED ?= $(LONGEST) ./...
# openai-go alone takes a minute and more to compile: make test-full has it, and races the
# clients. make lint checks its types.
CLIENTS := ./discord/... ./github/... ./slack/... ./youtube/...

# A CDPATH may lead cd elsewhere, and a go.work above this folder hides the tools.
unexport CDPATH
export GOWORK = off

.PHONY: test test-full test-effort test-race test-clients test-browser lint bench needs needs-browser fuzz mutants soak simulate page-speed screenshots

test: needs
	$(TEST) $(SMALL) $(LONGEST) $$($(GO) list ./... | grep -vxF "$$($(GO) list $(QUICKLY_RACED))")
	GORACE=atexit_sleep_ms=0 $(TEST) $(SMALL) $(RACE) $(QUICKLY_RACED)
	cd testdata/clients && $(TEST) $(SMALL) $(CLIENTS)
	cd testdata/bench && $(TEST) ./...

test-full: export QUOTACTL_EFFORT = full
test-full: test-effort test-race test-clients test-browser

# Every test once, with the effort that QUOTACTL_EFFORT says.
test-effort: needs
	$(TEST) $(LARGE) -count=1 $(LONGEST) ./...
	cd testdata/clients && $(TEST) $(LARGE) $(CLIENTS)
	cd testdata/bench && $(TEST) ./...

# The race detector makes tests take ten times as long. Small effort shows it what meets. The
# model sums each decision anew under one lock, which takes longest: make test races it.
test-race: export QUOTACTL_EFFORT = small
test-race: needs
	GORACE=atexit_sleep_ms=0 $(TEST) $(LARGE) $(RACE) '-gcflags=github.com/quotactl/quotactl/budget/memstore=-race=false -dwarf=false' $(RACED)

test-clients: needs
	cd testdata/clients && GORACE=atexit_sleep_ms=0 $(TEST) $(LARGE) -race ./...

# A browser that has the machine to itself takes two minutes for all pages.
test-browser: needs-browser
	cd testdata/browser && $(TEST) -count=1 ./...

# Tests write to memory where there is room for it, and to the disk with full effort: stores
# sync each charge, which took a third of a store's tests.
MEMORY := $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 4000000 { print "/dev/shm" }')
test test-effort test-race: export TMPDIR ?= $(if $(filter full,$(QUOTACTL_EFFORT)),,$(MEMORY))

# The race detector needs a C compiler, the Redis tests a redis-server, the tests of the
# pages a browser. .ci/needs installs them where it may; elsewhere it prints how.
needs:
	@.ci/needs

needs-browser:
	@.ci/needs browser

# golangci-lint vets this module. What only macOS or the clients need is not compiled for it:
# the types are checked.
TYPES := $(GO) run $(TOOLS) ./.ci/types
# go tool does not read the flags in GOFLAGS, and so would compile the standard library anew.
LINTER := $(GO) run $(TOOLS) github.com/golangci/golangci-lint/v2/cmd/golangci-lint
lint: needs
	@files="$$(git ls-files -co --exclude-standard --deduplicate '*.go')" && [ -n "$$files" ] || { echo "no files: is this a checkout of git?"; exit 1; }; \
	  unformatted="$$(gofmt -l $$files)"; \
	  if [ -n "$$unformatted" ]; then echo "not gofmt'd:"; echo "$$unformatted"; exit 1; fi
	$(TYPES) darwin .
	$(TYPES) linux testdata/clients
	$(GO) test ./.ci/house ./.ci/prose
	$(LINTER) run ./... ./.ci/house ./.ci/prose
	@layers="$$(mktemp -d)" && trap 'rm -rf "$$layers"' EXIT && $(GO) run ./.ci/house layers >"$$layers/layers.json" && \
	  $(LINTER) run -c "$$layers/layers.json" ./...
	.ci/measures
	$(GO) run ./.ci/prose
	testdata/mutants/run --apply
	cd testdata/clients && $(GO) vet $(CLIENTS)
	cd testdata/bench && $(GO) vet ./...
	cd testdata/browser && $(GO) vet ./...

# A module of its own, as testdata/clients is: what quotactl is measured beside is no
# dependency of it.
bench: needs
	cd testdata/bench && $(GO) run ./table $(if $(ONLY),-only '$(ONLY)') $(if $(DOCS),-into ../../docs/performance.md)

# Times are measured, never tested: a machine may be busy.
page-speed: needs-browser
	cd testdata/browser && $(GO) test -run '^$$' -bench . -benchtime 1x -timeout 1h .

screenshots: needs-browser
	cd testdata/browser && $(GO) test -count=1 -run '^TestPictures$$' . -args -pictures ../../docs/pictures

# Known faults, each a patch: tests that let one through are no tests.
mutants: needs
	testdata/mutants/run

# One store at a time.
soak: needs
	QUOTACTL_EFFORT=soak $(TEST) -p 1 -count=1 -v -run '^TestSoak$$' -timeout 3h ./budget/memstore ./budget/sqlitestore ./budget/redisstore

simulate:
	QUOTACTL_EFFORT=$(or $(QUOTACTL_EFFORT),soak) $(TEST) -count=1 -v -run '$(RUN)' -timeout 2h ./internal/simulate

# go test runs the seeds of each fuzzer every time; this looks further. A fuzzer whose first
# line ends in "// slow" has a time of its own. UNGUIDED=1 takes the packages as the tests have
# compiled them, without the counters that guide a fuzzer to new code: for a few thousand
# inputs those cost more to compile than they find.
fuzz:
	@binary="$$(mktemp -d)" && trap 'rm -rf "$$binary"' EXIT || exit 1; \
	files="$$(git grep -l '^func Fuzz' -- '*_test.go')" || { echo "no fuzzers: is this a checkout of git?"; exit 1; }; \
	for package in $$(echo "$$files" | xargs -n 1 dirname | sort -u); do \
	  $(GO) test -vet=off $(if $(UNGUIDED),,-fuzz .) -c -o "$$binary/fuzz.test" "./$$package" || exit 1; \
	  corpus="$$($(GO) env GOCACHE)/fuzz/$$($(GO) list "./$$package")"; \
	  for name in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9]*\)(.*/\1/p' "$$package"/*_test.go); do \
	    time=$(FUZZTIME); grep -q "^func $$name(.*// slow$$" "$$package"/*_test.go && time=$(SLOW_FUZZTIME); \
	    echo "$$package $$name $$time"; \
	    (cd "$$package" && "$$binary/fuzz.test" -test.run '^$$' -test.fuzz "^$$name$$" -test.fuzztime "$$time" \
	      -test.fuzzminimizetime 1s -test.fuzzcachedir "$$corpus") || exit 1; \
	  done; \
	done
