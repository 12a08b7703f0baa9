package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/must"
)

// twoBuckets is the sliding counter that docs/not.md speaks of: two buckets of
// an hour, the earlier one weighed by how much of it is in the trailing hour.
type twoBuckets struct{ spent map[int]int64 }

// used is the estimate in a minute.
func (c twoBuckets) used(minute int) int64 {
	hour, into := minute/60, int64(minute%60)
	return c.spent[hour-1]*(60-into)/60 + c.spent[hour]
}

// The table of docs/not.md is what happens: the sliding counter lets more pass
// in one window than its limit, and a rolling limit does not.
func TestTwoBucketsOverspend(t *testing.T) {
	const most = 100
	midnight := time.Date(2026, 6, 10, 0, 0, 0, 0, time.UTC)
	now := midnight
	exact := must.Get(budget.New(memstore.New(func() int64 { return now.UnixMicro() }), budget.Spec{
		Name:   "shop/main",
		Limits: []limit.Limit{{Name: "hourly", Limit: most, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)}},
		Costs:  map[string]budget.Cost{"orders.get": {Units: 1}},
	}, budget.WithNow(func() time.Time { return now })))(t)

	counter, passed := twoBuckets{map[int]int64{}}, map[int]int64{}
	table, worst := "", int64(0)
	for _, minute := range []int{59, 90, 118} {
		estimate := counter.used(minute)
		let := most - estimate
		counter.spent[minute/60] += let
		passed[minute] = let
		truly := int64(0)
		for at, units := range passed {
			if at > minute-60 {
				truly += units
			}
		}
		table += fmt.Sprintf("| %02d:%02d | %d | %d | %d |\n", minute/60, minute%60, estimate, let, truly)
		worst = max(worst, truly)

		now = midnight.Add(time.Duration(minute) * time.Minute)
		_, err := exact.Charge(t.Context(), budget.Call{Operation: "orders.get", Units: &let})
		var refused *budget.RefusedError
		switch {
		case minute == 59:
			must.Do(t, err)
		case !errors.As(err, &refused) || !errors.Is(err, budget.ErrExhausted) || !refused.RetryAt.Equal(midnight.Add(119*time.Minute)):
			t.Errorf("minute %d: %v, want exhausted until 01:59", minute, err)
		}
	}
	if worst <= most {
		t.Errorf("the counter let %d pass in an hour", worst)
	}
	if !strings.Contains(documents(t)["docs/not.md"], table) {
		t.Errorf("docs/not.md does not have what happens:\n%s", table)
	}
}
