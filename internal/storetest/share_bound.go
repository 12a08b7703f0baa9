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
