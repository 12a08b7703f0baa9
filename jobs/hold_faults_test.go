package jobs

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// Daemons whose passes hold come, are killed at some operation and are drained, the store goes
// away for longer than the lease or loses its answers, fences cannot be set, and somebody resets
// the ledger: at no time is anything counted twice, and at the end nothing is held.
func TestHoldsAtRandom(t *testing.T) {
	t.Parallel()
	seed := effort.Seed(t)
	for i := range effort.Of[uint64](6, 6, 60) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { walkHolds(t, rand.New(rand.NewPCG(seed+i, 4))) })
		})
	}
}

// troubles are what goes wrong for all processes, or for one, until an instant each.
type troubles struct {
	mu    sync.Mutex // guards all below
	rng   *rand.Rand
	until map[string]time.Time // by what, and the process's name or none
}

// set has something go wrong for a process, or for all, for a while.
func (f *troubles) set(what, name string, d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.until[what+" "+name] = time.Now().Add(d)
}

func (f *troubles) on(what, name string) bool {
	return time.Now().Before(f.until[what+" "]) || time.Now().Before(f.until[what+" "+name])
}

// of is what becomes of an operation of a process.
func (f *troubles) of(name, what string) fate {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.on("deaf", name) && ofJobs(what), f.on("away", name), f.on("unfenced", name) && what == "driver.Lock":
		return fateAway
	case f.on("silent", name):
		return fateSilent
	case f.on("lost", name) && f.rng.IntN(3) == 0:
		return fateLost
	}
	return fateNone
}

// ofJobs reports whether an operation reads or changes the jobs' documents.
func ofJobs(what string) bool {
	return strings.HasPrefix(what, "read ") || strings.HasPrefix(what, "swap ")
}

func (f *troubles) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.until)
}

func walkHolds(t *testing.T, rng *rand.Rand) {
	c := killCase{
		hold: []string{"true", `"run"`}[rng.IntN(2)], spent: int64(rng.IntN(3)) * 24, host: rng.IntN(3) == 0, reset: true,
		lines: []string{"", `on_exhausted = "defer"`}[rng.IntN(2)],
	}
	w := newKillWorld(t, c, rng.Uint64())
	wrong := &troubles{rng: rand.New(rand.NewPCG(rng.Uint64(), 5)), until: map[string]time.Time{}}
	w.faults = wrong.of
	if rng.IntN(2) == 0 {
		w.slowest = 4 * time.Minute // past the end of a lease, and of a pass that counts as dead
	}
	for _, j := range w.list {
		j.Schedule = parsed(t, "*/5 * * * *", "UTC")
		j.Overlap = []Overlap{Skip, Queue, Allow}[rng.IntN(3)]
	}
	w.spendBefore()
	w.at(23*time.Hour + 41*time.Minute)
	var alive []*process
	began := 0
	begin := func() {
		began++
		alive = append(alive, w.begin(fmt.Sprint("daemon", began), time.Duration(1+rng.IntN(9))*time.Millisecond))
	}
	begin()
	stop := w.bystand()
	for range 25 {
		after(time.Duration(rng.Int64N(int64(3 * time.Minute))))
		living := alive[:0]
		for _, p := range alive {
			if _, _, dead := p.killed(); !dead {
				living = append(living, p)
			}
		}
		alive = living
		name, span := "", time.Duration(rng.Int64N(int64(4*time.Minute)))
		if len(alive) > 0 && rng.IntN(2) == 0 {
			name = alive[rng.IntN(len(alive))].name
		}
		switch rng.IntN(10) {
		case 0, 1:
			if len(alive) < 4 {
				begin()
			}
		case 2, 3, 4:
			if len(alive) > 0 {
				alive[rng.IntN(len(alive))].killSoon(1+rng.IntN(40), side(rng.IntN(int(sides))))
			}
		case 5:
			wrong.set([]string{"away", "silent"}[rng.IntN(2)], name, span)
		case 6:
			wrong.set("lost", name, span)
		case 7:
			wrong.set("unfenced", "", span)
		case 8: // a pass goes on although it is declared dead
			wrong.set("deaf", name, span)
		case 9:
			w.resetLedger()
		}
		w.edge.look()
	}
	wrong.end()
	begin()
	after(5 * time.Minute)
	stop()
	for _, p := range w.all {
		p.killSoon(0, before) // those that are still to be killed live
	}
	for _, j := range w.list {
		_, _, _, err := SetPause(t.Context(), w.store, j, "")
		check.NoError(t, err)
	}
	after(30 * time.Minute)
	w.stopAll()
	for _, name := range []string{"trending", "beside"} {
		w.oneRecordEach(name)
	}
	t.Logf("%+v, %d daemons, %+v", c, began, w.edge.counts)
}

// resetLedger has a person forget what was charged.
func (w *killWorld) resetLedger() {
	w.edge.mu.Lock()
	defer w.edge.mu.Unlock()
	must.Get(w.edge.change(driver.Reset{Budget: w.edge.name}))(w.t)
}

// oneRecordEach fails if a tick of a job has more than one record, or none.
func (w *killWorld) oneRecordEach(job string) {
	w.t.Helper()
	seen, counts := map[time.Time]int{}, map[string]int{}
	for _, r := range must.Get(History(w.t.Context(), w.store, job, time.Time{}, time.Time{}, 1000))(w.t) {
		counts[strings.TrimSpace(string(r.Outcome)+" "+r.Reason)]++
		last := r.Tick.Time
		if r.Until != nil {
			last = r.Until.Time
		}
		for tick := r.Tick.Time; !tick.After(last); tick = tick.Add(5 * time.Minute) {
			seen[tick]++
		}
	}
	for tick, n := range seen {
		check.Equal(w.t, n, 1, job, "the tick of", tick, "has … records")
	}
	w.t.Logf("%s: %v", job, counts)
}
