package redisstore_test

import (
	"fmt"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
	"github.com/quotactl/quotactl/internal/storetest"
)

func TestGuarantees(t *testing.T) {
	t.Parallel()
	var clock atomic.Int64
	store := must.Get(redisstore.OpenWithClock(redistest.Start(t).URL(0), redisstore.Options{Timeout: patient}, clock.Load))(t)
	storetest.Guarantees(t, store, &clock)
	must.Do(t, store.Close())
}

func TestShareWalkBounded(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var clock atomic.Int64
	store := must.Get(redisstore.OpenWithClock(server.URL(0), redisstore.Options{Timeout: patient}, clock.Load))(t)
	store.SetMaxSteps(50)
	storetest.ShareWalkBounded(t, store, &clock, func() int {
		info := must.Get(server.Client().Info(t.Context(), "commandstats").Result())(t)
		return number(t, regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`), info)
	})
	must.Do(t, store.Close())
}

func TestShareWalkAmongCharges(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var clock atomic.Int64
	var amid func()
	store := must.Get(redisstore.OpenWithClock(server.URL(0), redisstore.Options{Timeout: patient}, func() int64 {
		if amid != nil {
			amid()
		}
		return clock.Load()
	}))(t)
	store.SetMaxSteps(50)
	storetest.ShareWalkAmongCharges(t, store, &clock, func(f func()) { amid = f }, func() int {
		info := must.Get(server.Client().Info(t.Context(), "commandstats").Result())(t)
		return number(t, regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`), info)
	})
	must.Do(t, store.Close())
}

// amidWait is a store whose third run of a wait of few steps is preceded by another store's
// charge.
type amidWait struct {
	t            *testing.T
	store, other *redisstore.Store
	now          int64
	runs         int
	amid         func()
}

func newAmidWait(t *testing.T) *amidWait {
	url := redistest.Start(t).URL(0)
	w := &amidWait{t: t, now: 1_800_000_000_000_000}
	w.store = must.Get(redisstore.OpenWithClock(url, redisstore.Options{Timeout: patient}, func() int64 {
		if w.runs++; w.runs == 3 && w.amid != nil {
			w.amid()
		}
		return w.now
	}))(t)
	w.other = must.Get(redisstore.OpenWithClock(url, redisstore.Options{Timeout: patient}, func() int64 { return w.now }))(t)
	return w
}

// charge decides an item of a job by an hour of 100 units, 30 of them nightly's.
func (w *amidWait) charge(store *redisstore.Store, id, job string, units, lease int64) driver.Decision {
	w.t.Helper()
	limits := []limit.Limit{{
		Name: "hour", Limit: 100, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour),
		Shares: []limit.Share{{Name: "nightly", Jobs: []string{"nightly"}, Guarantee: 30}},
	}}
	return must.Get(store.Decide(w.t.Context(), driver.Batch{
		Budget: name, Now: w.now, Limits: limits, Items: []driver.Item{{ID: id, Operation: "op", Units: units, Lease: lease, Labels: driver.Labels{Job: job}}},
	}))(w.t).Items[0]
}

// refused asks for an item that is refused in several runs, before the third of which the
// other store charges, and returns when it fits.
func (w *amidWait) refused(units int64, amidJob string, amidUnits int64) int64 {
	w.t.Helper()
	w.store.SetMaxSteps(3)
	w.runs, w.amid = 0, func() {
		must.Equal(w.t, w.charge(w.other, "amid", amidJob, amidUnits, 0).Result, driver.Granted)
	}
	d := w.charge(w.store, "asked", "backfill", units, 0)
	must.Equal(w.t, d.Result, driver.Refused)
	must.Equal(w.t, w.runs > 3, true, "runs:", w.runs)
	return d.RetryAt
}

// Between two steps of a wait a share borrows whose charges the wait has passed over: they free
// something now.
func TestShareBorrowsAmidAWait(t *testing.T) {
	t.Parallel()
	w := newAmidWait(t)
	for i := range 70 {
		w.now += time.Second.Microseconds()
		job := "nightly"
		if i >= 20 {
			job = "backfill"
		}
		must.Equal(t, w.charge(w.store, fmt.Sprint("id", i), job, 1, 0).Result, driver.Granted)
	}
	fifth := w.now - 45*time.Second.Microseconds() // of backfill
	check.Equal(t, w.refused(25, "nightly", 20), fifth+time.Hour.Microseconds(), "ten that nightly has borrowed and five of backfill have returned by")
}

// Between two steps of a wait that goes through open reservations, a charge comes that returns
// before those that the wait has passed: the wait begins anew.
func TestShareWalkAmongReservations(t *testing.T) {
	t.Parallel()
	w := newAmidWait(t)
	const lease = int64(1_000_000_000)
	var ends []int64
	for i := range 60 {
		w.now += time.Second.Microseconds()
		d := w.charge(w.store, fmt.Sprint("id", i), "backfill", 1, lease)
		must.Equal(t, d.Result, driver.Granted)
		ends = append(ends, d.At+lease)
	}
	check.Equal(t, w.refused(25, "backfill", 10), ends[14]+time.Hour.Microseconds(), "the charge amid and fifteen reservations have returned by")
}

// A batch of refused calls does not do all of its walks in one run.
func TestRefusedBatchBounded(t *testing.T) {
	effort.Unraced(t)
	t.Parallel()
	server := redistest.Start(t)
	var clock atomic.Int64
	clock.Store(1_800_000_000_000_000)
	store := must.Get(redisstore.OpenWithClock(server.URL(0), redisstore.Options{Timeout: patient}, clock.Load))(t)
	const operations, jobs = 60, 8
	l := limit.Limit{Name: "day", Limit: 600, Counts: limit.CountUnits, Window: limit.RollingWindow(24 * time.Hour)}
	for j := range jobs {
		job := fmt.Sprint("job", j)
		l.Shares = append(l.Shares, limit.Share{Name: job, Jobs: []string{job}, Guarantee: 1})
	}
	decide := func(items []driver.Item) []driver.Decision {
		clock.Add(1000)
		return must.Get(store.Decide(t.Context(), driver.Batch{Budget: name, Now: clock.Load(), Limits: []limit.Limit{l}, Items: items}))(t).Items
	}
	for op := range operations {
		var items []driver.Item
		for j := range jobs {
			items = append(items, driver.Item{ID: fmt.Sprint(op, "-", j), Operation: fmt.Sprint("op", op), Units: 1, Labels: driver.Labels{Job: fmt.Sprint("job", j)}})
		}
		decide(items)
	}
	must.Do(t, server.Client().ConfigResetStat(t.Context()).Err())
	var items []driver.Item
	for i := range driver.MaxBatch {
		items = append(items, driver.Item{ID: fmt.Sprint("asked", i), Operation: "op0", Units: 600 - operations*jobs + 1})
	}
	for _, d := range decide(items) {
		must.Equal(t, d.Result, driver.Refused)
	}
	info := must.Get(server.Client().Info(t.Context(), "commandstats").Result())(t)
	opened, runs := number(t, regexp.MustCompile(`cmdstat_zrangebyscore:calls=(\d+)`), info), number(t, regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`), info)
	if each := opened / runs; each > 3*operations*jobs {
		t.Errorf("%d refusals opened %d cursors in %d runs: %d in each, want those of few refusals, each of which opens %d", driver.MaxBatch, opened, runs, each, operations*jobs)
	}
	must.Do(t, store.Close())
}

// number is what an expression's group finds in a text.
func number(t *testing.T, expr *regexp.Regexp, text string) int {
	t.Helper()
	found := expr.FindStringSubmatch(text)
	must.Equal(t, len(found), 2, "found of", expr)
	return must.Get(strconv.Atoi(found[1]))(t)
}

func TestWhyAddsUp(t *testing.T) {
	t.Parallel()
	var clock atomic.Int64
	store := must.Get(redisstore.OpenWithClock(redistest.Start(t).URL(0), redisstore.Options{Timeout: patient}, clock.Load))(t)
	storetest.WhyAddsUp(t, store, &clock)
	must.Do(t, store.Close())
}

func TestWhyOfSkewedClocks(t *testing.T) {
	t.Parallel()
	var clock atomic.Int64
	store := must.Get(redisstore.OpenWithClock(redistest.Start(t).URL(0), redisstore.Options{Timeout: patient}, clock.Load))(t)
	storetest.WhyOfSkewedClocks(t, store, &clock)
	must.Do(t, store.Close())
}
