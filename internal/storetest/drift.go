package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/must"
)

// report reports what an upstream counts, and checks how much is recorded.
func (w *world) report(r driver.Report, added, total, until int64) {
	w.t.Helper()
	r.Budget, r.Now, r.Limits = w.budget, w.now, w.limits
	got, err := driver.Apply(context.Background(), w.store, r)
	if want := (driver.Drift{Now: w.now, Added: added, Total: total, Until: until}); err != nil || got != want {
		w.t.Fatalf("report %+v: %+v, %v; want %+v", r, got, err, want)
	}
}

// wantDrift checks what a limit has used and how much of it is drift.
func (w *world) wantDrift(limit int, used, drift int64) {
	w.t.Helper()
	if v := w.look().Limits[limit]; v.Used != used || v.Drift != drift || v.Recovered != 0 {
		w.t.Fatalf("limit %d: %+v, want %d used, %d of it drift", limit, v, used, drift)
	}
}

// Units that an upstream counts above our own count are used in that limit alone, exactly
// until the reset that the upstream names. A lower count changes nothing.
func testDrift(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("hour", 100, time.Hour), rolling("other", 100, time.Hour), rolling("search", 80, time.Hour, "search.list")}
	w.granted(item("a", "search.list", 30))
	w.granted(lease(item("open", "op", 10), time.Minute))
	w.now += second
	reset := w.now + 20*minute
	w.report(driver.Report{Limit: "hour", Used: 40, Reset: reset}, 0, 0, 0) // the open reservation explains it
	w.report(driver.Report{Limit: "hour", Used: 10, Reset: reset}, 0, 0, 0)
	w.report(driver.Report{Limit: "hour", Used: 65, Reset: reset}, 25, 25, reset)
	w.wantDrift(0, 65, 25)
	w.wantDrift(1, 40, 0)
	w.wantDrift(2, 30, 0)
	w.report(driver.Report{Limit: "hour", Used: 65, Reset: reset}, 0, 25, reset) // reported twice
	w.report(driver.Report{Limit: "hour", Used: 5, Reset: reset + minute}, 0, 25, reset)
	w.report(driver.Report{Limit: "hour", Used: 70, Reset: reset - minute}, 5, 30, reset) // more; all of it until the later reset
	w.report(driver.Report{Limit: "search", Used: 31}, 1, 1, w.now+hour)
	w.wantDrift(0, 70, 30)
	spent := must.Get(w.store.Spent(context.Background(), driver.SpentQuery{Budget: w.budget, Now: w.now, By: driver.ByOperation}))(t)
	units := map[string]int64{}
	for _, row := range spent.Rows {
		units[row.Name] = row.Units
	}
	must.Equal(t, units[limit.DriftOperation("hour")], 30, "the ledger tells")
	must.Equal(t, units[limit.DriftOperation("search")], 1, "the ledger tells")
	w.onTime(item("b", "op", 31), 0, reset)
	w.wantDrift(0, 71, 0)
}

// Reports that are late, from another period, or past their reset are harmless.
func testDriftOld(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("hour", 100, time.Hour), calendar(t, "day", 100, limit.Day, "UTC")}
	w.limits[1].Window.Guard = 5 * second
	w.granted(item("a", "op", 10))
	w.report(driver.Report{Limit: "hour", Used: 50, Reset: w.now}, 0, 0, 0)
	w.report(driver.Report{Limit: "hour", Used: 50, At: w.now - hour}, 0, 0, 0)
	w.report(driver.Report{Limit: "hour", Used: 50, Seen: 50, At: w.now - minute}, 0, 0, 0) // our count at that time explains it
	w.report(driver.Report{Limit: "hour", Used: 50, Seen: 45, At: w.now - minute, After: minute}, 5, 5, w.now+minute)
	w.report(driver.Report{Limit: "hour", Used: 50, After: 1000 * hour}, 35, 40, w.now+hour) // at most the window
	midnight := time.Date(2026, 6, 11, 0, 0, 0, 0, time.UTC).UnixMicro()
	w.report(driver.Report{Limit: "day", Used: 30, Reset: w.now + minute}, 20, 20, midnight+5*second)
	w.now = midnight - second
	w.report(driver.Report{Limit: "day", Used: 95}, 65, 85, midnight+5*second)
	w.onTime(item("b", "op", 10), 1, midnight+5*second)
	w.wantDrift(1, 10, 0)
	w.report(driver.Report{Limit: "day", Used: 95, At: midnight + 4*second}, 0, 0, 0) // from the day before
	w.report(driver.Report{Limit: "day", Used: 95, At: midnight + 5*second}, 85, 85, midnight+24*hour+5*second)
	w.report(driver.Report{Limit: "nobody", Used: 95}, 0, 0, 0)
}

// Drift in one limit, however large, takes nothing from operations that the limit does
// not cover.
func testDriftHuge(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("a", 100, time.Hour, "a"), rolling("b", 100, time.Hour, "b")}
	w.granted(item("first", "b", 1))
	w.now += second
	w.report(driver.Report{Limit: "a", Used: limit.MaxUnits}, limit.MaxUnits, limit.MaxUnits, w.now+hour)
	w.granted(item("second", "b", 99))
	w.refused(item("third", "a", 1), 0, w.now+hour)
}

// A bucket is filled; calls are counted if the limit counts calls; a report on open
// reservations is ignored; a coarse window returns at a slot's end.
func testDriftKinds(t *testing.T, w *world) {
	refill := must.Get(limit.NewRefill(1, time.Second))(t)
	w.limits = []limit.Limit{
		{Name: "bucket", Limit: 100, Counts: limit.CountUnits, Window: limit.BucketWindow(refill)},
		{Name: "calls", Limit: 100, Counts: limit.CountCalls, Window: limit.RollingWindow(time.Hour)},
		{Name: "open", Limit: 5, Counts: limit.CountCalls, Window: limit.ConcurrentWindow()},
		{Name: "coarse", Limit: 100, Counts: limit.CountUnits, Window: limit.CoarseWindow(3*time.Hour, time.Minute)},
	}
	w.granted(item("a", "op", 10))
	w.report(driver.Report{Limit: "bucket", Used: 50}, 40, 40, 0)
	w.report(driver.Report{Limit: "bucket", Used: 90, Reset: w.now}, 0, 0, 0)          // its reset has passed
	w.report(driver.Report{Limit: "bucket", Used: 50, Reset: w.now + second}, 0, 0, 0) // known
	w.report(driver.Report{Limit: "bucket", Used: 55, At: w.now - 3*second}, 2, 2, 0)
	w.report(driver.Report{Limit: "bucket", Used: 55, At: w.now - 5*second}, 0, 0, 0)
	w.wantDrift(0, 52, 0)
	w.report(driver.Report{Limit: "open", Used: 5}, 0, 0, 0)
	w.report(driver.Report{Limit: "calls", Used: 90, After: 30 * minute}, 89, 89, w.now+30*minute)
	w.wantDrift(1, 90, 89)
	w.report(driver.Report{Limit: "coarse", Used: 30, Reset: w.now + 10*minute + 1}, 20, 20, w.now+11*minute)
	w.wantDrift(3, 30, 20)
	d := w.decide(item("b", "op", 99))[0]
	must.Equal(t, d.Result, driver.Refused)
	must.Equal(t, d.Limit, 3)
}
