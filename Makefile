# make test     every test at a small size, in minutes: real Redis servers and
#               kills included, with the race detector for the packages that build
#               without SQLite; and client libraries in testdata/clients, a
#               module of their own
# make test-full the same at full size (long random walks, ten daemons, two months
#               of fake time), and everything with the race detector, shorter
# make simulate a month of two daemons in fake time, by days, beside the same
#               month with a crontab; ten with shares, holds and deferral, the first
#               beside floors and a crontab; ten with a stranger who spends too; and
#               checks the figures of docs/pictures/month.svg. SIMULATE_SEED=n begins
#               with that month, SIMULATE_DAYS=n makes all n days long,
#               SIMULATE_MONTHS=n takes n instead of ten, SIMULATE=re takes some of
#               simulate, shares, strangers and figures
# make lint     gofmt, go vet, staticcheck among golangci-lint's, the layers, and
#               the measures of the house
# make mutants  each known mutant must fail a test
# make soak     ten million charges on each store, counted by the test itself;
#               SOAK_STEPS=n takes others
# make bench    one table of what charges cost, beside an empty script, redis_rate, a
#               plain log and an INSERT: single ones and those decided together, over
#               HTTP, on large ledgers, their bytes and allocations, and more; ONLY=re
#               takes some sections, DOCS=1 writes the table into docs/performance.md
# make page-speed what the daemon's pages take in a browser beside a million charges and a
#               thousand jobs, and what an open page costs the daemon
# make screenshots draws the pictures of the pages in docs/pictures anew
# make ci       test-full and lint

GO    ?= go
FUZZTIME ?= 1m
FUZZ ?= .
SOAK_STEPS ?= 10_000_000
SIMULATE ?= simulate|shares|strangers|figures
SIMULATE_MONTHS ?= 10
TOOLS := -modfile=.ci/tools/go.mod
# The race detector slows SQLite, which is C made into Go, miniredis' Lua and what
# packs and unpacks bodies tenfold; the former go by the standard library's locks,
# which it still sees, the latter by one goroutine each, and what they do is not ours.
UNRACED := modernc.org/sqlite/lib modernc.org/libc github.com/yuin/gopher-lua/... \
  compress/flate hash/adler32 hash/crc32 github.com/andybalholm/brotli/... github.com/klauspost/compress/...
RACE := -race $(UNRACED:%=-gcflags=%=-race=false)

# Nothing is vetted here: make lint does that. The time limit is for what hangs, also
# on a busy machine.
TEST := $(GO) test -vet=off -timeout 30m
# Small tests wait more than they compute, so more of them run at a time than there
# are cores. Those of full size keep the cores busy, and .ci/run has two runs of them
# side by side.
SMALL := -p 4 -parallel 8
FULL := -p 2 -parallel 4
# The race detector takes these in make test, which runs them with it alone: they build
# without SQLite, which takes minutes to build for it. make test-full takes everything,
# with it and without.
CONCURRENT := ./budget/budgethttp ./budget ./budget/config ./budget/limit ./internal/linear ./internal/presets ./internal/proc ./internal/serve ./internal/screen ./jobs/sandbox
# openai-go alone takes a minute and more to compile: make test-full has it.
CLIENTS := ./discord/... ./github/... ./slack/... ./youtube/...

.PHONY: test test-full test-sizes test-race test-browser lint bench ci needs needs-browser fuzz mutants soak simulate page-speed screenshots

# These take longest and wait most, so they begin first: in the order of their names the
# last of them would run alone at the end.
LONGEST := ./budget/redisstore ./jobs ./cmd/quotactl ./budget/sqlitestore

# The model and miniredis' Lua make much garbage: with more memory they collect it less
# often, which is a fifth of what the tests compute.
test test-sizes test-race: export GOGC = 400
test: needs
	$(TEST) $(SMALL) $(LONGEST) $$($(GO) list ./... | grep -vxF "$$($(GO) list $(CONCURRENT))")
	GORACE=atexit_sleep_ms=0 $(TEST) $(SMALL) $(RACE) $(CONCURRENT)
	cd testdata/clients && $(TEST) $(SMALL) $(CLIENTS)
	cd testdata/bench && $(TEST) ./...

# The walks beside the model run in one goroutine, where the race detector finds
# nothing and costs tenfold: sizes are full without it, and smaller still under it
# than in make test. memstore, which is all of one goroutine behind one lock, is left
# out, and so are the longest of these walks, the days that are lived beside a plan or
# looked at for alerts, plans and replays beside a store, the months of a picture, kills
# and secrets, which are of many processes, and miniredis and the other layouts of SQLite
# beside a real server and the usual layout: what meets there meets in the same tests on
# these. The clients are raced alone.
WALKS := UsualWalk|ConvertsTheOlderFormat|ForgetsWhatNobodySees|FailuresOfEachDay|RealityRepeats|LedgerIsAStore|ReadIsTheStore|Figures
PLANS := PlanIsWhatIsLived|PlanFromTheMidst|PlanFromTheMidstAgain|PlanOfLearnedNeeds|PlanOfVaryingNeeds|PlanOfSkewedNeeds|ReplayFillsABucketsHour|ReplayRefusesNothingThatFitted
OTHERS := HoldsAtEveryKill|NoSecretLeaves|NoSecretLeavesAWrongConfiguration|DocumentedGo|DocumentedGoWithoutOneNumber|ConformanceMiniredis|WalkMiniredis|ConformanceInSteps|ConformanceWithSums
UNRACED_TESTS := ^Test($(WALKS)|$(PLANS)|$(OTHERS))$$
test-full: test-sizes test-race test-browser

test-sizes: needs
	QUOTACTL_TEST_FULL=1 $(TEST) $(FULL) -count=1 ./...
	cd testdata/bench && $(TEST) ./...

test-race: needs
	GORACE=atexit_sleep_ms=0 QUOTACTL_WALK_STEPS=300 SIMULATE_DAYS=1 $(TEST) $(FULL) $(RACE) -skip '$(UNRACED_TESTS)' $$($(GO) list ./... | grep -v /memstore$$)
	cd testdata/clients && GORACE=atexit_sleep_ms=0 $(TEST) $(FULL) -race ./...

# A browser that has the machine to itself takes a minute for all pages.
test-browser: needs-browser
	cd testdata/browser && $(TEST) -count=1 ./...

# The race detector needs a C compiler, the Redis tests a redis-server, the tests of the
# pages a browser. All are installed when that may be done; else it is said how.
needs:
	@.ci/needs

needs-browser:
	@.ci/needs browser

# What is vetted for macOS is compiled without optimizing, which is quicker. The
# clients' module is vetted as it is tested, so that their large packages are
# compiled once; its go.sum is held to what was downloaded.
lint: needs
	@unformatted="$$(gofmt -l $$(git ls-files '*.go'))"; \
	  if [ -n "$$unformatted" ]; then echo "not gofmt'd:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	GOOS=darwin $(GO) vet -gcflags='all=-N -l' ./...
	$(GO) test ./.ci/house
	$(GO) tool $(TOOLS) golangci-lint run ./... ./.ci/house
	@layers="$$(mktemp -d)" && trap 'rm -rf "$$layers"' EXIT && $(GO) run ./.ci/house layers >"$$layers/layers.json" && \
	  $(GO) tool $(TOOLS) golangci-lint run -c "$$layers/layers.json" ./...
	.ci/measures
	cd testdata/clients && $(GO) mod verify && $(GO) vet -race ./...
	cd testdata/bench && $(GO) mod verify && $(GO) vet ./...
	cd testdata/browser && $(GO) mod verify && $(GO) vet ./...

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

# One store at a time, without the race detector, which the few steps of make
# test have.
soak: needs
	for store in memstore sqlitestore redisstore; do \
	  QUOTACTL_SOAK_STEPS=$(SOAK_STEPS) $(GO) test -v -run '^TestSoak$$' -timeout 3h ./budget/$$store || exit 1; \
	done

simulate:
	QUOTACTL_TEST_FULL=1 SIMULATE_SEEDS=1 SIMULATE_MONTHS=$(SIMULATE_MONTHS) $(GO) test -count=1 -v -run '(?i)^Test($(SIMULATE))$$' -timeout 1h ./internal/simulate

# A minute for each parser, or for those that FUZZ names (a regular expression);
# go test runs their seeds every time.
fuzz:
	@for target in $$(git grep -l '^func Fuzz' -- '*_test.go'); do \
	  for name in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9]*\)(.*/\1/p' $$target | grep -E '$(FUZZ)'); do \
	    $(GO) test -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s "./$$(dirname $$target)" || exit 1; \
	  done; \
	done

ci: test-full lint
