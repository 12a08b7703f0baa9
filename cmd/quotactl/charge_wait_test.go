package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/must"
)

// hangingStore does not answer from a decision on, counted from 1; 0: it always does.
type hangingStore struct {
	driver.Store
	from, asked int
}

func (s *hangingStore) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	if s.asked++; s.asked == s.from {
		<-ctx.Done()
		return driver.Decisions{}, ctx.Err()
	}
	return s.Store.Decide(ctx, b)
}

// However a wait ends, its exit code says whether the units or the store were missing:
// a wait that is over has not failed.
func TestHowAWaitEnds(t *testing.T) {
	rolling := limit.Limit{Name: "hourly", Limit: 1, Counts: limit.CountUnits, Window: limit.Window{Kind: limit.Rolling, Length: time.Hour.Microseconds()}}
	open := limit.Limit{Name: "at-once", Limit: 1, Counts: limit.CountCalls, Window: limit.Window{Kind: limit.Concurrent}}
	for name, test := range map[string]struct {
		limit      limit.Limit
		held, wait time.Duration // held: the lease of what is charged before; 0: nothing is
		hangs      int           // the decision that gets no answer, with what is charged before
		interrupt  time.Duration
		code       int
		after      time.Duration // when it ends
	}{
		"fits at once":                         {limit: rolling, wait: time.Minute, code: exitDone},
		"fits in time":                         {limit: open, held: 5 * time.Second, wait: time.Minute, code: exitDone, after: 5 * time.Second},
		"fits too late":                        {limit: rolling, held: time.Second, wait: time.Minute, code: exitExhausted},
		"what is open stays so":                {limit: open, held: time.Hour, wait: time.Minute, code: exitExhausted, after: time.Minute},
		"no answer at first":                   {limit: rolling, hangs: 1, wait: time.Minute, code: exitUnavailable, after: 2 * time.Second},
		"over before the store's answer":       {limit: rolling, hangs: 1, wait: time.Second, code: exitUnavailable, after: 2 * time.Second},
		"no answer after a refusal":            {limit: open, held: 5 * time.Second, hangs: 3, wait: time.Minute, code: exitUnavailable, after: 7 * time.Second},
		"over before the answer, refused once": {limit: open, held: 5 * time.Second, hangs: 3, wait: 6 * time.Second, code: exitUnavailable, after: 7 * time.Second},
		"interrupted while it sleeps":          {limit: open, held: time.Hour, wait: time.Minute, interrupt: 3 * time.Second, code: exitInterrupted, after: 3 * time.Second},
		"interrupted while the store is asked": {limit: rolling, hangs: 1, wait: time.Minute, interrupt: time.Second, code: exitInterrupted, after: time.Second},
		"no wait at all":                       {limit: open, held: time.Hour, wait: 0, code: exitExhausted},
	} {
		for _, lease := range []time.Duration{0, time.Minute} {
			if lease == 0 && test.limit.Window.Kind == limit.Concurrent {
				continue // a plain charge is none of those that it counts
			}
			t.Run(name+" "+lease.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := &hangingStore{Store: memstore.New(func() int64 { return time.Now().UnixMicro() }), from: test.hangs}
					b := must.Get(budget.New(store, budget.Spec{
						Name: "shop/main", Costs: map[string]budget.Cost{"get": {Units: 1}}, Limits: []limit.Limit{test.limit}, Timeout: 2 * time.Second,
					}))(t)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					if test.held > 0 {
						must.Get(b.Reserve(ctx, budget.Call{Operation: "get"}, test.held))(t)
					}
					if test.interrupt > 0 {
						defer time.AfterFunc(test.interrupt, cancel).Stop()
					}
					began := time.Now()
					f := chargeFlags{call: budget.Call{Operation: "get"}, waits: true, wait: test.wait, reserve: lease}
					_, err := f.charge(ctx, b)
					const jitter = 100 * time.Millisecond
					if took := time.Since(began); exitCode(err) != test.code || took < test.after || took > test.after+jitter {
						t.Errorf("exit code %d after %s, want %d after %s: %v", exitCode(err), took, test.code, test.after, err)
					}
				})
			})
		}
	}
}
