package refusals_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/budget/refusals"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// walker takes random steps as one process does, on a model behind a memory of refusals.
// After each refusal that is remembered, the model says what it would have answered.
type walker struct {
	t        *testing.T
	rng      *rand.Rand
	model    *memstore.Store
	store    *refusals.Store
	skipped  time.Duration // while the machine was suspended: the monotonic clock stands still
	suspends bool          // the machine is suspended now and then; otherwise the wall clock is set
	off      time.Duration // the process's wall clock is so far ahead of the store's
	limits   [][]limit.Limit
	open     []string // reservations
	counts   map[string]int
}

// A remembered refusal is never given at an instant at which the store would grant the call,
// whatever this process charges, gives back and changes, and however its clock is set.
func TestWalk(t *testing.T) {
	seed := effort.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 18))
	counts := map[string]int{}
	for range effort.Of(60, 400, 1500) {
		synctest.Test(t, func(t *testing.T) {
			w := &walker{t: t, rng: rng, counts: counts, suspends: rng.IntN(2) == 0}
			w.model = memstore.New(func() int64 { return time.Now().Add(w.skipped).UnixMicro() })
			w.store = refusals.New(w.model, span)
			for range 2 {
				w.limits = append(w.limits, w.someLimits())
			}
			for range 400 {
				w.step()
			}
		})
	}
	t.Logf("seed %d: %v", seed, counts)
	for _, must := range []string{"granted", "refused", "remembered", "fits later", "locked", "gave back", "suspended", "set", "kept", "bucket", "overtook the clock"} {
		if counts[must] == 0 {
			t.Errorf("seed %d: the walk never came by %q: it shows less than it should", seed, must)
		}
	}
}

// someLimits makes 1 to 3 limits of short windows.
func (w *walker) someLimits() (list []limit.Limit) {
	for i := range 1 + w.rng.IntN(3) {
		l := limit.Limit{Name: fmt.Sprint("l", i), Limit: 3 + w.rng.Int64N(20), Counts: limit.CountUnits}
		if i > 0 {
			l.Operations = [][]string{nil, {"get"}, {"!get"}}[w.rng.IntN(3)]
			l.Observe = w.rng.IntN(6) == 0
		}
		switch w.rng.IntN(5) {
		case 0:
			l.Window = limit.BucketWindow(must.Get(limit.NewRefill(1+w.rng.Int64N(40), time.Second))(w.t))
		case 1:
			l.Window, l.Counts, l.Limit = limit.ConcurrentWindow(), limit.CountCalls, 1+w.rng.Int64N(3)
		case 2:
			l.Window, l.Counts = limit.RollingWindow(time.Duration(1+w.rng.IntN(300))*time.Millisecond), limit.CountCalls
		default:
			l.Window = limit.RollingWindow(time.Duration(1+w.rng.IntN(300)) * time.Millisecond)
			if w.rng.IntN(2) == 0 {
				l.Shares = []limit.Share{{Name: "nightly", Jobs: []string{"nightly"}, Guarantee: w.rng.Int64N(l.Limit)}, {Name: "feeds", Jobs: []string{"feeds.*"}, Guarantee: w.rng.Int64N(3)}}
			}
		}
		list = append(list, l)
	}
	return list
}

// wall is the process's wall clock in µs.
func (w *walker) wall() int64 { return time.Now().Add(w.skipped + w.off).UnixMicro() }

func (w *walker) step() {
	switch n := w.rng.IntN(100); {
	case n < 4 && len(w.open) > 0:
		w.giveBack()
	case n < 6:
		w.lock()
	case n < 10 && w.suspends: // both at once would go unnoticed
		if n != 6 {
			return
		}
		w.counts["suspended"]++
		w.skipped += time.Duration(w.rng.IntN(200)) * time.Millisecond
	case n == 7:
		w.counts["set"]++
		w.off = time.Duration(w.rng.IntN(100)-50) * 2 * time.Millisecond
	case n == 8:
		w.off = -time.Minute + time.Duration(w.rng.IntN(100)-50)*2*time.Millisecond // about to be ignored
	case n == 9:
		w.off = 0
	case n < 40:
		time.Sleep(time.Duration(w.rng.IntN(50)) * time.Millisecond)
	case n < 50:
		time.Sleep(time.Duration(w.rng.IntN(100)) * time.Microsecond)
	default:
		w.decide()
	}
}

func (w *walker) giveBack() {
	at := w.rng.IntN(len(w.open))
	_, err := driver.FinishOne(w.t.Context(), w.store, "up/key1", w.wall(), driver.Finish{ID: w.open[at], Release: w.rng.IntN(2) == 0})
	if !w.passed(err) {
		return
	}
	w.open = append(w.open[:at], w.open[at+1:]...)
	w.counts["gave back"]++
}

func (w *walker) lock() {
	name := []string{"", "l0", "l1"}[w.rng.IntN(3)]
	if w.rng.IntN(2) == 0 {
		w.passed(check.Err(driver.Apply(w.t.Context(), w.store, driver.Unlock{Budget: "up/key1", Now: w.wall(), Limit: name})))
		return
	}
	lock := driver.Lock{Budget: "up/key1", Now: w.wall(), Limit: name, After: 1 + w.rng.Int64N(200_000), Most: driver.MaxLock, Force: w.rng.IntN(2) == 0}
	w.passed(check.Err(driver.Apply(w.t.Context(), w.store, lock)))
}

// passed reports whether a step was taken. The clocks may be too far apart for it.
func (w *walker) passed(err error) bool {
	if errors.Is(err, driver.ErrClock) {
		w.counts["clock refused"]++
		return false
	}
	must.Do(w.t, err)
	return true
}

// decide decides a batch, and holds each remembered refusal against the model's own answer.
func (w *walker) decide() {
	batch := driver.Batch{Budget: "up/key1", Now: w.wall(), Limits: w.limits[w.rng.IntN(8)/7], Observe: w.rng.IntN(20) == 0}
	for range 1 + w.rng.IntN(4)*w.rng.IntN(2) {
		batch.Items = append(batch.Items, w.item())
	}
	// The memory answers its calls before the store decides the rest.
	before := make([]driver.Decision, len(batch.Items))
	for i, item := range batch.Items {
		dry := batch
		item.DryRun = true // before it is copied
		dry.Items = []driver.Item{item}
		one, err := w.model.Decide(w.t.Context(), dry)
		if !w.passed(err) {
			w.off = 0
			return
		}
		before[i] = one.Items[0]
	}
	now := time.Now().Add(w.skipped).UnixMicro()
	done := must.Get(w.store.Decide(w.t.Context(), batch))(w.t)
	if done.Seen > done.Now {
		w.counts["overtook the clock"]++
	}
	for i, d := range done.Items {
		item := batch.Items[i]
		if d.Result == driver.Granted {
			w.counts["granted"]++
			if item.Lease > 0 {
				w.open = append(w.open, item.ID)
			}
		}
		if d.Locked {
			w.counts["locked"]++
		}
		if d.Result != driver.Refused {
			continue
		}
		w.counts["refused"]++
		if !d.Remembered {
			continue
		}
		w.counts["remembered"]++
		if before[i].RetryAt > d.RetryAt {
			w.counts["fits later"]++
		}
		if d.Limit >= 0 && batch.Limits[d.Limit].Window.Kind == limit.Bucket {
			w.counts["bucket"]++
		}
		if len(d.Kept) > 0 {
			w.counts["kept"]++
		}
		if before[i].Result != driver.Refused || before[i].RetryAt < d.RetryAt {
			w.t.Fatalf("at %d, %+v of %+v: the memory says %+v, the store %+v", now, item, batch, d, before[i])
		}
	}
}

func (w *walker) item() driver.Item {
	item := driver.Item{
		ID: fmt.Sprint(w.rng.Uint64()), NewID: w.rng.IntN(10) > 0, Operation: []string{"get", "list", "list"}[w.rng.IntN(3)],
		Units: w.rng.Int64N(6), UseHeadroom: w.rng.IntN(10) == 0,
		Labels: driver.Labels{Job: []string{"", "adhoc", "nightly", "feeds.us", "feeds.eu"}[w.rng.IntN(5)]},
	}
	if w.rng.IntN(3) == 0 {
		item.Lease = []int64{10_000, 100_000}[w.rng.IntN(2)]
	}
	if w.rng.IntN(10) == 0 {
		item.Floor = w.rng.Int64N(3)
	}
	return item
}
