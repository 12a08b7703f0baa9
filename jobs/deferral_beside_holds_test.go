package jobs

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// holdsBeside has another pass hold units of videos.list for a while, and calls as well.
func (w *world) holdsBeside(fence, units int64, lease time.Duration) {
	w.t.Helper()
	as := budget.Call{Labels: budget.Labels{Job: "other"}, Fence: fence}
	must.Get(w.options.Budgets["youtube/key1"].Hold(w.t.Context(), as, []budget.Need{{Operation: "videos.list", Units: units, Calls: 1}}, time.Hour, lease))(w.t)
}

// If the upstream asks to wait, a deferred pass waits, although holds end that were in its way.
func TestADeferredPassWaitsAsTheUpstreamAsks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var starts []time.Duration
		upstream := http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
			if starts = append(starts, time.Since(midnight)); len(starts) > 1 {
				_, _ = out.Write([]byte("{}"))
				return
			}
			time.Sleep(time.Second) // in the bubble's time
			out.Header().Set("Retry-After", "7200")
			out.WriteHeader(http.StatusTooManyRequests)
		})
		w := newWorld(t, setup{upstream: upstream, limit: 16, job: "regions = [\"US\"]\nschedule = \"0 6 * * 6\"\non_exhausted = \"defer\"\nmax_late = \"100h\"\ncheckpoint = \"48h\"\nneeds = { \"videos.list\" = 4 }"})
		stop := w.daemon(false)
		after(6*time.Hour + 500*time.Millisecond)
		w.holdsBeside(7, 14, 5*time.Minute)
		after(4 * time.Hour)
		stop()
		check.EqualSlices(t, starts, []time.Duration{6 * time.Hour, 8*time.Hour + time.Second}, "requests")
		check.EqualSlices(t, w.history(), []string{"6h0m0s succeeded"}, "history")
	})
}

// Passes that hold although no configuration says so leave room for the holds of others.
func TestHoldsThatNobodyAskedForLeaveRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHerd(t, setup{limit: 1000, job: "schedule = \"@yearly\""}, "schedule = \"@yearly\"\nregions = [\"US\"]\nneeds = { \"videos.list\" = 1 }\nmax_late = \"100h\"\ntimeout = \"1h\"\n", "many", "nightly")
		many, nightly := h.list[1], h.list[2]
		many.Regions = nil
		for i := range driver.MaxHolds + 6 {
			many.Regions = append(many.Regions, fmt.Sprint("R", i))
		}
		many.Schedule, nightly.Schedule = parsed(t, "50 23 * * *", "UTC"), parsed(t, "3 0 * * *", "UTC")
		nightly.Hold, nightly.OnExhausted = HoldPass, StopExhausted
		h.takes = func() time.Duration { return 10 * time.Minute }
		after(time.Minute)
		h.spend(1000)
		after(23 * time.Hour)
		h.begin()
		after(75 * time.Minute)
		check.Equal(t, len(h.begun()), len(many.Regions)+1, "starts")
		check.EqualSlices(t, h.recordsOf("nightly"), []string{"24h3m0s succeeded"}, "history")
		h.stopAll()
	})
}

// A deferred pass that waits until fewer passes hold keeps no other pass waiting, and the
// store is not asked all the time.
func TestADeferredPassWaitsForAHold(t *testing.T) {
	effort.Unraced(t)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHerd(t, setup{limit: 1000, job: "schedule = \"@yearly\""}, "schedule = \"50 23 * * 6\"\nregions = [\"US\"]\nneeds = { \"videos.list\" = 1 }\nmax_late = \"100h\"\nmax_wait = \"1s\"\n", "aa", "ab", "ac", "ad", "ae", "af", "bb")
		for _, j := range h.list[1:7] {
			j.Hold = HoldRun
		}
		h.spend(1000)
		after(23*time.Hour + 45*time.Minute)
		h.begin()
		after(14 * time.Minute)
		for i := range int64(driver.MaxHolds) {
			h.holdsBeside(i+1, 0, 3*time.Hour)
		}
		after(2 * time.Hour)
		h.beganWithin(time.Second, "bb-US", 24*time.Hour)
		after(time.Hour + time.Minute)
		check.Equal(t, len(h.begun()), 6, "starts once the others hold no more")
		h.stopAll()
	})
}

// holdless is a store that refuses holds: as if it were away, or because it cannot take what
// they name.
type holdless struct {
	driver.Store
	with error
}

func (s holdless) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	for _, i := range b.Items {
		if i.IsHold() {
			return driver.Decisions{}, s.with
		}
	}
	return s.Store.Decide(ctx, b)
}

// A pass that goes on, of a job that holds nothing, fails for no hold.
func TestADeferredPassFailsForNoHold(t *testing.T) {
	t.Parallel()
	for name, priced := range map[string]bool{"the store is away": true, "an operation has no price any more": false} {
		inBubble(t, name, func(t *testing.T) {
			w := newWorld(t, setup{limit: 16, job: "regions = [\"US\"]\nschedule = \"0 6 * * 6\"\non_exhausted = \"defer\"\nmax_late = \"100h\"\non_store_error = \"open\""})
			h := &herd{world: w}
			h.learn([]string{"trending"}, 4)
			if priced {
				w.spendOn(holdless{w.store, errFails})
			} else {
				w.spendOn(holdless{w.store, fmt.Errorf("hold: %w", budget.ErrUnknownOperation)})
			}
			w.spend(16)
			stop := w.daemon(false)
			after(7 * time.Hour)
			check.EqualSlices(t, w.history()[5:], []string{"6h0m0s exhausted deferred"}, "history")
			after(18 * time.Hour)
			stop()
			check.EqualSlices(t, w.history()[5:], []string{"6h0m0s succeeded"}, "history")
		})
	}
}

// deafer loses the answers to a region's hold for five seconds, and meanwhile cannot end it.
type deafer struct {
	driver.Store
	until time.Time
}

func (s *deafer) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	d, err := s.Store.Decide(ctx, b)
	for _, i := range b.Items {
		if !i.IsHold() || i.Labels.Region != "GB" {
			continue
		}
		if s.until.IsZero() {
			s.until = time.Now().Add(5 * time.Second)
		}
		if time.Now().Before(s.until) {
			return driver.Decisions{}, errFails
		}
	}
	return d, err
}

func (s *deafer) Change(ctx context.Context, c driver.Change) (driver.Changed, error) {
	if time.Now().Before(s.until) {
		return nil, errFails
	}
	return s.Store.Change(ctx, c)
}

// forgetful loses the answer to the first hold of a region, and answers the second with an
// error that says nothing of it.
type forgetful struct {
	driver.Store
	asked int
}

func (s *forgetful) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	for _, i := range b.Items {
		if !i.IsHold() || i.Labels.Region != "GB" {
			continue
		}
		switch s.asked++; s.asked {
		case 1:
			_, _ = s.Store.Decide(ctx, b)
			return driver.Decisions{}, errFails
		case 2:
			return driver.Decisions{}, driver.ErrStoreConfig
		}
	}
	return s.Store.Decide(ctx, b)
}

// A hold that was not ended, or that may have been made, is not renewed with the others of the
// pass: it ends at the next heartbeat at the latest.
func TestAHoldThatCouldNotBeEnded(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		store func(driver.Store) driver.Store
		held  []string // once the pass has given up asking again
	}{
		"its end is tried again":        {func(s driver.Store) driver.Store { return &deafer{Store: s} }, []string{"3 for trending US", "4 for trending GB"}},
		"it is asked for again in vain": {func(s driver.Store) driver.Store { return &forgetful{Store: s} }, []string{"3 for trending US"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				upstream := slow(time.Hour, answering(http.StatusOK, "", "{}"))
				w := newWorld(t, setup{upstream: upstream, limit: 16, job: "regions = [\"US\", \"GB\"]\nschedule = \"0 6 * * 6\"\ntimeout = \"3h\"\nneeds = { \"videos.list\" = 4 }\nhold = \"run\""})
				w.spendOn(test.store(w.store))
				stop := w.daemon(false)
				after(6*time.Hour + 4*time.Second)
				check.EqualSlices(t, w.heldNow(), test.held, "holds")
				after(DefaultHeartbeat)
				check.EqualSlices(t, w.heldNow(), []string{"3 for trending US"}, "holds after a heartbeat")
				after(2 * time.Hour)
				stop()
				check.EqualSlices(t, outcomes(Pass{Record: w.records()[0]}), []string{"US succeeded", "GB failed store"}, "runs")
			})
		})
	}
}

// A process that knows no other job says all the same that its hold has ended.
func TestAHoldEndsInAProcessOfItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHerd(t, setup{limit: 30, job: "schedule = \"@yearly\""}, "schedule = \"5 6 * * 6\"\nregions = [\"US\"]\nneeds = { \"videos.list\" = 20 }\ntimeout = \"3h\"", "long", "late")
		long := h.list[1]
		long.Hold, long.OnExhausted = HoldPass, StopExhausted
		h.takes = func() time.Duration { return 100*time.Minute + 7*time.Second }
		alone, all := must.Get(New([]*Job{long}, h.options))(t), h.list
		h.list = all[2:]
		h.begin()
		after(6 * time.Hour)
		go alone.Once(t.Context(), nil)
		after(time.Hour)
		check.EqualSlices(t, h.begun(), []string{"long-US 6h0m0s"}, "starts")
		after(2 * time.Hour)
		h.beganWithin(time.Second, "late-US", 7*time.Hour+40*time.Minute+7*time.Second)
		h.stopAll()
	})
}

// A job of whose runs nothing is known goes on when a hold ends, also if its holder died.
func TestADeferredPassOfUnknownNeedsBesideAHold(t *testing.T) {
	t.Parallel()
	for _, used := range []int64{0, 1} {
		inBubble(t, fmt.Sprint(used), func(t *testing.T) {
			h := newHerd(t, setup{limit: 20, job: "schedule = \"@yearly\""}, "schedule = \"5 6 * * 6\"\nregions = [\"US\"]\nmax_late = \"100h\"\n", "late")
			h.list[1].Needs = budget.Needs{"": 1} // as of a command without needs
			h.begin()
			after(6 * time.Hour)
			if used > 0 {
				h.spend(used)
			}
			h.holdsBeside(7, 20-used, 10*time.Minute)
			after(time.Hour)
			h.beganWithin(time.Second, "late-US", 6*time.Hour+10*time.Minute)
			check.EqualSlices(t, h.recordsOf("late"), []string{"6h5m0s succeeded"}, "history")
			h.stopAll()
		})
	}
}
