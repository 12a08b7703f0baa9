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

// The turn lasts until the pass that goes on holds what it needs, also where claim and hold take
// most of a second together: no other daemon has the next pass go on with the same units.
func TestATurnLastsUntilThePassHolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHerd(t, setup{limit: 10, job: "schedule = \"@yearly\""}, "regions = [\"US\"]\nschedule = \"@daily\"\nmax_late = \"200h\"", "a", "b")
		h.list[1].Schedule, h.list[2].Schedule = parsed(t, "0 6 * * 6", "UTC"), parsed(t, "0 7 * * 6", "UTC")
		h.list[1].Needs = budget.Needs{"videos.list": 10}
		h.list[1].Hold, h.list[1].stated = HoldPass, []needs.Amount{{Operation: "videos.list", Units: 10, Calls: 10}}
		h.pages = 10
		h.spend(10)
		h.options.Budgets["youtube/key1"] = must.Get(budget.New(slowHolds{h.store}, h.options.Budgets["youtube/key1"].Spec()))(t)
		h.options.State = afterSwap{h.store, func(swap driver.JobSwap) {
			if swap.Job == "a" && strings.Contains(string(swap.Text), `"before":`) {
				after(400 * time.Millisecond)
			}
		}}
		drain := make(chan struct{})
		var done []chan error
		for range 2 {
			r, one := must.Get(New(h.list, h.options))(t), make(chan error, 1)
			go func() { one <- r.Run(t.Context(), drain, false) }()
			done = append(done, one)
		}
		after(24*time.Hour + 10*time.Minute)
		for line := range strings.Lines(h.log.String()) {
			if strings.Contains(line, "a deferred pass goes on") && strings.Contains(line, "job=b") {
				t.Errorf("b goes on although a has all units: %s", line)
			}
		}
		close(drain)
		for _, one := range done {
			check.NoError(t, <-one)
		}
	})
}

// The runs of a pass do not stand behind the deferred passes that come after it, whether it was
// deferred itself or not: these do not take the slots that it waits for.
func TestRunsThatWaitForASlotComeFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		names := []string{"vip", "late"}
		for i := range 30 {
			names = append(names, fmt.Sprintf("a%02d", i))
		}
		h := newHerd(t, setup{limit: 1000, job: "schedule = \"@yearly\"", more: `
[upstream.youtube.share.most]
jobs = ["vip", "late"]
units = 10`}, "regions = [\"US\"]\nschedule = \"50 23 * * 6\"\nmax_late = \"200h\"", names...)
		for _, j := range h.list {
			j.BudgetParallel = 2
		}
		h.list[1].Regions = []string{"R0", "R1", "R2", "R3", "R4"}
		h.list[2].Regions, h.list[2].Schedule = []string{"R0", "R1"}, parsed(t, "1 0 * * 0", "UTC")
		h.takes = func() time.Duration { return 5 * time.Second }
		h.spend(990)
		must.Get(h.options.Budgets["youtube/key1"].Charge(t.Context(), budget.Call{Operation: "videos.list", Units: new(int64(10)), Labels: budget.Labels{Job: "vip"}}))(t)
		after(23*time.Hour + 45*time.Minute)
		for range 3 {
			h.begin()
		}
		after(time.Hour)
		h.stopAll()
		begun := h.begun()
		must.Equal(t, len(begun), 5+2+30, "starts")
		for place, line := range begun {
			name, since := h.start(line)
			// A region waits only once the one before it has its slot, so one other pass may begin
			// before each of R2, R3 and R4.
			if strings.HasPrefix(name, "vip-") && place > 4+3 {
				t.Errorf("%s is number %d of those that go on", name, place+1)
			}
			if latest := 24*time.Hour + time.Minute + 16*time.Second; strings.HasPrefix(name, "late-") && since > latest {
				t.Errorf("%s ticked at 24h1m0s and starts at %s", name, since)
			}
		}
	})
}

// slowHolds takes long for a hold.
type slowHolds struct{ driver.Store }

func (s slowHolds) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	if slices.ContainsFunc(b.Items, func(i driver.Item) bool { return i.IsHold() && !i.DryRun }) {
		after(300 * time.Millisecond)
	}
	return s.Store.Decide(ctx, b)
}
