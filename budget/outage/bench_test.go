package outage_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/outage"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
	"github.com/quotactl/quotactl/internal/storetest"
)

// BenchmarkMemory compares charges through the host's side, which notices what the
// store loses, with charges that go to the store itself, turn by turn in one run:
// on budgets of one kind, on one server or in files beside each other.
func BenchmarkMemory(b *testing.B) {
	server := redistest.Start(b)
	stores := map[string]func(b *testing.B) driver.Store{
		"Redis": func(b *testing.B) driver.Store {
			return must.Get(redisstore.Open(b.Context(), server.URL(0), redisstore.Options{Timeout: time.Minute}))(b)
		},
		"SQLite": func(b *testing.B) driver.Store {
			return must.Get(sqlitestore.Open(b.Context(), filepath.Join(b.TempDir(), "q.db"), sqlitestore.Options{Timeout: time.Minute}))(b)
		},
	}
	for kind, open := range stores {
		for _, limits := range []int{1, 3} {
			for _, goroutines := range []int{1, 16, 64} {
				b.Run(fmt.Sprintf("%s/limits=%d/goroutines=%d", kind, limits, goroutines), func(b *testing.B) {
					alone := benchBudget(b, "up/alone", open(b), limits)
					hosted := benchBudget(b, "up/hosted", outage.New(open(b), outage.Options{Dir: b.TempDir(), Timeout: time.Minute}), limits)
					storetest.Compare(b, goroutines, charging(hosted), charging(alone))
				})
			}
		}
	}
}

func charging(bud *budget.Budget) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := bud.Charge(ctx, budget.Call{Operation: "op"})
		return err
	}
}

func benchBudget(b *testing.B, name string, store driver.Store, limits int) *budget.Budget {
	spec := budget.Spec{Name: name, Costs: map[string]budget.Cost{"op": {Units: 1}}, Timeout: time.Minute}
	for i := range limits {
		spec.Limits = append(spec.Limits, limit.Limit{
			Name: fmt.Sprint("l", i), Limit: limit.MaxUnits, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Duration(i+1) * time.Hour),
		})
	}
	bud := must.Get(budget.New(store, spec, budget.WithClosers(store)))(b)
	b.Cleanup(func() { check.NoError(b, bud.Close()) })
	return bud
}
