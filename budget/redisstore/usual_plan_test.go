package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// The script for the usual charge keeps what records say that a share still needs, from the
// charge on that comes after a record, and the whole guarantee when that has ended.
func TestUsualSharesPlanned(t *testing.T) {
	t.Parallel()
	f, _ := startFake(t)
	runs := countRuns(f.Store)
	limits := []limit.Limit{{
		Name: "day", Limit: 100, Counts: limit.CountUnits, Window: limit.RollingWindow(24 * time.Hour),
		Shares: []limit.Share{{Name: "nightly", Jobs: []string{"nightly"}, Guarantee: 60, Plan: true}},
	}}
	n := 0
	charge := func(job string, units int64) driver.Result {
		n++
		return must.Get(f.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: limits, Items: []driver.Item{
			{ID: fmt.Sprint(n), Operation: "op", Units: units, Labels: driver.Labels{Job: job}},
		}}))(t).Items[0].Result
	}
	plan := func(guarantee int64) {
		t.Helper()
		must.Get(driver.Apply(t.Context(), f.Store, driver.PlanChange{Budget: name, Now: f.now, Writer: "d1", Shares: []driver.PlannedShare{
			{Key: limits[0].PlanKey(0), Planned: limit.Planned{Guarantee: guarantee, Until: f.now + time.Minute.Microseconds()}},
		}}))(t)
	}
	must.Equal(t, charge("nightly", 1), driver.Granted)
	for range 3 {
		must.Equal(t, charge("other", 9), driver.Granted, "within what is not kept")
	}
	plan(20)
	must.Equal(t, charge("other", 9), driver.Granted)
	decided, other := runs.decided.Load(), runs.other.Load()
	must.Equal(t, charge("other", 9), driver.Granted, "beyond what was kept")
	check.Equal(t, fmt.Sprint(runs.decided.Load()-decided, runs.other.Load()-other), "1 0", "runs of usual.lua that decided, and others")
	plan(50) // more is needed after all: 46 are used, and 49 kept
	must.Equal(t, charge("other", 6), driver.Refused, "more than is not kept by a new record")
	must.Equal(t, charge("other", 1), driver.Granted)
	plan(20)
	must.Equal(t, charge("other", 1), driver.Granted)
	f.now += time.Minute.Microseconds() - 1
	must.Equal(t, charge("nightly", 1), driver.Granted) // the script learns of the clock
	f.now++
	must.Equal(t, charge("other", 1), driver.Refused, "when the record has ended")
}
