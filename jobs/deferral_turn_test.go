package jobs

import (
	"context"
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

// slowHolds takes long for a hold.
type slowHolds struct{ driver.Store }

func (s slowHolds) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	if slices.ContainsFunc(b.Items, func(i driver.Item) bool { return i.IsHold() && !i.DryRun }) {
		after(300 * time.Millisecond)
	}
	return s.Store.Decide(ctx, b)
}
