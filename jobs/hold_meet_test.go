package jobs

import (
	"context"
	"fmt"
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
		after(16*time.Hour + 59*time.Minute)
		check.EqualSlices(t, w.deferredText(), []string{"6h0m0s/2 until 26h0m0s: US GB DE"}, "deferred while there is room for one region")
		after(2 * time.Minute)
		check.Equal(t, len(w.deferredText()), 0, "deferred passes once there is room for two")
		close(drain)
		check.NoError(t, <-done)
	})
}

// More runs hold at once than a ledger keeps holds: the others wait for their turn.
func TestMoreRunsThanHolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var regions []string
		for n := range driver.MaxHolds + 6 {
			regions = append(regions, fmt.Sprintf("%q", fmt.Sprint("r", n)))
		}
		upstream := &patient{recorded: &recorded{Handler: answering(http.StatusOK, "", "{}")}, wait: 5 * time.Second}
		w := newWorld(t, setup{upstream: upstream, job: "schedule = \"0 6 * * *\"\nneeds = { \"videos.list\" = 2 }\nhold = \"run\"\nregions = [" + strings.Join(regions, ", ") + "]"})
		stop := w.daemon(false)
		after(6*time.Hour + 5*time.Second - time.Microsecond)
		check.Equal(t, upstream.count(), 0, "answers before the first five seconds are over")
		check.Equal(t, len(w.heldNow()), driver.MaxHolds, "holds")
		after(time.Minute)
		stop()
		check.EqualSlices(t, w.history(), []string{"6h0m0s succeeded"}, "history")
		check.Equal(t, upstream.count(), driver.MaxHolds+6, "requests")
	})
}

// A run takes its slot before it holds units: those that wait for a slot hold none.
func TestARunWithoutASlotHoldsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: strings.Replace(holding, "parallel = 1", "", 1) + "hold = \"run\""})
		w.list[0].BudgetParallel = 1
		free := w.busy()
		stop := w.daemon(false)
		after(6*time.Hour + time.Minute)
		check.Equal(t, len(w.heldNow()), 0, "holds while the only slot is taken")
		free()
		after(time.Minute)
		stop()
		check.EqualSlices(t, w.history(), []string{"6h0m0s succeeded"}, "history")
	})
}

// How long a pass may take: as many rounds as there are of what runs at once.
func TestSpanOfAHold(t *testing.T) {
	t.Parallel()
	const each = 5*time.Minute + 10*time.Second
	for name, test := range map[string]struct {
		job  Job
		once bool
		want time.Duration
	}{
		"all at once":       {Job{Hold: HoldPass}, false, each},
		"one, once":         {Job{Hold: HoldPass}, true, 7 * each},
		"two":               {Job{Hold: HoldPass, Parallel: 2}, false, 4 * each},
		"two, once":         {Job{Hold: HoldPass, Parallel: 2}, true, 4 * each},
		"three slots":       {Job{Hold: HoldPass, BudgetParallel: 3}, false, 3 * each},
		"two of five slots": {Job{Hold: HoldPass, Parallel: 2, BudgetParallel: 5}, false, 4 * each},
		"staggered":         {Job{Hold: HoldPass, Stagger: time.Minute}, false, time.Minute + each},
		"a run":             {Job{Hold: HoldRun, Parallel: 2, Stagger: time.Minute}, false, each},
	} {
		test.job.Timeout, test.job.Grace = DefaultTimeout, DefaultGrace
		check.Equal(t, test.job.span(7, test.once), test.want, name)
	}
}

// So many deferred passes of a job wait, and no more: a further one is recorded and dropped.
func TestDeferredPassesAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{job: deferring})
	s := &state{}
	at := clocks{wall: midnight.Add(time.Hour), now: midnight.Add(time.Hour).UnixMicro()}
	left := func(n int) (*deferred, Record) {
		tick := midnight.Add(time.Duration(n) * time.Second)
		return &deferred{Tick: tick.UnixMicro(), Part: 2, Regions: []string{"GB"}, Record: fmt.Sprint(n)}, Record{
			Tick: Instant{tick}, Outcome: Exhausted, Reason: ReasonDeferred, Runs: []Run{{Region: "GB", Outcome: Exhausted, Reason: ReasonDeferred}},
		}
	}
	for n := range maxRequests {
		d, record := left(n)
		check.Equal(t, w.list[0].postpone(s, at, d, record).Reason, ReasonDeferred)
	}
	d, record := left(maxRequests)
	got := w.list[0].postpone(s, at, d, record)
	check.Equal(t, len(s.Deferred), maxRequests, "deferred passes")
	check.Equal(t, got.Reason, ReasonLate)
	check.Contains(t, got.Runs[0].Error, "wait for units already")
	check.EqualSlices(t, s.First, []string{"GB"}, "the next pass has first")
}
