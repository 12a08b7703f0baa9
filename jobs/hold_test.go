package jobs

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// holding is a job that holds 12 units before it starts.
const holding = `
regions = ["US", "GB", "DE"]
schedule = "0 6 * * *"
parallel = 1
needs = { "videos.list" = 4 }
`

// heldNow is what is held of the budget: "12 for trending", or with a region.
func (w *world) heldNow() (list []string) {
	w.t.Helper()
	status := must.Get(w.options.Budgets["youtube/key1"].Status(w.t.Context()))(w.t)
	for _, h := range status.Limits[0].Held {
		list = append(list, strings.TrimSpace(fmt.Sprintf("%d for %s %s", h.Amount, h.Job, h.Region)))
	}
	return list
}

// patient answers each request after a while, and lets a test look meanwhile.
type patient struct {
	*recorded
	wait time.Duration
	each func()
}

func (s *patient) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case <-time.After(s.wait):
	case <-r.Context().Done():
	}
	if s.each != nil {
		s.each()
	}
	s.recorded.ServeHTTP(w, r)
}

// A pass that holds its needs takes none of its units from others while it runs, and none are
// taken from it. What it does not spend is back when it ends.
func TestAPassHoldsItsNeeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		upstream := &patient{recorded: &recorded{}, wait: time.Second}
		w := newWorld(t, setup{upstream: upstream, limit: 16, job: strings.Replace(holding, "4 }", "5 }", 1) + "hold = true"})
		upstream.Handler = w.sandbox
		var left []string
		upstream.each = func() {
			left = append(left, fmt.Sprint(w.heldNow()))
			units := int64(2)
			_, err := w.options.Budgets["youtube/key1"].Charge(t.Context(), budget.Call{Operation: "videos.list", Units: &units})
			check.Is(t, err, budget.ErrExhausted)
		}
		stop := w.daemon(false)
		after(6*time.Hour + 13*time.Second) // within the hold's lease
		stop()
		check.EqualSlices(t, w.history(), []string{"6h0m0s succeeded"}, "history")
		check.Equal(t, left[0], "[14 for trending]", "held during the first call")
		check.Equal(t, left[11], "[3 for trending]", "held during the last call")
		check.Equal(t, len(w.heldNow()), 0, "holds after the pass")
		check.Equal(t, w.used(), 12, "used")
	})
}

// A pass whose needs do not fit is not started, and costs nothing.
func TestAPassThatCannotHoldItsNeeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		upstream := &recorded{}
		w := newWorld(t, setup{upstream: upstream, limit: 16, job: holding + "hold = true"})
		w.spend(5)
		pass := w.once()
		check.EqualSlices(t, outcomes(pass), []string{"US exhausted hold", "GB skipped exhausted", "DE skipped exhausted"}, "runs")
		check.Equal(t, pass.Outcome, Exhausted)
		check.Equal(t, pass.Reason, ReasonHold)
		check.Equal(t, upstream.count(), 0, "requests")
		check.Equal(t, w.used(), 5, "used")
		w.nextIs("US")
		after(24*time.Hour - 20*time.Second) // the units return within max_wait
		w.succeeds()
	})
}

// A limit of a shorter window than the pass counts no hold: there must be room in it all the
// same before a run starts.
func TestAHoldBesideAShortLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		upstream := &recorded{}
		w := newWorld(t, setup{upstream: upstream, limit: 16, job: holding + "hold = true\nmax_wait = \"0s\"", more: "[upstream.youtube.limit.burst]\nlimit = 4\nwindow = \"1m\""})
		pass := w.once()
		check.EqualSlices(t, outcomes(pass), []string{"US succeeded", "GB exhausted limit", "DE skipped exhausted"}, "runs")
		check.Equal(t, pass.Runs[1].Started.IsZero(), true, "GB was not started")
		check.Equal(t, upstream.count(), 4, "requests")
		check.Equal(t, len(w.heldNow()), 0, "holds after the pass")
	})
}

// With hold = "run" each region holds its needs before it starts, so no region is cut.
func TestARunHoldsItsNeeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		upstream := &patient{recorded: &recorded{}, wait: time.Second}
		w := newWorld(t, setup{upstream: upstream, limit: 16, job: strings.Replace(holding, "4 }", "5 }", 1) + "hold = \"run\""})
		upstream.Handler = w.sandbox
		w.spend(5)
		held := map[string]bool{}
		upstream.each = func() { held[fmt.Sprint(w.heldNow())] = true }
		pass := w.once()
		check.EqualSlices(t, outcomes(pass), []string{"US succeeded", "GB succeeded", "DE exhausted hold"}, "runs")
		check.Equal(t, held["[4 for trending US]"] && held["[4 for trending GB]"], true, held)
		check.Equal(t, len(w.heldNow()), 0, "holds after the pass")
		check.Equal(t, w.used(), 13, "used")
	})
}

// A deferred pass that holds its needs goes on once all of them are there, not before.
func TestADeferredPassHoldsItsNeeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		upstream := &recorded{}
		w := newWorld(t, setup{upstream: upstream, limit: 16, job: strings.Replace(holding, "* * *", "* * 6", 1) + "hold = true\non_exhausted = \"defer\"\nmax_late = \"100h\""})
		for range 3 { // 3 return at 24h, at 25h and at 26h
			w.spend(3)
			after(time.Hour)
		}
		stop := w.daemon(false)
		after(9 * time.Hour)
		check.EqualSlices(t, w.deferredText(), []string{"6h0m0s/2 until 25h0m0s: US GB DE"}, "deferred")
		check.EqualSlices(t, w.history(), []string{"6h0m0s exhausted deferred"}, "history")
		after(12*time.Hour + 30*time.Minute)
		w.spend(3) // so that there is room for two regions at 25h, and for all at 26h
		after(12 * time.Hour)
		stop()
		check.EqualSlices(t, upstream.starts(), []string{"US 26h0m0s", "GB 26h0m0s", "DE 26h0m0s"}, "starts")
		check.EqualSlices(t, w.history(), []string{"6h0m0s succeeded"}, "history")
		check.Equal(t, w.records()[0].Parts, 2, "parts")
	})
}

// An interrupted pass holds, to go on, only what its cut regions have left from their
// checkpoints.
func TestACutPassHoldsWhatIsLeft(t *testing.T) {
	t.Parallel()
	for _, hold := range []string{"true", `"run"`} {
		inBubble(t, hold, func(t *testing.T) {
			upstream := &recorded{}
			job := strings.NewReplacer("* * *", "* * 6", "4 }", "3 }").Replace(holding)
			w := newWorld(t, setup{upstream: upstream, limit: 16, job: job + "hold = " + hold + "\non_exhausted = \"defer\"\nmax_late = \"100h\"\ncheckpoint = \"100h\""})
			w.spend(1) // it returns at 24h, the others at 25h
			after(time.Hour)
			w.spend(4)
			stop := w.daemon(false)
			after(6 * time.Hour)
			check.EqualSlices(t, upstream.starts(), []string{"US 6h0m0s", "GB 6h0m0s", "DE 6h0m0s"}, "starts")
			check.EqualSlices(t, w.deferredText(), []string{"6h0m0s/2 until 24h0m0s: DE"}, "deferred")
			after(24 * time.Hour)
			stop()
			check.EqualSlices(t, w.history(), []string{"6h0m0s succeeded"}, "history")
			record := w.records()[0]
			check.Equal(t, record.Runs[2].Ended.Sub(midnight), 24*time.Hour, "end of what was cut")
			check.Equal(t, record.Runs[2].Pages, 4, "its pages")
		})
	}
}

// The needs of a job that has neither needs nor a bound are learned; until then a reload
// cannot have let it hold anything, so its pass fails.
func TestAHoldOfUnknownNeeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: "regions = [\"US\"]"})
		w.list[0].Hold = HoldPass
		pass := w.once()
		check.EqualSlices(t, outcomes(pass), []string{"US failed hold"}, "runs")
		w.list[0].Hold = HoldNone
		for range 5 {
			w.succeeds()
			after(time.Minute)
		}
		w.list[0].Hold = HoldPass
		w.succeeds()
	})
}

// If its daemon no longer reaches the store, a pass loses its hold with its claim's lease.
func TestADeadPassLosesItsHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		upstream := &patient{recorded: &recorded{}, wait: 6 * time.Hour}
		w := newWorld(t, setup{upstream: upstream, limit: 16, job: holding + "hold = true\ntimeout = \"7h\""})
		upstream.Handler = w.sandbox
		cut := &severed{Store: w.store}
		w.spendOn(cut)
		w.options.State = cut
		ctx, kill := context.WithCancel(t.Context())
		r, done := w.runner(), make(chan error, 1)
		go func() { done <- r.Run(ctx, nil, false) }()
		held := func() int {
			return len(must.Get(w.store.Look(t.Context(), driver.Look{Budget: "youtube/key1", Now: time.Now().UnixMicro()}))(t).Holds)
		}
		after(8 * time.Hour)
		must.Equal(t, held(), 1, "holds while it runs")
		cut.off.Store(true)
		after(2 * DefaultHeartbeat)
		must.Equal(t, held(), 1, "holds within the lease")
		after(2 * DefaultHeartbeat)
		check.Equal(t, held(), 0, "holds once the lease has ended")
		kill()
		check.Is(t, <-done, context.Canceled)
	})
}

// severed is a store that can be cut off.
type severed struct {
	*memstore.Store
	off atomic.Bool
}

func (s *severed) unavailable() error {
	if s.off.Load() {
		return budget.ErrUnavailable
	}
	return nil
}

func (s *severed) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	if err := s.unavailable(); err != nil {
		return driver.Decisions{}, err
	}
	return s.Store.Decide(ctx, b)
}

func (s *severed) Change(ctx context.Context, c driver.Change) (driver.Changed, error) {
	if err := s.unavailable(); err != nil {
		return nil, err
	}
	return s.Store.Change(ctx, c)
}

func (s *severed) SwapJob(ctx context.Context, c driver.JobSwap) (bool, error) {
	if err := s.unavailable(); err != nil {
		return false, err
	}
	return s.Store.SwapJob(ctx, c)
}
