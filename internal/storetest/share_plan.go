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

// byPlan is a share whose guarantee lapses by plan.
func byPlan(s limit.Share) limit.Share {
	s.Plan = true
	return s
}

// plan has a daemon write, for so long, what is guaranteed of the first share of a limit.
func (w *world) plan(writer string, l limit.Limit, guarantee int64, lasts int64) {
	w.t.Helper()
	c := driver.PlanChange{Budget: w.budget, Now: w.now, Writer: writer}
	if lasts > 0 {
		c.Shares = []driver.PlannedShare{{Key: l.PlanKey(0), Planned: limit.Planned{Guarantee: guarantee, Until: w.now + lasts}}}
	}
	must.Get(driver.Apply(context.Background(), w.store, c))(w.t)
}

// Without records a guarantee that lapses by plan is in force whole. With records the largest
// of those that have not ended is, and a wait goes by them until they end, and after that by the
// whole guarantee.
func testSharesPlanned(t *testing.T, w *world) {
	midnight := noon + 12*hour
	day := shared(calendar(t, "day", 100, limit.Day, "UTC"), byPlan(share("nightly", 60)), share("feeds.*", 10))
	w.limits = []limit.Limit{day}
	w.granted(by("backfill", item("a", "op", 30)))
	w.kept(by("backfill", item("b", "op", 1)), midnight, 60, 10)
	w.plan("d1", day, 20, 5*minute)
	w.granted(by("backfill", item("b", "op", 25))) // 55 used, 20 and 10 kept
	w.kept(by("backfill", item("c", "op", 16)), midnight, 20, 10)
	w.granted(by("nightly", item("c", "op", 15))) // comes off what is kept
	w.kept(by("backfill", item("d", "op", 16)), midnight, 5, 10)
	w.plan("d2", day, 40, 2*minute)
	w.plan("d1", day, 20, 5*minute)
	w.kept(by("backfill", item("d", "op", 15)), noon+2*minute, 25, 10) // when d1's alone is left
	w.onTime(by("backfill", item("d", "op", 15)), 0, noon+2*minute)
	w.now = noon + 5*minute
	w.kept(by("backfill", item("e", "op", 1)), midnight, 45, 10)
	w.plan("d1", day, 15, 5*minute)
	w.granted(by("backfill", item("e", "op", 5)))
	w.plan("d1", day, 0, 0) // it withdraws its record
	w.kept(by("backfill", item("f", "op", 1)), midnight, 45, 10)

	other := day // the share has another job there, of which d1 said nothing
	other.Shares = []limit.Share{byPlan(share("nightly", 60)), share("feeds.*", 10)}
	other.Shares[0].Jobs = []string{"nightly", "weekly"}
	w.budget = "up/other"
	w.plan("d1", day, 20, 5*minute)
	w.limits = []limit.Limit{other}
	w.granted(by("backfill", item("a", "op", 30)))
	w.kept(by("backfill", item("b", "op", 1)), midnight, 60, 10)

	for i, whole := range []limit.Limit{calendar(t, "day", 100, limit.Day, "UTC"), rolling("day", 100, 24*time.Hour)} { // only a record lets others in
		whole = shared(whole, byPlan(share("nightly", 100)))
		w.budget, w.limits = fmt.Sprint("up/whole", i), []limit.Limit{whole}
		w.kept(by("backfill", item("a", "op", 1)), w.now+driver.PlanLook, 100)
		w.plan("d1", whole, 99, minute)
		w.granted(by("backfill", item("a", "op", 1)))
		w.kept(by("backfill", item("b", "op", 1)), w.now+driver.PlanLook, 99)
	}

	hourly := shared(rolling("hour", 100, time.Hour), byPlan(share("nightly", 60)))
	w.budget, w.limits = "up/rolling", []limit.Limit{hourly}
	began := w.now
	w.granted(by("backfill", item("a", "op", 40)))
	w.kept(by("backfill", item("b", "op", 1)), began+hour, 60)
	w.plan("d1", hourly, 10, 5*minute)
	w.granted(by("backfill", item("b", "op", 30)))
	w.granted(by("backfill", item("b2", "op", 20)))
	w.kept(by("backfill", item("c", "op", 1)), began+hour+1, 10) // b returns, under the whole guarantee
	w.now = began + hour - minute
	w.plan("d1", hourly, 10, minute)
	w.kept(by("backfill", item("c", "op", 1)), began+hour+1, 10)
	w.plan("d1", hourly, 10, 2*minute)
	w.onTime(by("backfill", item("c", "op", 1)), 0, began+hour) // a returns, while the record holds
}

// What fits one limit now by a record may not once that has ended: the wait for another limit
// then goes on until both fit.
func testSharesPlannedTogether(t *testing.T, w *world) {
	day := shared(rolling("day", 100, 24*time.Hour), byPlan(share("nightly", 60)))
	w.limits = []limit.Limit{day, rolling("quick", 5, 10*time.Minute)}
	w.granted(by("backfill", item("a", "op", 5)))
	w.now += 20 * minute
	w.granted(by("backfill", item("b", "op", 5)))
	began := w.now
	w.now += minute
	w.limits = w.limits[:1]
	w.granted(by("backfill", item("c", "op", 30)))
	w.limits = append(w.limits, rolling("quick", 5, 10*time.Minute))
	w.limits[1].Operations = []string{"op"}
	w.plan("d1", day, 0, 5*minute)
	d := w.decide(by("backfill", item("d", "op", 5)))[0]
	if d.Result != driver.Refused || d.Limit != 1 || d.RetryAt <= began+10*minute || d.Ends == 0 {
		t.Fatalf("a call that waits for quick beyond the record: %+v", d)
	}
	w.limits = w.limits[:1]
	w.granted(by("backfill", item("e", "op", 5)))

	// A record that has ended is none, though the ledger may still have it.
	w.budget, w.limits = "up/never", []limit.Limit{day, dayFrom(t, "six", 6, time.Hour), dayFrom(t, "noon", 12, time.Hour)}
	w.plan("d1", day, 0, minute)
	for i, binds := range []int{0, 1} {
		d := w.decide(by("backfill", item(fmt.Sprint("f", i), "op", 1)))[0]
		if d.Result != driver.Refused || d.Limit != binds || d.RetryAt != w.now+driver.PlanLook {
			t.Errorf("limits whose guarantees never lapse together, %d min after a record of the first: %+v, want limit %d", 2*i, d, binds)
		}
		w.now += 2 * minute
	}
}

// A record replaces what its daemon wrote before. Of more daemons than a ledger distinguishes
// one record says that the guarantee is whole.
func testPlanRecords(t *testing.T, w *world) {
	day := shared(rolling("day", 100, 24*time.Hour), byPlan(share("nightly", 60)))
	w.limits = []limit.Limit{day}
	record := func(writer string, guarantee, lasts int64) driver.Plan {
		return driver.Plan{Writer: writer, PlannedShare: driver.PlannedShare{Key: day.PlanKey(0), Jobs: "-", Planned: limit.Planned{Guarantee: guarantee, Until: w.now + lasts}}}
	}
	w.plan("d1", day, 5, minute)
	w.plan("d2", day, 7, hour) // no longer than MaxPlanned
	w.plan("d1", day, 6, minute)
	check.EqualSlices(t, w.look().Plans, driver.Plans{record("d2", 7, limit.MaxPlanned), record("d1", 6, minute)}, "records")
	w.now += minute
	check.Equal(t, len(w.look().Plans), 1, "records when one has ended")
	_, err := driver.Apply(context.Background(), w.store, driver.PlanChange{Budget: w.budget, Now: w.now, Writer: "no name"})
	w.wantError(err, driver.ErrInvalid)
	for i := range driver.MaxPlanners {
		w.plan(fmt.Sprint("d", i), day, 1, minute)
	}
	w.granted(by("backfill", item("a", "op", 40)))
	w.granted(by("backfill", item("a2", "op", 40)))
	w.plan("more", day, 1, minute)
	check.Equal(t, len(w.look().Plans), 1, "records of too many")
	w.kept(by("backfill", item("b", "op", 1)), noon+minute+24*hour+1, 60)
	must.Do(t, check.Err(driver.Apply(context.Background(), w.store, driver.Reset{Budget: w.budget})))
	check.Equal(t, len(w.look().Plans), 0, "records after a reset")
}
