package storetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// whySpec has a limit of each kind that names who used it, two of them divided.
func whySpec(t *testing.T) budget.Spec {
	shares := []limit.Share{{Name: "feeds", Jobs: []string{"feeds", "charts.*"}, Guarantee: 400}, {Name: "nightly", Jobs: []string{"nightly"}, Guarantee: 250}}
	return budget.Spec{
		Name: "youtube/key1",
		Limits: []limit.Limit{
			{Name: "hour", Quota: 1000, Limit: 1000, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour), Shares: shares},
			{Name: "calls", Limit: 40, Counts: limit.CountCalls, Window: limit.RollingWindow(10 * time.Minute), Operations: []string{"search"}},
			{Name: "day", Limit: 5000, Counts: limit.CountUnits, Window: calendar(t, "day", 1, limit.Day, "America/Los_Angeles").Window, Shares: shares},
			{Name: "open", Limit: 6, Counts: limit.CountCalls, Window: limit.ConcurrentWindow()},
		},
		Costs: map[string]budget.Cost{"list": {Units: 1}, "search": {Units: 100}},
		Jobs:  map[string]budget.JobSays{"last": {Floor: 120}},
	}
}

// whyCharge is what the walk remembers of one charge, or of what is no call's.
type whyCharge struct {
	id, operation, job string
	units              int64
	until              time.Time // the end of an open lease, else when it finished
	open               bool
}

// WhyAddsUp walks through charges, reservations, their ends, drift and a loss, and checks that
// every number of Why is what the charges, as the walk itself has written them down, add up
// to. The clock is the store's.
func WhyAddsUp(t *testing.T, store driver.Store, clock *atomic.Int64) {
	t.Helper()
	effort.Unraced(t)
	rng := rand.New(rand.NewPCG(effort.Seed(t), 1)) //nolint:gosec // repeatable on purpose
	clock.Store(noon)
	spec := whySpec(t)
	b := must.Get(budget.New(store, spec, budget.WithNow(func() time.Time { return time.UnixMicro(clock.Load()).UTC() })))(t)
	var all []*whyCharge
	jobs := []string{"feeds", "charts.de", "nightly", "last", ""}
	for step := range effort.Of(200, 300, 2000) {
		now := time.UnixMicro(clock.Add(1 + rng.Int64N(180*second))).UTC()
		operation := []string{"list", "search"}[rng.IntN(2)]
		call := budget.Call{Operation: operation, ID: fmt.Sprint("c", step), Labels: budget.Labels{Job: jobs[rng.IntN(len(jobs))]}}
		if rng.IntN(3) == 0 {
			lease := time.Duration(1+rng.Int64N(30)) * time.Minute
			if r, err := b.Reserve(t.Context(), call, lease); err == nil {
				all = append(all, &whyCharge{call.ID, operation, call.Labels.Job, r.Units, r.At.Add(lease), true})
			}
		} else if r, err := b.Charge(t.Context(), call); err == nil {
			all = append(all, &whyCharge{call.ID, operation, call.Labels.Job, r.Units, r.At, false})
		}
		if at := slices.IndexFunc(all, func(c *whyCharge) bool { return c.open && c.until.After(now) }); at >= 0 && rng.IntN(3) == 0 {
			c := all[at]
			if c.open, c.until = false, now; rng.IntN(2) == 0 {
				c.units = rng.Int64N(c.units + 1)
				must.Do(t, b.Settle(t.Context(), c.id, c.units))
			} else {
				must.Do(t, b.Release(t.Context(), c.id))
				all = slices.Delete(all, at, at+1)
			}
		}
		switch rng.IntN(12) {
		case 0:
			all = whyDrift(t, b, all, 1+rng.Int64N(40), now)
		case 1:
			all = whyRecovered(t, store, spec, all, 1+rng.Int64N(40), now)
		}
		asked := budget.Call{Operation: []string{"list", "search"}[rng.IntN(2)], Labels: budget.Labels{Job: jobs[rng.IntN(len(jobs))]}}
		compareWhy(t, must.Get(b.Why(t.Context(), asked))(t), spec, all, now)
	}
}

// beside remembers units of one limit that no call made: what there is comes back later, with
// what was added.
func beside(all []*whyCharge, operation string, add int64, now time.Time, l limit.Limit) []*whyCharge {
	at := slices.IndexFunc(all, func(c *whyCharge) bool { return c.operation == operation })
	if at < 0 {
		return append(all, &whyCharge{operation, operation, "", add, now, false})
	}
	c := all[at]
	if c.until.UnixMicro() <= l.Window.Cut(now.UnixMicro()) {
		c.units = 0
	}
	c.units, c.until = c.units+add, now
	return all
}

// whyDrift reports more use of the limit hour than there is.
func whyDrift(t *testing.T, b *budget.Budget, all []*whyCharge, more int64, now time.Time) []*whyCharge {
	t.Helper()
	l := must.Get(b.Status(t.Context()))(t).Limits[0]
	used := l.Used + more
	drift := must.Get(b.Report(t.Context(), budget.UpstreamReport{Limit: "hour", Used: &used}))(t)
	must.Equal(t, drift.Added, more, "drift")
	return beside(all, limit.DriftOperation("hour"), more, now, l.Limit)
}

// whyRecovered tells the store of a loss of some units of the limit hour that did not happen.
func whyRecovered(t *testing.T, store driver.Store, spec budget.Spec, all []*whyCharge, more int64, now time.Time) []*whyCharge {
	t.Helper()
	at := now.UnixMicro()
	view := must.Get(store.Look(t.Context(), driver.Look{Budget: spec.Name, Now: at, Limits: spec.Limits}))(t)
	used := make([]int64, len(spec.Limits))
	for i, l := range view.Limits {
		used[i] = l.Used
	}
	used[0] += more
	must.Get(driver.Apply(t.Context(), store, driver.Recovery{
		Budget: spec.Name, Now: at, Limits: spec.Limits, At: at, Used: used, Mark: driver.Mark{ID: "never", At: at}, Hosts: 1,
	}))(t)
	return beside(all, limit.RecoveredOperation("hour"), more, now, spec.Limits[0])
}

// compareWhy recomputes an answer.
func compareWhy(t *testing.T, why budget.Why, spec budget.Spec, all []*whyCharge, now time.Time) {
	t.Helper()
	refused := false
	must.Equal(t, why.At.Equal(now), true, "the instant")
	must.Equal(t, why.Units, spec.Costs[why.Call.Operation].Units)
	seen := 0
	for _, l := range spec.Limits {
		if !l.Covers(why.Call.Operation) {
			continue
		}
		got := why.Limits[seen]
		seen++
		used, by, returns, open := int64(0), map[budget.UsedBy]int64{}, map[time.Time]int64{}, []string{}
		for _, c := range all {
			if !covers(l, c.operation) || c.until.UnixMicro() <= l.Window.Cut(now.UnixMicro()) || l.Name == "open" && !c.open {
				continue
			}
			amount := c.units
			if l.Counts == limit.CountCalls {
				amount = 1
			}
			who := budget.UsedBy{Kind: "job", Job: c.job}
			kind, _, pseudo := strings.Cut(c.operation, "/")
			switch {
			case pseudo:
				who.Kind, amount = kind, c.units
			case c.job == "":
				who.Kind = "unlabelled"
			case len(l.Shares) > 0:
				who.Share = shareOf(c.job)
			}
			used += amount
			by[who] += amount
			returns[comesBack(t, l, c.until)] += amount
			if c.open && c.until.After(now) {
				open = append(open, fmt.Sprint(c.until.UnixMicro(), " ", c.id, " ", amount))
			}
		}
		must.Equal(t, got.Used, used, l.Name, "used")
		gotBy, gotReturns, gotOpen := map[budget.UsedBy]int64{}, map[time.Time]int64{}, []string{}
		for _, u := range got.By {
			n := u.Used
			u.Used = 0
			gotBy[u] = n
		}
		for _, r := range got.Returns {
			gotReturns[r.At] = r.Amount
		}
		for _, o := range got.Open {
			gotOpen = append(gotOpen, fmt.Sprint(o.Until.UnixMicro(), " ", o.ID, " ", o.Held))
		}
		nothing := func(_ budget.UsedBy, n int64) bool { return n == 0 }
		maps.DeleteFunc(by, nothing)
		maps.DeleteFunc(returns, func(_ time.Time, n int64) bool { return n == 0 })
		must.Equal(t, fmt.Sprint(gotBy), fmt.Sprint(by), l.Name, "by whom")
		must.Equal(t, maps.Equal(gotReturns, returns), true, l.Name, "returns", gotReturns, returns)
		slices.Sort(open)
		check.EqualSlices(t, gotOpen, open, l.Name, "open")
		if l.Name == "open" {
			must.Equal(t, got.Needs+got.Short, 0, "the call is no reservation")
			continue
		}
		floor, kept := int64(0), int64(0)
		if why.Call.Labels.Job == "last" && l.Counts != limit.CountCalls {
			floor = 120
		}
		for _, s := range l.Shares {
			mine := int64(0)
			for who, n := range by {
				if who.Share == s.Name {
					mine += n
				}
			}
			if s.Name != shareOf(why.Call.Labels.Job) {
				kept += max(0, s.Guarantee-mine)
			}
		}
		if len(l.Shares) > 0 {
			must.Equal(t, got.Share, shareOf(why.Call.Labels.Job), l.Name, "own share")
		}
		keptSaid := int64(0)
		for _, k := range got.Kept {
			keptSaid += k.Units
		}
		must.Equal(t, keptSaid, kept, l.Name, "kept")
		needs := why.Units
		if l.Counts == limit.CountCalls {
			needs = 1
		}
		must.Equal(t, got.Needs, needs)
		must.Equal(t, got.Floor, floor)
		must.Equal(t, got.Short, max(0, used+needs+max(floor, kept)-l.Limit), l.Name, "short")
		must.Equal(t, got.Available, max(0, l.Limit-used-max(floor, kept)), l.Name, "available")
		refused = refused || got.Short > 0
	}
	must.Equal(t, len(why.Limits), seen, "limits")
	must.Equal(t, why.Refused != nil, refused, "refused")
}

// covers reports whether a limit counts an operation of the walk.
func covers(l limit.Limit, operation string) bool {
	if _, of, pseudo := strings.Cut(operation, "/"); pseudo {
		return l.Name == of
	}
	return l.Covers(operation)
}

// shareOf is the share of a job in whySpec.
func shareOf(job string) string {
	return map[string]string{"feeds": "feeds", "charts.de": "feeds", "nightly": "nightly"}[job]
}

// comesBack is when a charge that finished at an instant comes back.
func comesBack(t *testing.T, l limit.Limit, finished time.Time) time.Time {
	switch l.Name {
	case "hour":
		return finished.Add(time.Hour).UTC()
	case "calls":
		return finished.Add(10 * time.Minute).UTC()
	case "day":
		zone := must.Get(time.LoadLocation("America/Los_Angeles"))(t)
		y, m, d := finished.In(zone).Date()
		return time.Date(y, m, d+1, 0, 0, 0, 0, zone).UTC()
	}
	return finished.UTC()
}
