package outage_test

import (
	"context"
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/must"
)

// overtaken is a store as one process of a host asks it: before each of so many calls
// the data is lost, and another process of the host recovers it.
type overtaken struct {
	driver.Store
	times   int
	recover func()
}

func (o *overtaken) overtake() {
	if o.times > 0 {
		o.times--
		o.recover()
	}
}

func (o *overtaken) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	o.overtake()
	return o.Store.Decide(ctx, b)
}

func (o *overtaken) Look(ctx context.Context, l driver.Look) (driver.View, error) {
	o.overtake()
	return o.Store.Look(ctx, l)
}

// A loss that another process of the host has recovered is nothing that a call has to
// recover from: it is decided by the new ledger, however often that happens while it
// is under way.
func TestRecoveredByAnotherProcess(t *testing.T) {
	for name, ask := range map[string]func(*ruin, driver.Store){
		"a charge": func(r *ruin, s driver.Store) { must.Equal(r.t, r.decide(s, 1).Result, driver.Granted) },
		"a look":   func(r *ruin, s driver.Store) { r.used(s) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRuin(t)
			dir := t.TempDir()
			one := r.process(dir, 1)
			between := &overtaken{Store: r.store}
			other := r.processOn(between, dir, 1)
			r.decide(one, 40)
			r.decide(other, 10)
			between.recover = func() {
				r.flush()
				r.decide(one, 1)
			}
			between.times = 10
			ask(r, other)
			if used := r.used(other); between.times > 0 || used < 60 {
				t.Fatalf("%d are used, want the 60 that were charged at least; %d losses are left", used, between.times)
			}
			if more, _ := r.spend(one, 1000); more > 40 {
				t.Fatalf("%d more were granted of the 40 that were left", more)
			}
		})
	}
}
