package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

func concurrent(name string, most int64, operations ...string) limit.Limit {
	return limit.Limit{Name: name, Limit: most, Counts: limit.CountCalls, Window: limit.ConcurrentWindow(), Operations: operations}
}

// A concurrent limit counts open reservations, and nothing else.
func testConcurrent(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 1000, time.Hour), concurrent("open", 2), concurrent("videos", 1, "videos.*")}
	w.granted(item("plain", "op", 5))
	w.granted(lease(item("a", "op", 5), time.Minute))
	w.granted(lease(item("b", "op", 0), 2*time.Minute)) // also with 0 units
	start := w.now
	if v := w.look().Limits[1]; v.Used != 2 || v.NextAmount != 1 || v.NextAt != start+1+minute-2+1 && v.NextAt > start+minute+2 {
		t.Fatalf("view %+v", v)
	}
	ends := w.look().Limits[1].NextAt
	w.refused(lease(item("c", "op", 1), time.Minute), 1, ends)
	w.granted(item("plain2", "videos.list", 5)) // a plain charge is not a reservation
	w.now = ends - 1
	w.refused(lease(item("c", "op", 1), time.Minute), 1, ends)
	w.now = ends
	w.granted(lease(item("c", "op", 1), time.Minute)) // the first one's lease is over
	w.refused(lease(item("d", "videos.list", 1), time.Minute), 1, w.look().Limits[1].NextAt)
	w.finish(driver.Finish{ID: "b", Units: 3}, driver.Settled, false)
	w.granted(lease(item("d", "videos.list", 1), time.Minute))
	w.finish(driver.Finish{ID: "c", Release: true}, driver.Released, false)
	d := w.decide(lease(item("e", "videos.list", 1), time.Minute))[0]
	must.Equal(t, d.Result, driver.Refused)
	must.Equal(t, d.Limit, 2)
	w.granted(lease(item("e", "op", 1), time.Minute))
	if d := w.decide(lease(item("f", "op", 1), time.Minute))[0]; d.Result != driver.Refused || d.Limit != 1 || d.Remaining != 0 {
		t.Fatalf("%+v", d)
	}
	w.now += 2 * minute
	must.Equal(t, w.used(1)+w.used(2), 0, "open after all leases")
	w.limits[1].Limit = 0
	if d := w.decide(lease(item("g", "op", 1), time.Minute))[0]; d.Result != driver.NeverFits || d.Limit != 1 {
		t.Fatalf("%+v, want never fits", d)
	}
}

// Thousands of open reservations, and a limit that is added while they are open.
func testManyOpen(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 10*many, time.Hour)}
	for i := 0; i < many; i += driver.MaxBatch {
		var items []driver.Item
		for j := range driver.MaxBatch {
			items = append(items, lease(item(fmt.Sprint("r", i+j), "op", 1), time.Duration(1+(i+j)%60)*time.Minute))
		}
		for _, d := range w.decide(items...) {
			must.Equal(t, d.Result, driver.Granted, d)
		}
	}
	all := (many + driver.MaxBatch - 1) / driver.MaxBatch * driver.MaxBatch
	w.limits = append(w.limits, concurrent("open", int64(all)))
	if d := w.decide(lease(item("x", "op", 1), time.Minute))[0]; d.Result != driver.Refused || d.Limit != 1 {
		t.Fatalf("%+v, want a refusal", d)
	}
	w.now += 30*minute + second
	w.granted(lease(item("x", "op", 1), time.Minute))
	if got := w.used(1); got >= int64(all) || got < int64(all)/3 {
		t.Fatalf("%d of %d open after half an hour", got, all)
	}
	w.now += hour
	must.Equal(t, w.used(1), 0, "open after all leases")
}

// Limits of all kinds on one budget are decided together: all or nothing, and the latest
// instant binds.
func testMixedKinds(t *testing.T, w *world) {
	w.limits = []limit.Limit{
		rolling("exact", 100, time.Minute), coarse("coarse", 100, time.Hour, time.Minute), calendar(t, "day", 100, limit.Day, "UTC"),
		guarded(t, "guarded", 100, limit.Hour, "UTC", 5*time.Second), bucket(t, "bucket", 100, 1, time.Second), concurrent("open", 1),
	}
	w.now += 30 * minute
	w.granted(lease(item("r", "op", 60), 2*time.Hour))
	for i, want := range []int64{60, 60, 60, 60, 60, 1} {
		check.Equal(t, w.used(i), want, w.limits[i].Name, "used")
	}
	d := w.decide(item("a", "op", 50))[0]
	if d.Result != driver.Refused || d.Limit != 2 { // the day waits longest
		t.Fatalf("%+v, want a refusal by the day", d)
	}
	for i, want := range []int64{60, 60, 60, 60, 60, 1} {
		check.Equal(t, w.used(i), want, w.limits[i].Name, "used after a refusal")
	}
	w.limits[2].Limit, w.limits[1].Limit, w.limits[3].Limit, w.limits[0].Limit = 1000, 1000, 1000, 1000
	w.refused(item("a", "op", 50), 4, w.now+10*second)
	w.finish(driver.Finish{ID: "r", Release: true}, driver.Released, false)
	w.granted(item("a", "op", 100))
	for i, want := range []int64{100, 100, 100, 100, 100, 0} {
		check.Equal(t, w.used(i), want, w.limits[i].Name, "used")
	}
}

// Two configurations alternate on one ledger: each counts what both spend, and a lowered
// limit is a debt.
func testTwoConfigurations(t *testing.T, w *world) {
	first := []limit.Limit{rolling("w", 100, time.Minute), rolling("search", 50, time.Hour, "search.*")}
	second := []limit.Limit{rolling("w", 80, 2*time.Minute), coarse("c", 100, time.Hour, time.Minute, "!videos.list"), bucket(t, "b", 100, 1, time.Minute)}
	w.limits = second
	w.granted(item("first", "op", 0)) // a bucket that is added later is full
	for i := range 20 {
		w.limits = first
		w.granted(item(fmt.Sprint("a", i), "search.list", 1))
		w.limits = second
		w.granted(item(fmt.Sprint("b", i), "videos.list", 1))
		w.now += 1000
	}
	w.limits = first
	check.Equal(t, [2]int64{w.used(0), w.used(1)}, [2]int64{40, 20}, "the first counts")
	w.limits = second
	check.Equal(t, [2]int64{w.used(0), w.used(1)}, [2]int64{40, 20}, "the second counts")
	w.limits = []limit.Limit{rolling("w", 30, time.Minute)}
	d := w.decide(item("x", "op", 1))[0]
	if v := w.look().Limits[0]; d.Result != driver.Refused || d.Remaining != 0 || v.Used != 40 || v.Since != 0 {
		t.Errorf("a lowered limit: %+v, %+v", d, v)
	}
}

// Spent reports by each label, over everything that is kept and over a span, for more
// entries than one step processes.
func testSpent(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 10*many, 3*time.Hour)}
	w.fill() // on a and b in turn, without labels
	w.now += 10 * minute
	for i, labels := range []driver.Labels{{Job: "j1", Region: "US", Run: "r1"}, {Job: "j1", Region: "DE", Run: "r1"}, {Job: "j2", Region: "US", Run: "r2"}} {
		one := lease(item(fmt.Sprint("l", i), "c", int64(10*(i+1))), time.Hour)
		one.Labels = labels
		w.granted(one)
	}
	w.finish(driver.Finish{ID: "l1", Release: true}, driver.Released, false)
	w.finish(driver.Finish{ID: "l2", Units: 33}, driver.Settled, false)
	spent := func(by driver.GroupBy, span int64) map[string]driver.SpentRow {
		t.Helper()
		view := must.Get(w.store.Spent(context.Background(), driver.SpentQuery{Budget: w.budget, Now: w.now, By: by, Span: span}))(t)
		rows := map[string]driver.SpentRow{}
		for _, row := range view.Rows {
			if _, twice := rows[row.Name]; twice {
				t.Fatalf("%q is listed twice", row.Name)
			}
			rows[row.Name] = row
		}
		return rows
	}
	row := func(name string, units, calls, open int64) driver.SpentRow {
		return driver.SpentRow{Name: name, Units: units, Calls: calls, Open: open}
	}
	for _, c := range []struct {
		by   driver.GroupBy
		span int64
		want []driver.SpentRow
	}{
		{driver.ByOperation, 0, []driver.SpentRow{row("a", many/2, many/2, 0), row("b", many/2, many/2, 0), row("c", 43, 2, 1)}},
		{driver.ByJob, 0, []driver.SpentRow{row("", many, many, 0), row("j1", 10, 1, 1), row("j2", 33, 1, 0)}},
		{driver.ByRegion, minute, []driver.SpentRow{row("US", 43, 2, 1)}},
		{driver.ByRun, minute, []driver.SpentRow{row("r1", 10, 1, 1), row("r2", 33, 1, 0)}},
	} {
		got := spent(c.by, c.span)
		check.Equal(t, len(got), len(c.want), "by", c.by, got, c.want)
		for _, want := range c.want {
			check.Equal(t, got[want.Name], want, "by", c.by)
		}
	}
	for run, want := range map[string]string{"r1": "[{c 10 1 1 0}]", "r2": "[{c 33 1 0 0}]", "r": "[]"} {
		view := must.Get(w.store.Spent(context.Background(), driver.SpentQuery{Budget: w.budget, Now: w.now, By: driver.ByOperation, Run: run}))(t)
		check.Equal(t, fmt.Sprint(view.Rows), want, "run", run)
	}
	w.budget = "up/nothing"
	if got := spent(driver.ByJob, 0); len(got) != 0 {
		t.Errorf("a budget without a ledger: %+v", got)
	}
}
