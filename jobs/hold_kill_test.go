package jobs

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/internal/effort"
)

// killCase is a small world in which one process is killed at each of its operations.
type killCase struct {
	name  string
	hold  string // of job trending; the other job holds the other way
	lines string // more lines of both jobs
	// spent, of the limit's 60 units, returns at midnight. The holds of both jobs come to 30.
	spent int64
	// from and until are when the operations are counted at which the process is killed.
	from, until time.Duration
	// first: an earlier process dies at this instant, and the one that is killed takes over.
	first time.Duration
	// again: a new process takes the killed one's place after a while.
	again bool
	// host: the daemons spend their host's allowance while the store is away.
	host bool
	// reset: somebody may reset the ledger.
	reset bool
	// fault is what goes wrong besides, at an instant.
	fault func(at time.Duration, what string) fate
	// step is by how much the clocks of the store and of all daemons are set, ten seconds after
	// the first tick.
	step time.Duration
}

const (
	killTick = 23*time.Hour + 52*time.Minute // both jobs tick then, and at 00:05 and 00:52
	killNext = 24*time.Hour + 5*time.Minute
)

var killCases = []killCase{
	{name: "pass", hold: "true", from: killTick, until: killTick + 2*time.Minute},
	{name: "run", hold: `"run"`, from: killTick, until: killTick + 2*time.Minute, again: true},
	{name: "pass, other answers", hold: "true", from: killTick, until: killTick + 2*time.Minute},
	{name: "run, other answers", hold: `"run"`, from: killTick, until: killTick + 2*time.Minute},
	{name: "deferred", hold: "true", lines: `on_exhausted = "defer"`, spent: 48, from: killTick, until: 24*time.Hour + 2*time.Minute},
	{name: "deferred run", hold: `"run"`, lines: `on_exhausted = "defer"`, spent: 48, from: 24*time.Hour - time.Second, until: 24*time.Hour + 2*time.Minute, again: true},
	{name: "taking over", hold: "true", first: killTick + 17*time.Second, from: killTick + 17*time.Second, until: killTick + 4*time.Minute},
	{name: "no fences", hold: `"run"`, from: killTick, until: killTick + 2*time.Minute, fault: func(at time.Duration, what string) fate {
		if what == "driver.Lock" && at < killTick+5*time.Minute {
			return fateAway
		}
		return fateNone
	}},
	{name: "lost answers", hold: "true", from: killTick, until: killTick + 3*time.Minute, again: true, fault: func(at time.Duration, what string) fate {
		if at < killTick+4*time.Minute && (what == "end a hold" || what == "renew the holds" || what == "driver.Lock") {
			return fateLost
		}
		return fateNone
	}},
	{name: "outage", hold: "true", host: true, from: killTick, until: killTick + 4*time.Minute, fault: func(at time.Duration, _ string) fate {
		if at > killTick+7*time.Second && at < killTick+100*time.Second { // longer than the lease
			return fateAway
		}
		return fateNone
	}},
	{name: "clocks back", hold: "true", step: -time.Hour, from: killTick, until: killTick + 2*time.Minute},
	{name: "clocks ahead", hold: "true", step: 30 * time.Minute, from: killTick, until: killTick + 2*time.Minute},
}

// A process that is killed at any of its operations, before or after it is applied, leaves in
// the ledger what was charged, and from a lease later on nothing else.
func TestHoldsAtEveryKill(t *testing.T) {
	effort.Unraced(t)
	t.Parallel()
	seed := effort.Seed(t)
	var kills atomic.Int64
	t.Run("cases", func(t *testing.T) {
		for i, c := range killCases {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				kills.Add(c.everywhere(t, rand.New(rand.NewPCG(seed, uint64(i)))))
			})
		}
	})
	t.Logf("%d kills", kills.Load())
	if n := kills.Load(); n < leastKills() && !t.Failed() {
		t.Errorf("%d kills, want %d", n, leastKills())
	}
}

// allKills is from how many on a process is killed at every operation.
const allKills = 2000

// leastKills is how often at least a process is killed.
func leastKills() int64 {
	return effort.Of[int64](30, 40, allKills)
}

// everywhere kills at all operations on all sides, or with less than full effort at some. It returns how
// often it killed.
func (c killCase) everywhere(t *testing.T, rng *rand.Rand) (kills int64) {
	seed := rng.Uint64()
	steps := 0
	synctest.Test(t, func(t *testing.T) { steps, _ = c.run(t, seed, 0, before) })
	if t.Failed() {
		return kills
	}
	var points []int
	for n := range steps * int(sides) {
		points = append(points, n)
	}
	rng.Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
	most, least := len(points), leastKills()
	if least < allKills { // some at random
		most = int(least) * 2 / len(killCases)
	}
	if c.host { // which is slow, since a host keeps files
		most = min(most, int(least)*450/allKills)
	}
	at := map[string]int{}
	for _, n := range points[:min(len(points), most)] {
		var where string
		synctest.Test(t, func(t *testing.T) { _, where = c.run(t, seed, 1+n/int(sides), side(n%int(sides))) })
		if where != "" {
			kills++
			at[where]++
		}
		if t.Failed() {
			t.Fatalf("case %s: killed %s operation %d: %s", c.name, side(n%int(sides)), 1+n/int(sides), where)
		}
	}
	t.Logf("%s: %d operations: killed at %v", c.name, steps, at)
	return kills
}
