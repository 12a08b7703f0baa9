package jobs

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/jobs/needs"
)

// slowRenewals is a store that takes its time to renew holds.
type slowRenewals struct {
	*memstore.Store
	wait time.Duration
}

func (s slowRenewals) Change(ctx context.Context, c driver.Change) (driver.Changed, error) {
	if hold, is := c.(driver.HoldChange); is && hold.Lease > 0 {
		time.Sleep(s.wait)
	}
	return s.Store.Change(ctx, c)
}

// A run that holds its needs may start while the last hold of another run is renewed and
// has just ended.
func TestAHoldBesideARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &patient{recorded: &recorded{}, wait: DefaultHeartbeat + time.Second}
		w := newWorld(t, setup{upstream: upstream, job: `
regions = ["US", "GB"]
schedule = "0 6 * * *"
stagger = "34s"
needs = { "videos.list" = 1 }
hold = "run"`, fetch: "max_pages = 1"})
		upstream.Handler = w.sandbox
		w.spendOn(slowRenewals{w.store, 5 * time.Second}) // US ends at 16 s, and GB starts at 17 s
		stop := w.daemon(false)
		after(7 * time.Hour)
		stop()
		check.EqualSlices(t, w.history(), []string{"6h0m0s succeeded"}, "history")
	})
}

// A run that needs nothing, and so holds nothing, does not end the renewals of another.
func TestARunThatHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w *world
		upstream := http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("regionCode") == "US" {
				time.Sleep(4 * time.Minute)
			}
			w.sandbox.ServeHTTP(out, r)
		})
		w = newWorld(t, setup{upstream: upstream, job: `
regions = ["US", "GB"]
schedule = "0 6 * * *"
stagger = "10s"
timeout = "1h"
hold = "run"`, fetch: "max_pages = 6"})
		for range needs.LeastRuns { // GB is never asked
			w.recorded([]Run{{Region: "GB", Outcome: Succeeded, Spent: []needs.Amount{}}})
		}
		stop := w.daemon(false)
		after(6*time.Hour + 3*time.Minute)
		check.EqualSlices(t, w.heldNow(), []string{"5 for trending US"}, "held")
		after(time.Hour)
		stop()
	})
}

// A deferred pass that has lost a region waits until there is room for the others.
func TestADeferredHoldOfARegionThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{limit: 16, job: strings.Replace(holding, "* * *", "* * 6", 1) + "hold = true\non_exhausted = \"defer\"\nmax_late = \"100h\""})
		for range 4 { // 3 return at each of 24h to 27h
			w.spend(3)
			after(time.Hour)
		}
		r, done := w.runner(), make(chan error, 1)
		drain := make(chan struct{})
		go func() { done <- r.Run(t.Context(), drain, false) }()
		after(4 * time.Hour)
		check.EqualSlices(t, w.deferredText(), []string{"6h0m0s/2 until 26h0m0s: US GB DE"}, "deferred")
		j := *w.list[0]
		j.Regions = []string{"US", "GB"} // 8 units
		check.NoError(t, r.Reload([]*Job{&j}, w.options.Budgets))
		after(17*time.Hour + 30*time.Minute)
		w.spend(6)
		after(time.Hour)
		check.EqualSlices(t, w.deferredText(), []string{"6h0m0s/2 until 27h0m0s: US GB DE"}, "deferred")
		close(drain)
		check.NoError(t, <-done)
	})
}
