package outage_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/outage"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/must"
)

// sides is a store whose data can be kept and put back under processes of several hosts
// that go on, as a split or a snapshot does. Its clock stands still but for tick.
type sides struct {
	driver.Store // on the data of now
	t            *testing.T
	path         string
	clock        atomic.Int64 // µs
	limits       []limit.Limit

	before        func(batch driver.Batch) (answer *driver.Decisions) // a decision; nil: nothing
	calls, others atomic.Int64                                        // decisions, and the marks that they carried besides
}

func newSides(t *testing.T) *sides {
	t.Helper()
	s := &sides{t: t, path: filepath.Join(t.TempDir(), "q.db"), limits: []limit.Limit{
		{Name: "day", Quota: 1_000_000, Limit: 1_000_000, Counts: limit.CountUnits, Window: limit.RollingWindow(24 * time.Hour)},
	}}
	s.clock.Store(time.Date(2026, 5, 5, 12, 0, 0, 0, time.UTC).UnixMicro())
	s.open()
	t.Cleanup(func() { must.Do(s.t, s.Close()) })
	return s
}

func (s *sides) open() {
	s.t.Helper()
	store, err := sqlitestore.Open(s.t.Context(), s.path, sqlitestore.Options{Timeout: time.Minute, Clocks: s.clocks()})
	must.Do(s.t, err)
	s.Store = store
}

func (s *sides) clocks() *sqlitestore.Clocks {
	return &sqlitestore.Clocks{Wall: s.clock.Load, Boot: func() (string, int64, error) { return "boot", s.clock.Load(), nil }}
}

// flush loses all data.
func (s *sides) flush() {
	s.t.Helper()
	must.Do(s.t, s.Close())
	for _, suffix := range []string{"", "-wal", "-shm"} {
		must.Do(s.t, os.RemoveAll(s.path+suffix))
	}
	s.open()
}

// keep returns what puts the data back to what it is now.
func (s *sides) keep() (restore func()) {
	s.t.Helper()
	must.Do(s.t, s.Close())
	data, err := os.ReadFile(s.path)
	must.Do(s.t, err)
	s.open()
	return func() {
		s.t.Helper()
		s.flush()
		must.Do(s.t, s.Close())
		must.Do(s.t, os.WriteFile(s.path, data, 0o600))
		s.open()
	}
}

// seen is how a process reaches it.
type seen struct{ *sides }

func (s seen) Close() error { return nil }

func (s seen) Decide(ctx context.Context, batch driver.Batch) (driver.Decisions, error) {
	s.calls.Add(1)
	s.others.Add(int64(len(batch.Others)))
	if s.before != nil {
		if answer := s.before(batch); answer != nil {
			return *answer, nil
		}
	}
	return s.Store.Decide(ctx, batch)
}

// process is one more process of the host with this directory.
func (s *sides) process(dir string) *outage.Store {
	return outage.New(seen{s}, outage.Options{
		Dir: dir, Hosts: 1, Timeout: time.Minute, Log: slog.New(slog.DiscardHandler),
		Clocks: s.clocks(),
	})
}

// host is the first process of a host of its own.
func (s *sides) host() *outage.Store { return s.process(s.t.TempDir()) }

func (s *sides) tick(d time.Duration) { s.clock.Add(d.Microseconds()) }

func (s *sides) charge(process driver.Store, id string, units int64) {
	s.t.Helper()
	s.item(process, driver.Item{ID: id, Operation: "list", Units: units})
}

// chargesOn charges b0, b1 and so on, a millisecond apart.
func (s *sides) chargesOn(process driver.Store, times int, units int64) {
	s.t.Helper()
	for i := range times {
		s.charge(process, fmt.Sprint("b", i), units)
		s.tick(time.Millisecond)
	}
}

func (s *sides) item(process driver.Store, item driver.Item) {
	s.t.Helper()
	d, err := process.Decide(context.Background(), driver.Batch{Budget: "up/key1", Now: s.clock.Load(), Limits: s.limits, Items: []driver.Item{item}})
	if err != nil || d.Items[0].Result != driver.Granted {
		s.t.Errorf("%+v: %+v, %v", item, d, err)
	}
}

// used is what a process is shown of the first limit.
func (s *sides) used(process driver.Store) int64 {
	s.t.Helper()
	view, err := process.Look(context.Background(), driver.Look{Budget: "up/key1", Now: s.clock.Load(), Limits: s.limits})
	must.Do(s.t, err)
	return view.Limits[0].Used
}

// settles has all processes look until nothing is to be recovered, and holds what is
// used to what was charged.
func (s *sides) settles(want int64, processes ...*outage.Store) {
	s.t.Helper()
	var got int64
	for range 3 {
		for _, process := range processes {
			s.tick(2 * time.Second)
			got = s.used(process)
		}
	}
	if got != want {
		s.t.Errorf("%d are used, and %d were charged", got, want)
	}
}
