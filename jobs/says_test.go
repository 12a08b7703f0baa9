package jobs

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
)

// watched tells which items come to the store.
type watched struct {
	driver.Store
	items []driver.Item
}

func (w *watched) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	w.items = append(w.items, b.Items...)
	return w.Store.Decide(ctx, b)
}

// The look before a run and the charges of a fetch carry what the job says, also where
// the budget was opened with a configuration in which it says something else.
func TestAFetchChargesAsItsJobSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion + "\nfloor = 60\non_store_error = \"open\""})
		store := &watched{Store: w.store}
		spec := w.options.Budgets["youtube/key1"].Spec()
		spec.Jobs = map[string]budget.JobSays{"trending": {Floor: 3, OnStoreError: budget.Closed}}
		b, err := budget.New(store, spec)
		if err != nil {
			t.Fatal(err)
		}
		w.options.Budgets = map[string]*budget.Budget{"youtube/key1": b}
		if pass := w.once(); pass.Outcome != Succeeded {
			t.Fatalf("%+v", pass)
		}
		charges := 0
		for _, item := range store.items {
			if item.Floor != 60 || !item.DryRun && item.OnStoreError != budget.Open {
				t.Errorf("%+v, want the job's floor and policy", item)
			}
			if !item.DryRun {
				charges++
			}
		}
		if charges != 4 {
			t.Errorf("%d charges, want one a page", charges)
		}
	})
}
