package budget_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/must"
)

// driftWorld is a budget of one limit.
func driftWorld(t *testing.T, l limit.Limit) *budget.Budget {
	t.Helper()
	l.Name, l.Quota, l.Limit, l.Counts = "all", 100, 100, limit.CountUnits
	b := must.Get(budget.New(memstore.New(func() int64 { return time.Now().UnixMicro() }), budget.Spec{
		Name: "up/key1", Costs: map[string]budget.Cost{"list": {Units: 1}}, Limits: []limit.Limit{l},
	}))(t)
	return b
}

// Whatever an upstream says, a bucket drains in twice the time of its quota.
func TestReportIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refill := must.Get(limit.NewRefill(1, time.Second))(t)
		b := driftWorld(t, limit.Limit{Window: limit.BucketWindow(refill)})
		for _, n := range []int64{-1 << 63, -1 << 50, -101} {
			must.Get(b.Report(context.Background(), budget.UpstreamReport{Limit: "all", Remaining: &n}))(t)
			n = -(n + 1)
			must.Get(b.Report(context.Background(), budget.UpstreamReport{Limit: "all", Used: &n}))(t)
		}
		if _, err := b.Charge(context.Background(), budget.Call{Operation: "list"}); err == nil {
			t.Fatal("charged, though the upstream says that nothing remains")
		}
		<-time.After(101 * time.Second)
		must.Get(b.Charge(context.Background(), budget.Call{Operation: "list"}))(t)
	})
}

// An upstream whose clock is behind still tells of the day before when ours has
// begun a new one: its reset says so.
func TestReportOfTheDayBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		day := must.Get(limit.NewCalendar(limit.Day, "UTC", 0))(t)
		b := driftWorld(t, limit.Limit{Window: limit.CalendarWindow(day)})
		midnight := time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
		report := func(reset budget.Until, want int64) {
			t.Helper()
			used := int64(95)
			d := must.Get(b.Report(context.Background(), budget.UpstreamReport{Limit: "all", Used: &used, Reset: reset}))(t)
			must.Equal(t, d.Added, want, "reset", reset)
		}
		<-time.After(time.Until(midnight.Add(time.Second)))
		report(budget.Until{At: midnight.Add(3 * time.Second)}, 0)
		report(budget.Until{After: 2 * time.Second}, 0)
		report(budget.Until{At: time.UnixMicro(-1 << 63)}, 0)
		report(budget.Until{At: time.UnixMicro(1<<63 - 1)}, 95)
		<-time.After(time.Until(midnight.Add(24*time.Hour - time.Second)))
		report(budget.Until{At: midnight.Add(24*time.Hour + 3*time.Second)}, 0)
		<-time.After(time.Second)
		must.Get(b.Charge(context.Background(), budget.Call{Operation: "list"}))(t)
		report(budget.Until{At: midnight.Add(48 * time.Hour)}, 94)
	})
}
