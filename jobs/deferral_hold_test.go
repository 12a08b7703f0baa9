package jobs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs/needs"
)

// stormy are thirty jobs that need three units each, of 32 that return at 24h.
func stormy(t *testing.T, lines string) (h *herd, names []string) {
	t.Helper()
	for i := range 30 {
		names = append(names, fmt.Sprintf("job%02d", i))
	}
	h = newHerd(t, setup{limit: 32, job: "schedule = \"@yearly\""}, "schedule = \"50 23 * * 6\"\nregions = [\"US\"]\nmax_late = \"100h\"\n"+lines, names...)
	h.pages = 3
	h.takes = func() time.Duration { return 10 * time.Second }
	return h, names
}

// A pass that goes on holds what its run needs, also where the job holds nothing: those that
// go on at a reset do not take each other's units, and their order is kept.
func TestDeferredPassesDoNotStorm(t *testing.T) {
	t.Parallel()
	for what, lines := range map[string]string{"configured": "needs = { \"videos.list\" = 3 }", "learned": ""} {
		inBubble(t, what, func(t *testing.T) {
			h, names := stormy(t, lines)
			if what == "learned" {
				h.learn(names, 3)
			}
			h.spend(32)
			after(23*time.Hour + 45*time.Minute)
			h.begin()
			h.begin()
			after(2*time.Hour - 15*time.Minute)
			begun := h.begun()
			slices.Sort(begun)
			var want []string
			for _, name := range names[:10] {
				want = append(want, name+"-US 24h0m0s")
			}
			check.EqualSlices(t, begun, want, "starts")
			check.Equal(t, h.used(), 30, "used")
			check.Equal(t, len(h.heldNow()), 0, "holds")
			for _, j := range h.list[11:] { // of trending and ten jobs no pass waits
				waits := must.Get(Look(t.Context(), h.store, []*Job{j}))(t)[0].Deferred
				if len(waits) != 1 || waits[0].Part != 2 {
					t.Errorf("of %s wait %+v, want part 2", j.Name, waits)
				}
			}
			h.stopAll()
			for _, name := range names[:10] {
				list := h.recordsOf(name)
				check.EqualSlices(t, list[len(list)-1:], []string{"23h50m0s succeeded"}, "records of", name)
			}
		})
	}
}

// learn gives jobs records of five complete runs of so many units, of the days before.
func (h *herd) learn(names []string, units int64) {
	h.t.Helper()
	for _, name := range names {
		swap := driver.JobSwap{Job: name, Text: []byte("{}"), Most: maxHistory}
		for day := range 5 {
			at := midnight.AddDate(0, 0, -day-1)
			record := Record{Tick: Instant{at}, Kind: Scheduled, Outcome: Succeeded, Runs: []Run{took("US", Succeeded, units)}}
			swap.Records = append(swap.Records, driver.JobRecord{At: at.UnixMicro(), ID: at.String(), Text: record.json()})
		}
		must.Equal(h.t, must.Get(h.store.SwapJob(h.t.Context(), swap))(h.t), true, "the records are kept")
	}
}

// When a pass ends that held more than it spent, another, deferred pass goes on within a
// second, whether it needs one call or several.
func TestADeferredPassGoesOnWhenAHoldEndsEarly(t *testing.T) {
	t.Parallel()
	for _, calls := range []int64{1, 20} {
		inBubble(t, fmt.Sprint(calls), func(t *testing.T) {
			h := newHerd(t, setup{limit: 30, job: "schedule = \"@yearly\""}, "schedule = \"@daily\"\nregions = [\"US\"]\nneeds = { \"videos.list\" = 30 }\ntimeout = \"3h\"", "long", "late")
			long, late := h.list[1], h.list[2]
			long.Schedule, late.Schedule = parsed(t, "0 6 * * 6", "UTC"), parsed(t, "5 6 * * 6", "UTC")
			long.Hold = HoldPass
			late.Needs = budget.Needs{"videos.list": calls}
			late.stated = []needs.Amount{{Operation: "videos.list", Units: calls, Calls: calls}}
			h.takes = func() time.Duration { return 100 * time.Minute }
			h.begin()
			after(6*time.Hour + time.Minute)
			h.begin()
			after(time.Hour)
			check.EqualSlices(t, h.begun(), []string{"long-US 6h0m0s"}, "starts")
			check.EqualSlices(t, h.recordsOf("late"), []string{"6h5m0s exhausted deferred"}, "history")
			after(2 * time.Hour)
			h.beganWithin(time.Second, "late-US", 7*time.Hour+40*time.Minute)
			after(time.Hour)
			check.EqualSlices(t, h.recordsOf("late"), []string{"6h5m0s succeeded"}, "history")
			h.stopAll()
		})
	}
}

// beganWithin holds the only start since the last look to a name and an instant, after which
// it may come so late.
func (h *herd) beganWithin(late time.Duration, name string, at time.Duration) {
	h.t.Helper()
	begun := h.begun()
	if len(begun) == 1 {
		if got, since := h.start(begun[0]); got == name && since >= at && since <= at+late {
			return
		}
	}
	h.t.Errorf("starts %v, want %s at %s, or %s later at most", begun, name, at, late)
}

// start takes a line of begun apart.
func (h *herd) start(line string) (name string, since time.Duration) {
	h.t.Helper()
	name, text, _ := strings.Cut(line, " ")
	return name, must.Get(time.ParseDuration(text))(h.t)
}

// A pass whose job holds nothing is not kept by what cannot be held when it goes on: needs
// that never fit, and more holds than a ledger keeps.
func TestADeferredPassGoesOnWithoutAHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var names []string
		for i := range driver.MaxHolds + 6 {
			names = append(names, fmt.Sprintf("job%02d", i))
		}
		h := newHerd(t, setup{limit: 100, job: "schedule = \"@yearly\""}, "schedule = \"50 23 * * 6\"\nregions = [\"US\"]\n", names...)
		h.learn(names[:1], 101)
		h.learn(names[1:], 1)
		h.spend(100)
		h.takes = func() time.Duration { return 10 * time.Second }
		after(23*time.Hour + 45*time.Minute)
		h.begin()
		after(15*time.Minute + time.Second)
		check.Equal(t, len(h.begun()), len(names), "starts in the second after the units are back")
		after(time.Minute)
		h.stopAll()
		for _, name := range names {
			list := h.recordsOf(name)
			check.Equal(t, list[len(list)-1], "23h50m0s succeeded", "record of", name)
		}
	})
}

// unheardHolds is a store whose answers to holds are lost.
type unheardHolds struct{ driver.Store }

func (s unheardHolds) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	d, err := s.Store.Decide(ctx, b)
	if slices.ContainsFunc(b.Items, func(i driver.Item) bool { return i.IsHold() && !i.DryRun }) {
		return driver.Decisions{}, errFails
	}
	return d, err
}

// A hold that may have been made when the store did not answer is ended at once, not when its
// lease ends.
func TestAHoldWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	for _, hold := range []string{"true", `"run"`} {
		inBubble(t, hold, func(t *testing.T) {
			w := newWorld(t, setup{job: holding + "hold = " + hold})
			w.spendOn(unheardHolds{w.store})
			p := w.once()
			check.Equal(t, p.Outcome, Failed, "outcome")
			check.Equal(t, len(w.heldNow()), 0, "holds after the pass")
			check.Equal(t, w.used(), 0, "used")
		})
	}
}
