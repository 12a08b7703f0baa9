package jobs

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

const deferredFrom6 = "schedule = \"0 6 * * 6\"\nregions = [\"US\"]\nmax_late = \"200h\""

// reserved reserves units of the herd's budget for almost a day.
func (h *herd) reserved(units int64) *budget.Reservation {
	h.t.Helper()
	return must.Get(h.options.Budgets["youtube/key1"].Reserve(h.t.Context(), budget.Call{Operation: "videos.list", Units: &units}, 23*time.Hour+59*time.Minute))(h.t)
}

// Units that come back early while the upstream's slots are taken are found once one is free.
func TestUnitsThatComeBackWhileTheSlotsAreFull(t *testing.T) {
	t.Parallel()
	for _, busy := range []time.Duration{0, 3 * time.Minute} {
		inBubble(t, busy.String(), func(t *testing.T) {
			h := newHerd(t, setup{limit: 10, job: "schedule = \"@yearly\""}, deferredFrom6, "one")
			for _, j := range h.list {
				j.BudgetParallel = 1
			}
			open := h.reserved(10)
			h.begin()
			after(8 * time.Hour)
			check.Equal(t, len(h.begun()), 0, "starts")
			free := func() {}
			if busy > 0 {
				free = h.busy()
			}
			must.Do(t, open.Release(t.Context()))
			after(busy)
			free()
			after(20 * time.Hour)
			h.beganWithin(time.Minute+time.Second, "one-US", 8*time.Hour+busy)
			h.stopAll()
		})
	}
}

// Units that come back early while another pass of the job is under way are found once that
// has ended.
func TestUnitsThatComeBackDuringAnotherPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHerd(t, setup{limit: 10, job: "schedule = \"@yearly\""}, deferredFrom6+"\ntimeout = \"1h\"\nneeds = { \"videos.list\" = 3 }", "one")
		h.takes = func() time.Duration { return 8 * time.Minute }
		open := h.reserved(8)
		h.begin()
		after(8*time.Hour + 20*time.Second)
		check.Equal(t, len(h.begun()), 0, "starts")
		must.Do(t, open.Release(t.Context()))
		must.Get(Trigger(t.Context(), h.store, h.list[1], nil, ""))(t)
		after(5 * time.Minute)
		check.Equal(t, len(h.begun()), 1, "starts of the triggered pass")
		after(20 * time.Hour)
		h.beganWithin(time.Minute+time.Second, "one-US", 8*time.Hour+8*time.Minute+20*time.Second)
		h.stopAll()
	})
}

// Units that come back early just before the store fails are found once it answers.
func TestUnitsThatComeBackBeforeAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHerd(t, setup{limit: 10, job: "schedule = \"@yearly\""}, deferredFrom6, "one")
		o := &storeOutage{Store: h.store}
		open := h.reserved(10)
		h.options.Budgets["youtube/key1"] = must.Get(budget.New(o, h.options.Budgets["youtube/key1"].Spec()))(t)
		h.begin()
		after(8 * time.Hour)
		must.Do(t, open.Release(t.Context()))
		o.armed.Store(true)
		after(12 * time.Hour)
		h.beganWithin(2*time.Minute, "one-US", 8*time.Hour)
		h.stopAll()
	})
}

// storeOutage begins after the first look once it is armed, and lasts ten seconds.
type storeOutage struct {
	driver.Store
	armed atomic.Bool
	until atomic.Int64
}

func (o *storeOutage) Look(ctx context.Context, q driver.Look) (driver.View, error) {
	v, err := o.Store.Look(ctx, q)
	if o.armed.CompareAndSwap(true, false) {
		o.until.Store(time.Now().Add(10 * time.Second).UnixMicro())
		return v, err
	}
	if time.Now().UnixMicro() < o.until.Load() {
		return driver.View{}, errFails
	}
	return v, err
}

func (o *storeOutage) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	if time.Now().UnixMicro() < o.until.Load() {
		return driver.Decisions{}, errFails
	}
	return o.Store.Decide(ctx, b)
}

// What comes back after a pass has gone on is found, also if it is no more than there was before
// that.
func TestUnitsThatComeBackAfterAnotherHasGoneOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHerd(t, setup{limit: 10, job: "schedule = \"@yearly\""}, deferredFrom6, "a", "b")
		h.list[1].Needs, h.list[2].Needs = budget.Needs{"videos.list": 3}, budget.Needs{"videos.list": 6}
		h.list[2].Schedule, h.pages = parsed(t, "0 7 * * 6", "UTC"), 3
		six, three := h.reserved(6), h.reserved(3)
		h.reserved(1)
		h.begin()
		after(8 * time.Hour)
		must.Do(t, six.Release(t.Context()))
		after(90 * time.Second)
		h.beganWithin(time.Minute+time.Second, "a-US", 8*time.Hour)
		must.Do(t, three.Release(t.Context()))
		after(2 * time.Minute)
		h.beganWithin(time.Minute+time.Second, "b-US", 8*time.Hour+90*time.Second)
		h.stopAll()
	})
}

// A reload that lets a deferred pass fit is noticed within a minute.
func TestAReloadThatLetsADeferredPassFit(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"floor", "needs"} {
		inBubble(t, what, func(t *testing.T) {
			upstream := &recorded{}
			lines := "\nfloor = 8"
			if what == "needs" {
				lines = "\nneeds = { \"videos.list\" = 9 }"
			}
			w := newWorld(t, setup{upstream: upstream, limit: 10, job: strings.Replace(deferring, `"US", "GB", "DE"`, `"US"`, 1) + lines})
			after(time.Hour)
			w.spend(3)
			r := w.runner()
			drain, done := make(chan struct{}), make(chan error, 1)
			go func() { done <- r.Run(t.Context(), drain, false) }()
			after(7*time.Hour + 20*time.Second)
			check.EqualSlices(t, w.history(), []string{"6h0m0s exhausted deferred"}, "history")
			j := *w.list[0]
			j.Floor, j.Needs, j.stated = 0, budget.Needs{"videos.list": 1}, nil
			check.NoError(t, r.Reload([]*Job{&j}, w.options.Budgets))
			after(5 * time.Minute)
			check.EqualSlices(t, w.history(), []string{"6h0m0s succeeded"}, "history")
			close(drain)
			check.NoError(t, <-done)
		})
	}
}

// A part that lost its units in the moment after the look is looked at early again.
func TestADeferredPassThatLostARace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHerd(t, setup{limit: 10, job: "schedule = \"@yearly\""}, deferredFrom6, "one")
		open := h.reserved(10)
		var other *budget.Reservation
		h.options.State = afterSwap{h.store, func(swap driver.JobSwap) {
			if other == nil && strings.Contains(string(swap.Text), `"before":`) { // the pass is claimed
				other = h.reserved(10)
			}
		}}
		r := must.Get(New(h.list, h.options))(t)
		drain, done := make(chan struct{}), make(chan error, 1)
		go func() { done <- r.Run(t.Context(), drain, false) }()
		after(8 * time.Hour)
		must.Do(t, open.Release(t.Context()))
		after(2 * time.Hour)
		check.Equal(t, len(h.begun()), 0, "starts")
		must.Do(t, other.Release(t.Context()))
		after(12 * time.Hour)
		h.beganWithin(time.Minute+time.Second, "one-US", 10*time.Hour)
		close(drain)
		check.NoError(t, <-done)
	})
}

// afterSwap calls do after each document that was replaced.
type afterSwap struct {
	State
	do func(driver.JobSwap)
}

func (a afterSwap) SwapJob(ctx context.Context, swap driver.JobSwap) (bool, error) {
	swapped, err := a.State.SwapJob(ctx, swap)
	if err == nil && swapped {
		a.do(swap)
	}
	return swapped, err
}
