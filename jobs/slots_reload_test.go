package jobs

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// A run that has a slot keeps it, whatever reloads make of parallel meanwhile, raised or
// lowered, in all daemons or in some; and nobody begins beyond what the daemon that
// begins it says then.
func TestSlotsAreKeptThroughReloads(t *testing.T) {
	effort.Unraced(t)
	t.Parallel()
	seed := effort.Seed(t)
	for i := range effort.Of[uint64](1, 1, 2) {
		for _, of := range []string{"youtube/key1", "trending"} {
			t.Run(fmt.Sprintf("%s/seed=%d", of, seed+i), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { walkReloads(t, of, rand.New(rand.NewPCG(seed+i, 0))) })
			})
		}
	}
}

// reloaded is a world of daemons whose configurations change on their own.
type reloaded struct {
	*world
	of  string // the budget, or the job, whose runs are bounded
	rng *rand.Rand

	mu      sync.Mutex // guards all below
	answers *rand.Rand
	daemons []*bounded
	running int // runs under way
	above   int // how often they were more than a daemon's bound by then
	full    int // how often one began as the last that might
}

// bounded is a daemon, and the bound that it goes by.
type bounded struct {
	runner *Runner
	most   int
}

func walkReloads(t *testing.T, of string, rng *rand.Rand) {
	w := &reloaded{of: of, rng: rng, answers: rand.New(rand.NewPCG(rng.Uint64(), 0))}
	w.world = newWorld(t, setup{job: `
regions = ["US", "GB", "DE"]
schedule = "*/20 * * * *"
timeout = "4h"
overlap = "allow"`, limit: 1_000_000})
	var stops []func()
	for range 3 {
		d := &bounded{}
		w.options.Transport = direct{http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.answer(d, rw, r) })}
		d.runner = w.runner()
		w.reload(d)
		drain, done := make(chan struct{}), make(chan error, 1)
		go func() { done <- d.runner.Run(t.Context(), drain, false) }()
		stops = append(stops, func() {
			close(drain)
			check.NoError(t, <-done)
		})
		w.daemons = append(w.daemons, d)
	}
	for step := 0; step < 100 || step < 1000 && w.showsNothing(); step++ {
		after(time.Duration(rng.Int64N(int64(10 * time.Minute))))
		synctest.Wait()
		w.compare()
		if rng.IntN(3) == 0 {
			w.reload(w.daemons[rng.IntN(len(w.daemons))])
		}
	}
	for _, stop := range stops {
		stop()
	}
	for _, said := range []string{"a slot was not renewed", "the slot of a run"} {
		if strings.Contains(w.log.String(), said) {
			t.Errorf("the log says %q", said)
		}
	}
	if w.showsNothing() {
		t.Errorf("runs were beyond a bound %d times, and began as the last %d times: it shows nothing", w.above, w.full)
	}
}

// showsNothing reports whether nobody had more runs under way than its bound, or none
// began as the last that might.
func (w *reloaded) showsNothing() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.above == 0 || w.full == 0
}

// reload gives a daemon another bound.
func (w *reloaded) reload(d *bounded) {
	w.mu.Lock()
	d.most = 1 + w.rng.IntN(4)
	w.mu.Unlock()
	other := *w.list[0]
	if w.of == other.Budget {
		other.BudgetParallel = d.most
		other.Overlap = Queue
	} else {
		other.Parallel = d.most
	}
	check.NoError(w.t, d.runner.Reload([]*Job{&other}, w.options.Budgets))
}

// answer takes up to half an hour. Each run has one page.
func (w *reloaded) answer(d *bounded, rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	w.running++
	if w.running > d.most {
		w.t.Errorf("%s: a run begins as one of %d; its daemon lets %d go at once", time.Since(midnight), w.running, d.most)
	}
	if w.running == d.most {
		w.full++
	}
	wait := time.Duration(w.answers.Int64N(int64(30 * time.Minute)))
	w.mu.Unlock()
	select {
	case <-time.After(wait):
		_, _ = rw.Write([]byte("{}"))
	case <-r.Context().Done():
	}
	w.mu.Lock()
	w.running--
	w.mu.Unlock()
}

// compare holds who has the slots to the runs that are under way.
func (w *reloaded) compare() {
	w.mu.Lock()
	defer w.mu.Unlock()
	found, err := w.store.Job(w.t.Context(), runSlots(w.of))
	must.Do(w.t, err)
	s, err := readDocument[slots]("", found)
	must.Do(w.t, err)
	if len(s.Held) != w.running || slices.ContainsFunc(s.Held, func(held slot) bool { return held.Until <= found.Now }) {
		w.t.Errorf("%s: %d runs are under way, and at %d the slots are %+v", time.Since(midnight), w.running, found.Now, s.Held)
	}
	if slices.ContainsFunc(w.daemons, func(d *bounded) bool { return w.running > d.most }) {
		w.above++
	}
}

// With parallel raised from 2 to 3 while two runs are under way, and lowered to 1 after
// that, three have slots and keep them.
func TestASlotOutlivesTheBoundThatItWasTakenBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion})
		name := runSlots("youtube/key1")
		take := func(r *Runner, holder string, most int) bool {
			taken, err := r.docs.takeSlot(t.Context(), name, holder, most)
			check.NoError(t, err)
			return taken
		}
		for i, most := range []int{2, 2, 3} {
			r := w.runner()
			holder := fmt.Sprintf("run%d", i)
			if !take(r, holder, most) {
				t.Fatalf("%s has no slot of %d", holder, most)
			}
			defer r.docs.keepSlot(t.Context(), w.options.Log, name, holder)()
		}
		other := w.runner()
		for range 10 * 60 {
			if take(other, "other", 3) {
				t.Fatalf("after %s a fourth run has a slot of 3", time.Since(midnight))
			}
			after(time.Second)
		}
		if !take(other, "run0", 1) {
			t.Error("a run that lost the answer is refused the slot that it has")
		}
	})
}

// A slot that fell while its run could not renew it is the run's again, and counts:
// the log says that there may be more runs than parallel says by then. It also names what
// keeps the slot from being renewed.
func TestASlotThatFellIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion})
		name := runSlots("youtube/key1")
		var apart atomic.Bool
		options := w.options
		options.State = failing{w.store, apart.Load}
		first := must.Get(New(w.list, options))(t)
		take := func(r *Runner, holder string) bool {
			taken, err := r.docs.takeSlot(t.Context(), name, holder, 1)
			check.NoError(t, err)
			return taken
		}
		if !take(first, "first") {
			t.Fatal("it is not free")
		}
		freeFirst := first.docs.keepSlot(t.Context(), w.options.Log, name, "first")
		apart.Store(true)
		second := w.runner()
		for !take(second, "second") {
			after(time.Second)
		}
		w.logged("level=WARN", "a slot was not renewed", "slot="+name, "connection refused")
		freeSecond := second.docs.keepSlot(t.Context(), w.options.Log, name, "second")
		apart.Store(false)
		after(time.Minute)
		w.logged("level=WARN", "the slot of a run under way", "slot="+name)
		freeSecond()
		if take(second, "third") {
			t.Error("there is room beside a run whose slot fell")
		}
		freeFirst()
		if !take(second, "third") {
			t.Error("the slot of a run that has ended stands")
		}
	})
}
