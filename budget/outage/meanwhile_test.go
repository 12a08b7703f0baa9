package outage_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// onRecovery is a store that has something happen before its first recovery.
type onRecovery struct {
	driver.Store
	first sync.Once
	do    func()
}

func (s *onRecovery) Change(ctx context.Context, change driver.Change) (driver.Changed, error) {
	if _, ok := change.(driver.Recovery); ok {
		s.first.Do(s.do)
	}
	return s.Store.Change(ctx, change)
}

// Charges that a process writes down while another one recovers a loss that it has not heard
// of are recovered too.
func TestChargedDuringRecovery(t *testing.T) {
	r := newRuin(t)
	dir := t.TempDir()
	hook := &onRecovery{Store: r.store}
	one, other := r.processOn(hook, dir, 1), r.process(dir, 1)
	hook.do = func() { check.NoError(t, other.Close()) }
	r.decide(other, 10)
	r.decide(one, 1)
	charge := func(units int64) { // within the second, so that it is not written
		t.Helper()
		r.n++
		d := must.Get(other.Decide(t.Context(), driver.Batch{Budget: "up/key1", Now: r.now, Limits: r.limits, Items: []driver.Item{{ID: fmt.Sprint("id", r.n), Operation: "list", Units: units}}}))(t)
		must.Equal(t, d.Items[0].Result, driver.Granted)
	}
	charge(5)
	charge(15)
	must.Equal(t, r.used(one), 31, "used")
	// The other side of a split stays, on which another host has charged meanwhile.
	r.flush()
	atomic.AddInt64(&r.now, -3_000_000)
	r.decide(r.host(1), 40)
	atomic.AddInt64(&r.now, 2_000_000)
	must.Equal(t, r.used(one), 71, "used, and the hosts have charged 40 and 31")
}

// What a process charged to its part while a loss was made good is known to the host's
// other process at once.
func TestPartIsWrittenAtOnce(t *testing.T) {
	r := newRuin(t)
	dir := t.TempDir()
	one, two := r.process(dir, 2), r.process(dir, 2)
	r.decide(one, 10)
	r.used(two)
	r.flush()
	must.Equal(t, r.decide(one, 3).Result, driver.Granted, "within the part")
	r.flush()
	must.Equal(t, r.used(two), 13, "used of 13")
}
