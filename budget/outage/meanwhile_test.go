package outage_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
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

// What a process writes down of its charges while another one recovers a loss that it has
// not heard of is recovered too.
func TestChargedDuringRecovery(t *testing.T) {
	r := newRuin(t)
	dir := t.TempDir()
	hook := &onRecovery{Store: r.store}
	one, other := r.processOn(hook, dir, 1), r.process(dir, 1)
	hook.do = func() {
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	}
	r.decide(other, 10)
	r.decide(one, 1)
	charge := func(units int64) { // within the second, so that it is not written
		t.Helper()
		r.n++
		d, err := other.Decide(t.Context(), driver.Batch{Budget: "up/key1", Now: r.now, Limits: r.limits, Items: []driver.Item{{ID: fmt.Sprint("id", r.n), Operation: "list", Units: units}}})
		if err != nil || d.Items[0].Result != driver.Granted {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	charge(5)
	charge(15)
	if used := r.used(one); used != 31 {
		t.Fatalf("%d are used", used)
	}
	// The other side of a split stays, on which another host has charged meanwhile.
	r.flush()
	atomic.AddInt64(&r.now, -3_000_000)
	r.decide(r.host(1), 40)
	atomic.AddInt64(&r.now, 2_000_000)
	if used := r.used(one); used != 71 {
		t.Fatalf("%d are used, and the hosts have charged 40 and 31", used)
	}
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
	if d := r.decide(one, 3); d.Result != driver.Granted {
		t.Fatalf("%+v within the part", d)
	}
	r.flush()
	if used := r.used(two); used != 13 {
		t.Fatalf("%d are used of 13", used)
	}
}
