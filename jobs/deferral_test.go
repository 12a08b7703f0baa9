package jobs

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// deferring is a job that has units for five regions of each day, and defers the others.
const deferring = `
regions = ["US", "GB", "DE"]
schedule = "0 6 * * 6"
parallel = 1
on_exhausted = "defer"`

// spend has somebody else spend units.
func (w *world) spend(units int64) {
	w.t.Helper()
	must.Get(w.options.Budgets["youtube/key1"].Charge(w.t.Context(), budget.Call{Operation: "videos.list", Units: &units}))(w.t)
}

// records are the newest records of the only job, the oldest first.
func (w *world) records() []Record {
	w.t.Helper()
	list := must.Get(History(w.t.Context(), w.options.State, w.list[0].Name, time.Time{}, time.Time{}, 100))(w.t)
	for i, n := 0, len(list); i < n/2; i++ {
		list[i], list[n-1-i] = list[n-1-i], list[i]
	}
	return list
}

// deferredText is what waits for its units: "6h0m0s/2 until 24h0m0s: GB DE".
func (w *world) deferredText() []string {
	w.t.Helper()
	var list []string
	view := must.Get(Look(w.t.Context(), w.options.State, w.list[:1]))(w.t)[0]
	for _, d := range view.Deferred {
		list = append(list, fmt.Sprintf("%s/%d until %s: %s", d.Tick.Sub(midnight), d.Part, d.At.Sub(midnight), strings.Join(d.Regions, " ")))
	}
	return list
}

// The regions that a pass left go on at the very instant at which the units return, and the
// pass has one record.
func TestADeferredPassGoesOnWhenItsUnitsReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &recorded{}
		w := newWorld(t, setup{upstream: upstream, limit: 13, job: deferring})
		after(90 * time.Minute)
		w.spend(9) // they return at 25h30m
		stop, second := w.daemon(false), w.daemon(false)
		after(5 * time.Hour)
		check.EqualSlices(t, upstream.starts(), []string{"US 6h0m0s"}, "starts")
		check.EqualSlices(t, w.history(), []string{"6h0m0s exhausted deferred"}, "history")
		check.EqualSlices(t, w.deferredText(), []string{"6h0m0s/2 until 25h30m0s: GB DE"}, "deferred")
		check.EqualSlices(t, outcomes(Pass{Record: w.records()[0]}), []string{"US succeeded", "GB exhausted deferred", "DE skipped deferred"}, "runs")
		w.nextIs("GB")
		w.logged("level=INFO", "pass deferred until its units return", "job=trending", "budget=youtube/key1", "part=2", "regions=\"[GB DE]\"", "until=2000-01-02T01:30:00.000000Z")
		upstream.forget()
		after(24 * time.Hour)
		check.EqualSlices(t, upstream.starts(), []string{"GB 25h30m0s", "DE 25h30m0s"}, "starts of the second part")
		check.EqualSlices(t, w.history(), []string{"6h0m0s succeeded"}, "history")
		record := w.records()[0]
		check.EqualSlices(t, outcomes(Pass{Record: record}), []string{"US succeeded", "GB succeeded", "DE succeeded"}, "runs")
		check.Equal(t, record.Parts, 2, "parts")
		check.Equal(t, record.Units, 12, "units")
		check.Equal(t, record.Kind, Scheduled, "kind")
		check.Equal(t, record.Ended.Sub(midnight), 25*time.Hour+30*time.Minute, "ended")
		w.nextIs("")
		if s := w.state(); len(s.Deferred) > 0 || s.LastSuccess == 0 || len(s.First) > 0 {
			t.Errorf("state %+v", s)
		}
		stop()
		second()
	})
}
