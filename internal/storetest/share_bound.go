package storetest

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// ShareWalkBounded checks that a wait beside shares goes through the entries that must come
// back, and of each share through those until its use falls to its guarantee (I7). Each step
// of the store, of which steps counts those so far, goes through 50 entries; the ledger holds
// thousands. The clock is the store's.
func ShareWalkBounded(t *testing.T, store driver.Store, clock *atomic.Int64, steps func() int) {
	t.Helper()
	const entries = 2560
	clock.Store(noon)
	charge := func(limits []limit.Limit, job string, n int) driver.Decision {
		t.Helper()
		var last driver.Decision
		for n > 0 {
			b := driver.Batch{Budget: "up/bounded", Now: clock.Load(), Limits: limits}
			for ; n > 0 && len(b.Items) < driver.MaxBatch; n-- {
				b.Items = append(b.Items, by(job, item(fmt.Sprint(job, clock.Load(), "-", n), "op", 1)))
			}
			answer := must.Get(store.Decide(t.Context(), b))(t)
			last = answer.Items[len(answer.Items)-1]
			clock.Add(second)
		}
		return last
	}
	divided := func(guarantee int64) []limit.Limit {
		return []limit.Limit{shared(rolling("day", entries+100, 24*time.Hour), share("nightly", guarantee))}
	}
	charge(divided(entries), "nightly", entries) // these come back first
	charge(divided(entries), "backfill", 100)
	began := clock.Load() - second
	refused := func(guarantee, at int64) {
		t.Helper()
		before := steps()
		d := charge(divided(guarantee), "backfill", 1)
		must.Equal(t, d.Result, driver.Refused)
		check.Equal(t, d.RetryAt, at+24*hour, "a guarantee of", guarantee, "waits until")
		if took := steps() - before; took > 8 {
			t.Errorf("a guarantee of %d: the refusal took %d steps of 50 entries, want a few: it goes through entries that free nothing", guarantee, took)
		}
	}
	refused(entries+50, began+50) // what is kept for nightly, too, must come back: backfill's 51st
	refused(entries, began)       // backfill's first
	refused(entries-20, noon)     // nightly's first, which it has borrowed
}

// ShareWalkAmongCharges checks that a wait beside shares goes on where it was although a
// share that it has passed over charges between any two of the store's steps. between makes
// the store call its argument there, steps counts the steps so far, each of which goes
// through 50 entries.
func ShareWalkAmongCharges(t *testing.T, store driver.Store, clock *atomic.Int64, between func(func()), steps func() int) {
	t.Helper()
	const entries = 1280
	clock.Store(noon)
	limits := []limit.Limit{shared(rolling("day", 2*entries, 24*time.Hour), share("nightly", entries/2))}
	charge := func(job string, units int64, n int) []driver.Decision {
		b := driver.Batch{Budget: "up/busy", Now: clock.Load(), Limits: limits}
		for ; n > 0; n-- {
			b.Items = append(b.Items, by(job, item(fmt.Sprint(job, clock.Load(), "-", n), "op", units)))
		}
		return must.Get(store.Decide(t.Context(), b))(t).Items
	}
	for range entries / driver.MaxBatch { // by turns, so that what returns is of both
		clock.Add(second)
		charge("nightly", 1, driver.MaxBatch/2)
		clock.Add(second)
		charge("backfill", 1, driver.MaxBatch)
	}
	amid := false // the charge between two steps makes steps of its own
	between(func() {
		if !amid {
			amid = true
			clock.Add(1)
			must.Equal(t, charge("nightly", 1, 1)[0].Result, driver.Granted)
			amid = false
		}
	})
	clock.Add(second)
	before := steps()
	d := charge("backfill", entries, 1)[0]
	between(nil)
	must.Equal(t, d.Result, driver.Refused)
	took := steps() - before
	t.Log("steps:", took)
	if took < 20 || took > 40 {
		t.Errorf("the wait took %d steps of 50 entries of %d, want each entry gone through once, and a step for each charge", took, entries)
	}
	for _, try := range []struct {
		at   int64
		want driver.Result
	}{{d.RetryAt - 1, driver.Refused}, {d.RetryAt, driver.Granted}} {
		clock.Store(try.at)
		got := charge("backfill", entries, 1)[0]
		if got.Result != try.want || got.RetryAt != 0 && got.RetryAt != d.RetryAt {
			t.Errorf("at %d (%+d µs): %+v, want result %d", try.at, try.at-d.RetryAt, got, try.want)
		}
	}
}
