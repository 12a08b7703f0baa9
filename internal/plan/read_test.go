package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// A ledger that is read exactly counts now, and at each later instant, what the store says. Read by the hour, it counts
// the same now, and later no less in a rolling limit, unless reservations were open beyond their hour: it never promises
// units that are not back.
func TestReadIsTheStore(t *testing.T) {
	effort.Unraced(t)
	seed := effort.Seed(t)
	for i := range uint64(effort.Of(40, 100, 400)) {
		synctest.Test(t, func(t *testing.T) { readBothWays(t, rand.New(rand.NewPCG(seed, i))) }) //nolint:gosec // repeatable on purpose
		if t.Failed() {
			t.Fatalf("ledger %d of the seed", i)
		}
	}
}

func readBothWays(t *testing.T, rng *rand.Rand) {
	ctx := t.Context()
	time.Sleep(time.Until(time.Date(2026, 10, 20, 0, 0, 0, 0, time.UTC)) + time.Duration(rng.Int64N(10*24*3600e9)).Truncate(time.Microsecond))
	store := memstore.New(nil)
	calendar := func(length, zone string, starts time.Duration) limit.Window {
		w := limit.CalendarWindow(must.Get(limit.NewCalendar(length, zone, starts))(t))
		w.Guard = rng.Int64N(2) * 5e6
		return w
	}
	spec := budget.Spec{Name: "read/key", Costs: map[string]budget.Cost{"search": {Units: 100}, "list": {Units: 1}}, Timeout: time.Minute, Limits: []limit.Limit{
		{Name: "day", Window: limit.RollingWindow(24 * time.Hour)},
		{Name: "slots", Window: limit.CoarseWindow(30*time.Hour, 7*time.Minute)},
		{Name: "india", Window: calendar(limit.Day, "Asia/Kolkata", 15*time.Minute)},
		{Name: "quarter", Window: calendar(limit.Quarter, "UTC", 0)},
		{Name: "each", Window: limit.RollingWindow(90 * time.Minute), PerOperation: true},
		{Name: "calls", Window: calendar(limit.Month, "Australia/Lord_Howe", 0), Counts: limit.CountCalls},
		{Name: "some", Window: limit.RollingWindow(5 * time.Hour), Operations: []string{"!list"}},
		{Name: "open", Window: limit.ConcurrentWindow(), Counts: limit.CountCalls},
	}}
	for i := range spec.Limits {
		l := &spec.Limits[i]
		if l.Limit = 1e9; l.Counts == "" {
			l.Counts = limit.CountUnits
		}
	}
	b := must.Get(budget.New(store, spec))(t)
	now := func() int64 { return time.Now().UnixMicro() }
	limits := newBudget(spec.Name, spec).Limits
	reserves := rng.IntN(2) == 0
	for i := range 100 + rng.IntN(200) {
		time.Sleep(time.Duration(1+rng.Int64N(1200e6)) * time.Microsecond)
		item := driver.Item{ID: fmt.Sprint(i), Operation: []string{"search", "list"}[rng.IntN(2)], Units: 1 + rng.Int64N(100), Labels: driver.Labels{Job: []string{"", "a", "b"}[rng.IntN(3)]}}
		if reserves && rng.IntN(5) == 0 {
			item.Lease = 1 + rng.Int64N(3600e6)
		}
		must.Get(store.Decide(ctx, driver.Batch{Budget: spec.Name, Now: now(), Limits: limits, Items: []driver.Item{item}}))(t)
		if item.Lease > 0 && rng.IntN(2) == 0 {
			must.Get(driver.FinishOne(ctx, store, spec.Name, now(), driver.Finish{ID: item.ID, Units: rng.Int64N(100), Release: rng.IntN(3) == 0}))(t)
		}
		if l := limits[rng.IntN(len(limits))]; rng.IntN(40) == 0 && l.CanDivide() {
			used := must.Get(store.Look(ctx, driver.Look{Budget: spec.Name, Now: now(), Limits: []limit.Limit{l}}))(t).Limits[0].Used
			must.Get(driver.Apply(ctx, store, driver.Report{Budget: spec.Name, Now: now(), Limits: limits, Limit: l.Name, Used: used + rng.Int64N(500)}))(t)
		}
	}
	time.Sleep(time.Duration(rng.Int64N(3*3600e6)) * time.Microsecond)
	at := now()
	exact := must.Get(readBudget(ctx, store, b, time.Now(), Reading{}, nil))(t)
	status := must.Get(b.Status(ctx))(t)
	rough := newBudget(spec.Name, spec)
	rough.Limits = exact.Limits
	counting := slices.Clone(exact.Limits)
	large, err := rough.readHours(ctx, store, status, time.Now(), counting, 0)
	must.Do(t, err)
	must.Equal(t, large, true, "read by the hour")
	byEntry, byHour := exact.ledger(at, nil), rough.ledger(at, nil)
	for range 30 {
		view := must.Get(store.Look(ctx, driver.Look{Budget: spec.Name, Now: now(), Limits: exact.Limits}))(t)
		byEntry.advance(now())
		byHour.advance(now())
		for i, c := range byEntry.counters {
			h := byHour.counters[i]
			if c.used != view.Limits[i].Used {
				t.Errorf("limit %s: %d used by the entries, %d in the store", c.limit.Name, c.used, view.Limits[i].Used)
			}
			if c.limit.CanDivide() && (h.used != c.used && now() == at || h.used < c.used && c.limit.Window.Kind == limit.Rolling && !reserves) {
				t.Errorf("%s after the reading, limit %s: %d used by the hour, truly %d", time.Duration(now()-at)*time.Microsecond, c.limit.Name, h.used, c.used)
			}
		}
		time.Sleep(time.Duration(1+rng.Int64N(2*3600e6)) * time.Microsecond)
	}
}
