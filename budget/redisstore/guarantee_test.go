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

// Between two steps of a wait a share borrows whose charges the wait has passed over: they free
// something now.
func TestShareBorrowsAmidAWait(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL(0)
	now, runs := int64(1_800_000_000_000_000), 0
	var amid func()
	store := must.Get(redisstore.OpenWithClock(url, redisstore.Options{Timeout: patient}, func() int64 {
		if runs++; runs == 3 && amid != nil {
			amid()
		}
		return now
	}))(t)
	other := must.Get(redisstore.OpenWithClock(url, redisstore.Options{Timeout: patient}, func() int64 { return now }))(t)
	limits := []limit.Limit{{
		Name: "hour", Limit: 100, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour),
		Shares: []limit.Share{{Name: "nightly", Jobs: []string{"nightly"}, Guarantee: 30}},
	}}
	charge := func(store *redisstore.Store, id, job string, units int64) driver.Decision {
		t.Helper()
		answer := must.Get(store.Decide(t.Context(), driver.Batch{
			Budget: name, Now: now, Limits: limits, Items: []driver.Item{{ID: id, Operation: "op", Units: units, Labels: driver.Labels{Job: job}}},
		}))(t)
		return answer.Items[0]
	}
	for i := range 70 {
		now += time.Second.Microseconds()
		job := "nightly"
		if i >= 20 {
			job = "backfill"
		}
		must.Equal(t, charge(store, fmt.Sprint("id", i), job, 1).Result, driver.Granted)
	}
	fifth := now - 45*time.Second.Microseconds() // of backfill
	store.SetMaxSteps(3)
	runs, amid = 0, func() { must.Equal(t, charge(other, "amid", "nightly", 20).Result, driver.Granted) }
	d := charge(store, "asked", "backfill", 25)
	must.Equal(t, d.Result, driver.Refused)
	must.Equal(t, runs > 3, true, "runs:", runs)
	check.Equal(t, d.RetryAt, fifth+time.Hour.Microseconds(), "ten that nightly has borrowed and five of backfill have returned by")
}

// Between two steps of a wait that goes through open reservations, a charge comes that returns
// before those that the wait has passed: the wait begins anew.
func TestShareWalkAmongReservations(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL(0)
	const second = int64(1_000_000)
	now, runs := int64(1_800_000_000_000_000), 0
	var amid func()
	store := must.Get(redisstore.OpenWithClock(url, redisstore.Options{Timeout: patient}, func() int64 {
		if runs++; runs == 3 && amid != nil {
			amid()
		}
		return now
	}))(t)
	other := must.Get(redisstore.OpenWithClock(url, redisstore.Options{Timeout: patient}, func() int64 { return now }))(t)
	limits := []limit.Limit{{
		Name: "hour", Limit: 100, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour),
		Shares: []limit.Share{{Name: "nightly", Jobs: []string{"nightly"}, Guarantee: 30}},
	}}
	charge := func(store *redisstore.Store, id string, units, lease int64) driver.Decision {
		t.Helper()
		answer := must.Get(store.Decide(t.Context(), driver.Batch{
			Budget: name, Now: now, Limits: limits, Items: []driver.Item{{ID: id, Operation: "op", Units: units, Lease: lease}},
		}))(t)
		return answer.Items[0]
	}
	var ends []int64
	for i := range int64(60) {
		now += second
		d := charge(store, fmt.Sprint("id", i), 1, 1000*second)
		must.Equal(t, d.Result, driver.Granted)
		ends = append(ends, d.At+1000*second)
	}
	store.SetMaxSteps(3)
	runs, amid = 0, func() { must.Equal(t, charge(other, "amid", 10, 0).Result, driver.Granted) }
	d := charge(store, "asked", 25, 0)
	must.Equal(t, d.Result, driver.Refused)
	must.Equal(t, runs > 5, true, "runs:", runs)
	check.Equal(t, d.RetryAt, ends[14]+3600*second, "the charge amid and fifteen reservations have returned by")
}

// A batch of refused calls does not do all of its walks in one run.
func TestRefusedBatchBounded(t *testing.T) {
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
	opened, runs := number(t, regexp.MustCompile(`cmdstat_zcount:calls=(\d+)`), info), number(t, regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`), info)
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
