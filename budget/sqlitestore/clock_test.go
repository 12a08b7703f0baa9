package sqlitestore_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/must"
)

// machine is a computer whose clocks can be set.
type machine struct {
	t     *testing.T
	path  string
	store *sqlitestore.Store
	id    string
	since int64 // the boot clock
	wall  int64
	limit limit.Limit
}

func newMachine(t *testing.T) *machine {
	m := &machine{t: t, path: filepath.Join(t.TempDir(), "q.db"), wall: noon - hour, limit: rolling(10, hour)}
	m.boot("first")
	t.Cleanup(func() { _ = m.store.Close() })
	return m
}

// boot starts the machine anew.
func (m *machine) boot(id string) {
	m.t.Helper()
	if m.store != nil {
		must.Do(m.t, m.store.Close())
	}
	m.id, m.since = id, 0
	m.pass(20 * second)
	s := must.Get(sqlitestore.OpenOnBoot(context.Background(), m.path, sqlitestore.Options{Timeout: patience}, id,
		func() int64 { return m.since }, func() int64 { return m.wall }))(m.t)
	m.store = s
}

// pass lets time pass.
func (m *machine) pass(d int64) {
	m.since += d
	m.wall += d
}

func (m *machine) try(i driver.Item) (driver.Decisions, error) {
	return m.store.Decide(context.Background(), driver.Batch{Budget: name, Now: m.wall, Limits: []limit.Limit{m.limit}, Items: []driver.Item{i}})
}

// charge wants the item granted, or refused for so long.
func (m *machine) charge(i driver.Item, wait int64) {
	m.t.Helper()
	got := must.Get(m.try(i))(m.t)
	d := got.Items[0]
	if granted := d.Result == driver.Granted; granted != (wait == 0) || !granted && d.RetryAt-got.Now != wait {
		m.t.Fatalf("%s: %+v at %d, want a wait of %d", i.ID, d, got.Now, wait)
	}
}

// I6: the clock of a boot does not gain on the entries' own microseconds.
func TestClockKeepsTime(t *testing.T) {
	m := newMachine(t)
	m.limit = rolling(1000, hour)
	from := m.wall
	for i := range 200 {
		m.charge(item(string(rune('a'+i%26))+string(rune('a'+i/26)), 1), 0)
		if i%10 == 0 {
			m.pass(1)
		}
	}
	m.pass(1000)
	got := must.Get(m.try(item("x", 1)))(t)
	must.Equal(t, got.Now, from+20+1000, "the clock shows")
}

// I6: after a reboot the wall clock counts, and never before last seen.
func TestReboot(t *testing.T) {
	m := newMachine(t)
	m.charge(item("a", 10), 0)
	m.wall += 40 * minute // switched off meanwhile
	m.boot("second")
	m.charge(item("b", 10), 20*minute-20*second)
	m.wall -= 30 * hour // the battery is empty
	m.boot("third")
	got := must.Get(m.try(item("b", 10)))(t)
	must.Equal(t, got.Items[0].RetryAt, noon-hour+20*second+hour)
	// The right time comes: it counts, since the wrong one was behind last seen.
	m.wall += 30*hour + 21*minute
	m.charge(item("b", 10), 0)
	m.wall += 3 * hour // from now on this boot's clock does
	m.charge(item("c", 10), hour)
}

// I6: a wall clock far ahead after a reboot is not taken for the truth where the
// caller's is another.
func TestRebootFarAhead(t *testing.T) {
	m := newMachine(t)
	m.charge(item("a", 10), 0)
	m.boot("second")
	caller := m.wall
	m.wall += 5 * hour
	_, err := m.store.Decide(t.Context(), driver.Batch{Budget: name, Now: caller, Limits: []limit.Limit{m.limit}})
	must.Is(t, err, driver.ErrClock)
	m.wall -= 5 * hour
	m.charge(item("b", 10), hour-20*second)
	m.pass(hour)
	m.charge(item("b", 10), 0)
}

// I6: a budget is idle by its own clock, not by that of one begun after the wall
// clock was set.
func TestIdleByItsOwnClock(t *testing.T) {
	m := newMachine(t)
	m.charge(item("a", 10), 0)
	m.wall += 60 * day
	batch := driver.Batch{Budget: "up/other", Now: m.wall, Limits: []limit.Limit{m.limit}, Items: []driver.Item{item("a", 1)}}
	must.Equal(t, must.Get(m.store.Decide(t.Context(), batch))(t).Now, m.wall, "want a new budget to begin at the wall clock")
	m.charge(item("b", 1), hour)
}

// The jobs' clock goes by the boot clock, and after a reboot on from the newest
// document, however the wall clock stands.
func TestJobClock(t *testing.T) {
	m := newMachine(t)
	swap := func(version int64, text string) {
		t.Helper()
		if swapped, err := m.store.SwapJob(t.Context(), driver.JobSwap{Job: "trending", Version: version, Text: []byte(text)}); err != nil || !swapped {
			t.Fatalf("swap version %d: %v, %v", version, swapped, err)
		}
	}
	shows := func(now int64) {
		t.Helper()
		found, err := m.store.Job(t.Context(), "trending")
		if err != nil || found.Now != now || found.Wall != m.wall {
			t.Fatalf("%+v, %v; want the clocks at %d and %d", found, err, now, m.wall)
		}
	}
	began := m.wall
	shows(began)
	swap(0, "1")
	m.wall += day
	m.pass(minute)
	shows(began + minute)
	m.wall -= 3 * day
	m.reopen()
	shows(began + minute)
	swap(1, "2")
	m.pass(hour) // which no document tells of
	m.boot("second")
	shows(began + minute) // the wall clock stands days behind
	swap(2, "3")
	m.wall += 30 * day
	m.pass(second)
	shows(began + minute + second)
	m.boot("third")
	shows(m.wall)
}
