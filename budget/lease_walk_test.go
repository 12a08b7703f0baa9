package budget_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// spentAt is what the model knows of a take or a charge.
type spentAt struct {
	at    time.Time
	units int64
}

// noDeadline is a test within a synctest bubble, in which rapid must not ask for the deadline.
type noDeadline struct{ testing.TB }

// walk is a plain model beside two processes with leases on one ledger: a list of all that
// was granted.
type walk struct {
	*leases
	rt      *rapid.T
	limits  []limit.Limit
	list    []spentAt
	held    map[string]*budget.Lease // by job
	taken   map[string]int64         // by job
	locked  time.Time                // since when the budget is locked; zero: it is not
	jobs    int
	granted int
}

// grant notes what was granted. In no trailing window, and no period, may it be above the
// limit, and the ledger must count it.
func (w *walk) grant(job string, units int64) {
	w.granted++
	now := time.Now()
	w.list = append(w.list, spentAt{now, units})
	w.taken[job] += units
	status := must.Get(w.b.Status(w.t.Context()))(w.rt)
	for i, l := range w.limits {
		sum, cut := int64(0), l.Window.Cut(now.UnixMicro())
		for _, one := range w.list {
			if one.at.UnixMicro() > cut {
				sum += one.units
			}
		}
		if sum > l.Limit || status.Limits[i].Used < sum || status.Limits[i].Used > l.Limit {
			w.rt.Fatalf("limit %s of %d: %d were granted, the ledger counts %d", l.Name, l.Limit, sum, status.Limits[i].Used)
		}
	}
}

// refused checks that a refusal is one: it would not fit now, or the budget is locked, or
// the store is away.
func (w *walk) refused(units int64, err error) {
	status := must.Get(w.b.Status(w.t.Context()))(w.rt)
	switch {
	case errors.Is(err, budget.ErrLocked):
		must.Equal(w.rt, w.locked.IsZero(), false, err)
	case errors.Is(err, budget.ErrUnavailable):
		must.Equal(w.rt, w.store.away.Load() || w.store.deaf.Load(), true, err)
	case errors.Is(err, budget.ErrNeverFits):
		must.Equal(w.rt, units > w.limits[0].Limit, true, err)
	default:
		must.Is(w.rt, err, budget.ErrExhausted)
		if !slices.ContainsFunc(status.Limits, func(l budget.LimitStatus) bool { return l.Used+units > l.Limit.Limit }) {
			w.rt.Fatalf("%d units were refused, and fit: %v; %+v", units, err, status)
		}
	}
}

func (w *walk) pick() (job string, l *budget.Lease) {
	var names []string
	for name := range w.held {
		names = append(names, name)
	}
	slices.Sort(names)
	if len(names) == 0 {
		w.rt.Skip("no lease")
	}
	job = rapid.SampledFrom(names).Draw(w.rt, "lease")
	return job, w.held[job]
}

func (w *walk) take(*rapid.T) {
	job, l := w.pick()
	units := rapid.Int64Range(0, 60).Draw(w.rt, "units")
	err := l.Take(w.t.Context(), units)
	switch {
	case err != nil:
		w.refused(units, err)
	case !w.locked.IsZero() && time.Since(w.locked) > time.Second:
		w.rt.Fatalf("a take %s after a lock", time.Since(w.locked))
	default:
		w.grant(job, units)
	}
}

func (w *walk) open(*rapid.T) {
	w.jobs++
	call := videos
	call.Labels.Job = fmt.Sprintf("job%d", w.jobs)
	process := w.a
	if rapid.Bool().Draw(w.rt, "other process") {
		process = w.b
	}
	units := rapid.Int64Range(1, 80).Draw(w.rt, "lease units")
	l, err := process.Lease(w.t.Context(), call, units, time.Duration(rapid.Int64Range(1, int64(20*time.Minute)).Draw(w.rt, "span")))
	if errors.Is(err, budget.ErrInvalid) {
		return // a span below 1 µs
	}
	if err != nil {
		w.refused(units, err)
		return
	}
	w.held[call.Labels.Job] = l
}

func (w *walk) close(*rapid.T) {
	job, l := w.pick()
	if w.store.away.Load() || w.store.deaf.Load() {
		w.rt.Skip("it could not be settled")
	}
	must.Do(w.rt, l.Close(w.t.Context()))
	delete(w.held, job)
}

func (w *walk) charge(*rapid.T) {
	units := rapid.Int64Range(1, 60).Draw(w.rt, "charged")
	if _, err := w.b.Charge(w.t.Context(), budget.Call{Operation: "videos.list", Units: &units}); err != nil {
		w.refused(units, err)
		return
	}
	w.grant("", units)
}

func (w *walk) lock(*rapid.T) {
	if w.locked.IsZero() {
		must.Get(w.b.Lock(w.t.Context(), budget.LockOrder{Until: budget.Until{After: 365 * 24 * time.Hour}, ByHand: true}))(w.rt)
		w.locked = time.Now()
		return
	}
	must.Get(w.b.Unlock(w.t.Context(), ""))(w.rt)
	w.locked = time.Time{}
}

func (w *walk) leave(*rapid.T) { w.store.away.Store(!w.store.away.Load()) }

func (w *walk) deafen(*rapid.T) { w.store.deaf.Store(!w.store.deaf.Load()) }

func (w *walk) sleep(*rapid.T) {
	after(time.Duration(rapid.Int64Range(1, int64(40*time.Second)).Draw(w.rt, "sleep")))
}

func (w *walk) littleSleep(*rapid.T) {
	after(time.Duration(rapid.Int64Range(1, int64(time.Second)).Draw(w.rt, "sleep")))
}

// Random leases of two processes, charges, locks and outages. Nothing is ever granted above a
// limit; a refusal is right; and once all leases are closed, the ledger has charged each job
// what was taken for it.
func TestLeaseWalk(t *testing.T) {
	hour := limit.CalendarWindow(must.Get(limit.NewCalendar("15m", "UTC", 0))(t))
	guarded := hour
	guarded.Guard = 3_000_000
	limits := []limit.Limit{
		{Name: "minute", Limit: 200, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Minute)},
		{Name: "coarse", Limit: 500, Counts: limit.CountUnits, Window: limit.CoarseWindow(5*time.Minute, 10*time.Second)},
		{Name: "quarter", Limit: 900, Counts: limit.CountUnits, Window: hour},
		{Name: "guarded", Limit: 1000, Counts: limit.CountUnits, Window: guarded},
		{Name: "all", Limit: 1_000_000, Counts: limit.CountUnits, Window: limit.RollingWindow(30 * 24 * time.Hour)},
	}
	spec := minute(0)
	spec.Limits = limits
	granted := 0
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(noDeadline{t}, func(rt *rapid.T) {
			w := &walk{leases: newLeases(t, spec), rt: rt, limits: limits, held: map[string]*budget.Lease{}, taken: map[string]int64{}}
			defer func() {
				w.store.away.Store(false)
				w.store.deaf.Store(false)
				for _, l := range w.held {
					check.NoError(t, l.Close(t.Context()))
				}
			}()
			rt.Repeat(map[string]func(*rapid.T){
				"take": w.take, "take again": w.take, "take once more": w.take, "open": w.open, "close": w.close, "charge": w.charge,
				"":     func(*rapid.T) { synctest.Wait() }, // the keepers have done what is due
				"lock": w.lock, "leave": w.leave, "deafen": w.deafen, "sleep": w.sleep, "sleep a little": w.littleSleep,
			})
			granted += w.granted
			w.store.away.Store(false)
			w.store.deaf.Store(false)
			after(3 * time.Second) // what could not be settled is
			for job, l := range w.held {
				must.Do(rt, l.Close(t.Context()))
				delete(w.held, job)
			}
			spent := must.Get(w.b.Spent(t.Context(), budget.ByJob, 30*24*time.Hour))(rt)
			charged := map[string]int64{}
			for _, row := range spent.Rows {
				charged[row.Name] = row.Units
			}
			for job, units := range w.taken {
				must.Equal(rt, charged[job], units, "charged for ", job)
				delete(charged, job)
			}
			for job, units := range charged {
				must.Equal(rt, units, 0, "charged for ", job, ", which took nothing")
			}
		})
	})
	t.Logf("granted %d times", granted)
	if granted == 0 {
		t.Error("nothing was granted")
	}
}

// Sixteen goroutines take from one lease while the keeper renews it, beside charges of
// others: nothing is taken twice, and nothing is lost.
func TestLeaseTakenFromByMany(t *testing.T) {
	spec := oneLimit(1_000_000, limit.RollingWindow(time.Hour))
	spec.Timeout = time.Minute // the machine may be busy
	b := must.Get(budget.New(memstore.New(clock), spec))(t)
	l := must.Get(b.Lease(t.Context(), videos, 1000, time.Hour))(t)
	other := must.Get(b.Lease(t.Context(), videos, 10, 2*time.Millisecond))(t) // hardly lives
	var taken atomic.Int64
	var all sync.WaitGroup
	for i := range int64(16) {
		all.Go(func() {
			for n := range int64(20_000) {
				from, units := l, (n+i)%5
				if n%100 == 0 {
					from, units = other, 1
				}
				switch err := from.Take(t.Context(), units); {
				case err == nil:
					taken.Add(units)
				case !errors.Is(err, budget.ErrExhausted):
					t.Errorf("take: %v", err)
					return
				}
			}
		})
	}
	all.Wait()
	must.Do(t, l.Close(t.Context()))
	must.Do(t, other.Close(t.Context()))
	check.Equal(t, must.Get(b.Status(t.Context()))(t).Limits[0].Used, taken.Load(), "used")
	if taken.Load() < 500_000 {
		t.Errorf("%d units were taken", taken.Load())
	}
}
