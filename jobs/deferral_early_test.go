package jobs

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// The instant at which a refusal ends may pass while other regions of the pass still run: then
// what is left goes on at once when they end, and again after each part.
func TestADeferredPassThatOutlastsItsInstant(t *testing.T) {
	t.Parallel()
	for _, hold := range []string{"", "hold = \"run\"\n"} {
		inBubble(t, hold, func(t *testing.T) {
			h := newHerd(t, setup{limit: 2, job: "schedule = \"@yearly\""}, "schedule = \"0 6 * * 0\"\nregions = [\"US\", \"GB\", \"DE\", \"FR\"]\nstagger = \"1m\"\nneeds = { \"videos.list\" = 1 }\ntimeout = \"10m\"\nmax_late = \"200h\"\nmax_wait = \"0s\"\n"+hold, "one")
			b := must.Get(budget.New(h.store, within(20*time.Minute, h.options.Budgets["youtube/key1"].Spec())))(t)
			h.options.Budgets["youtube/key1"] = b
			h.takes = func() time.Duration { return 8 * time.Minute }
			after(29*time.Hour + 45*time.Minute)
			h.spend(1) // until 30h5m
			h.begin()
			after(3 * time.Hour)
			check.EqualSlices(t, h.begun(), []string{"one-US 30h0m0s", "one-GB 30h8m0s", "one-DE 30h28m0s", "one-FR 30h36m0s"}, "starts")
			check.EqualSlices(t, h.recordsOf("one"), []string{"30h0m0s succeeded"}, "history")
			h.stopAll()
		})
	}
}

// within is a budget whose only limit counts what is open or was spent in a window.
func within(window time.Duration, spec budget.Spec) budget.Spec {
	spec.Limits = slices.Clone(spec.Limits)
	spec.Limits[0].Window.Length = window.Microseconds()
	return spec
}

// Units that come back earlier than refusals knew are given in order: when the instant of one
// pass comes, those before it are looked at first.
func TestUnitsThatComeBackEarlyAreGivenInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHerd(t, setup{limit: 10, job: "schedule = \"@yearly\""}, "schedule = \"@daily\"\nregions = [\"US\"]\nmax_late = \"200h\"", "big", "small")
		h.list[1].Schedule, h.list[2].Schedule = parsed(t, "0 6 * * 6", "UTC"), parsed(t, "0 7 * * 6", "UTC")
		h.list[1].Needs = budget.Needs{"videos.list": 3}
		h.spend(2) // they return at 24h
		after(time.Hour)
		units := int64(8)
		open := must.Get(h.options.Budgets["youtube/key1"].Reserve(t.Context(), budget.Call{Operation: "videos.list", Units: &units}, 23*time.Hour+59*time.Minute))(t)
		h.begin()
		after(23*time.Hour - 10*time.Second)
		check.Equal(t, len(h.begun()), 0, "starts")
		must.Do(t, open.Release(t.Context()))
		after(time.Minute)
		check.EqualSlices(t, h.charged(), []string{"big", "small"}, "charges of")
		check.Equal(t, len(h.begun()), 2, "starts")
		h.stopAll()
	})
}

// A pass that ticks shortly before units return does not wait for them beside the deferred
// ones, but takes its place among them.
func TestAPassTakesItsPlaceAmongTheDeferred(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHerd(t, setup{limit: 10, job: "schedule = \"@yearly\""}, "schedule = \"@daily\"\nregions = [\"US\"]\nmax_late = \"200h\"", "z", "a")
		h.list[1].Schedule, h.list[2].Schedule = parsed(t, "0 23 * * 6", "UTC"), parsed(t, "0 0 * * 0", "UTC")
		after(20 * time.Second)
		h.spend(1)
		after(5 * time.Second)
		h.spend(9)
		h.begin()
		h.begin()
		after(24*time.Hour - 20*time.Second)
		check.EqualSlices(t, h.recordsOf("a"), []string{"24h0m0s exhausted deferred"}, "history at", time.Since(midnight))
		after(time.Minute)
		check.EqualSlices(t, h.charged(), []string{"z", "a"}, "charges of")
		check.EqualSlices(t, h.begun(), []string{"z-US 24h0m20s", "a-US 24h0m25s"}, "starts")
		h.stopAll()
	})
}

// Units that are released, and limits that are raised, are found within a minute.
func TestUnitsThatComeBackEarlyAreFound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHerd(t, setup{limit: 10, job: "schedule = \"@yearly\""}, "schedule = \"0 6 * * 6\"\nregions = [\"US\"]\nmax_late = \"200h\"", "one")
		units := int64(10)
		open := must.Get(h.options.Budgets["youtube/key1"].Reserve(t.Context(), budget.Call{Operation: "videos.list", Units: &units}, 23*time.Hour+59*time.Minute))(t)
		h.begin()
		after(8 * time.Hour)
		check.Equal(t, len(h.begun()), 0, "starts")
		must.Do(t, open.Release(t.Context()))
		after(2 * time.Minute)
		h.beganWithin(time.Minute, "one-US", 8*time.Hour)
		h.stopAll()
	})
}

// Passes that hold one after the other, and spend what they hold: those that wait go on when
// units are back, not when the holds would have ended.
func TestADeferredPassGoesOnWhenAHoldIsSpent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHerd(t, setup{limit: 6, job: "schedule = \"@yearly\""}, "schedule = \"0 6 * * 6\"\nregions = [\"US\"]\nneeds = { \"videos.list\" = 3 }\nhold = true\nmax_late = \"200h\"\nmax_wait = \"0s\"\ntimeout = \"10s\"\ngrace = \"1s\"", "a", "b", "c", "d")
		h.options.Budgets["youtube/key1"] = must.Get(budget.New(h.store, within(20*time.Second, h.options.Budgets["youtube/key1"].Spec())))(t)
		h.pages = 3
		h.takes = func() time.Duration { return time.Second }
		h.begin()
		after(7 * time.Hour)
		begun := h.begun()
		must.Equal(t, len(begun), 4, "starts")
		for i, line := range begun[2:] { // of six pages four are back after 22 seconds, all after 23
			first := 6*time.Hour + time.Duration(22+i)*time.Second
			if _, since := h.start(line); since < first || since > first+2*time.Second {
				t.Errorf("%s: want %s, or two seconds later at most", line, first)
			}
		}
		h.stopAll()
	})
}

// A pass that holds its needs looks in the limits that count no hold too, before it goes on.
func TestADeferredHoldBesideAShortLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		upstream := &recorded{}
		w := newWorld(t, setup{upstream: upstream, limit: 16, job: holding + "hold = true\nmax_wait = \"0s\"\non_exhausted = \"defer\"", more: "[upstream.youtube.limit.burst]\nlimit = 4\nwindow = \"1m\""})
		stop := w.daemon(false)
		after(6*time.Hour + 10*time.Minute)
		stop()
		h := &herd{world: w}
		for i, line := range upstream.starts() {
			first := 6*time.Hour + time.Duration(i)*time.Minute
			if _, since := h.start(line); since < first || since > first+time.Second {
				t.Errorf("%s: want %s, or a second later at most", line, first)
			}
		}
		check.Equal(t, upstream.count(), 12, "requests")
		check.EqualSlices(t, w.history(), []string{"6h0m0s succeeded"}, "history")
		check.Equal(t, w.records()[0].Parts, 3, "parts")
	})
}
