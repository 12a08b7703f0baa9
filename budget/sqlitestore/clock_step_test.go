package sqlitestore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/must"
)

// wallSteps are how far a wall clock may be set, by hand, by a time service, or by
// a virtual machine that was resumed.
var wallSteps = []int64{
	-400 * day, -day - hour, -3 * hour, -hour, -61 * second, -59 * second, -second, -1,
	1, second, 59 * second, 61 * second, hour, 3 * hour, day + hour, 400 * day,
}

// reopen closes the store and opens the file again, on the same boot.
func (m *machine) reopen() {
	m.t.Helper()
	must.Do(m.t, m.store.Close())
	m.store = m.another()
}

// another is a further store on the file, as another process of the machine has it.
func (m *machine) another() *sqlitestore.Store {
	m.t.Helper()
	s := must.Get(sqlitestore.OpenOnBoot(context.Background(), m.path, sqlitestore.Options{Timeout: patience}, m.id,
		func() int64 { return m.since }, func() int64 { return m.wall }))(m.t)
	m.t.Cleanup(func() { _ = s.Close() })
	return s
}

// I6: however the wall clock is set on one boot, units come back neither a
// microsecond early nor late: in the process that charged them, in one that opens
// the file afterwards, and in one that had it open beside.
func TestWallClockStepsFreeNothingEarly(t *testing.T) {
	for _, step := range wallSteps {
		t.Run(fmt.Sprint(time.Duration(step)*time.Microsecond), func(t *testing.T) {
			m := newMachine(t)
			beside := m.another()
			m.charge(item("a", 4), 0)
			m.pass(10 * minute)
			m.charge(item("b", 6), 0)
			m.wall += step
			m.charge(item("c", 4), 50*minute)
			m.charge(item("d", 5), hour)
			m.reopen()
			m.charge(item("c", 4), 50*minute)
			m.wall -= 2 * step // and as far to the other side
			m.store, beside = beside, m.store
			m.charge(item("c", 4), 50*minute)
			m.pass(50*minute - 1)
			m.wall += 3 * step
			m.charge(item("c", 4), 1)
			m.pass(1)
			m.charge(item("c", 4), 0)
			m.charge(item("d", 5), 10*minute)
			m.store = beside
			m.pass(10*minute - 1)
			m.charge(item("d", 5), 1)
			m.pass(1)
			m.charge(item("d", 5), 0)
		})
	}
}

// I6: nor do reservations end, buckets drain or calendars reset early or late.
func TestWallClockStepsOnAllKinds(t *testing.T) {
	refill := must.Get(limit.NewRefill(1, time.Minute))(t)
	calendar := must.Get(limit.NewCalendar(limit.Day, "UTC", 0))(t)
	for kind, l := range map[string]struct {
		limit limit.Limit
		first driver.Item
		wait  int64 // of another of 10, when the first one is charged
	}{
		"coarse":     {limit.Limit{Limit: 10, Window: limit.CoarseWindow(time.Hour, time.Minute)}, item("a", 10), hour + minute - 20*second},
		"calendar":   {limit.Limit{Limit: 10, Window: limit.CalendarWindow(calendar)}, item("a", 10), 13*hour - 20*second},
		"bucket":     {limit.Limit{Limit: 10, Window: limit.BucketWindow(refill)}, item("a", 10), 10 * minute},
		"concurrent": {limit.Limit{Limit: 1, Window: limit.ConcurrentWindow()}, lease(item("a", 1), 2*hour), 2 * hour},
		"lease":      {rolling(10, hour), lease(item("a", 10), 2*hour), 3 * hour},
	} {
		l.limit.Name, l.limit.Counts = "w", limit.CountUnits
		other := l.first
		other.ID = "b"
		if kind == "concurrent" {
			l.limit.Counts = limit.CountCalls
		}
		for _, step := range []int64{-25 * hour, -hour, -second, second, hour, 25 * hour} {
			t.Run(fmt.Sprintf("%s/%s", kind, time.Duration(step)*time.Microsecond), func(t *testing.T) {
				m := newMachine(t)
				m.limit = l.limit
				m.charge(l.first, 0)
				m.wall += step
				m.charge(other, l.wait)
				m.pass(l.wait / 2)
				m.charge(other, l.wait-l.wait/2)
				m.wall -= 2 * step
				m.charge(other, l.wait-l.wait/2)
				m.pass(l.wait - l.wait/2 - 1)
				m.wall += step
				m.charge(other, 1)
				m.pass(1)
				m.charge(other, 0)
			})
		}
	}
}
