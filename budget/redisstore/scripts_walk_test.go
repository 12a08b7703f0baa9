package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
	"github.com/quotactl/quotactl/internal/storetest"
)

// twoProcesses are two stores on one ledger that decide in turn, each now and then by
// charge.lua alone.
type twoProcesses struct {
	storetest.Store
	stores [2]*redisstore.Store
	rng    *rand.Rand
}

// Decide finishes by a call of its own: what another process registered meanwhile may keep finish.lua
// from being done before the items, which then have no answer, and the model has one.
func (p *twoProcesses) Decide(ctx context.Context, b driver.Batch) (decided driver.Decisions, err error) {
	if len(b.Finishes) > 0 {
		finished, err := p.stores[p.rng.IntN(2)].Finish(ctx, driver.Finishes{Budget: b.Budget, Now: b.Now, Items: b.Finishes})
		if err != nil {
			return decided, err
		}
		b.Finishes = nil
		defer func() { decided.Finished = finished }()
	}
	store := p.stores[p.rng.IntN(2)]
	if p.rng.IntN(8) == 0 {
		store.ForgetPlans()
	}
	return store.Decide(ctx, b)
}

// Whichever script decides, the answers are those of the model.
func TestWalkOfTwoScripts(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL(0)
	for _, steps := range []int{5000, 40} { // with few, there are blocks of ten entries
		t.Run(fmt.Sprint(steps), func(t *testing.T) {
			t.Parallel()
			var runs [2]*usualRuns
			storetest.WalkCalm(t, func(t testing.TB, clock func() int64) storetest.Store {
				p := &twoProcesses{rng: rand.New(rand.NewPCG(1, 2))}
				for i := range p.stores {
					store := must.Get(redisstore.OpenWithClock(url, redisstore.Options{Prefix: fmt.Sprint("w", steps), Timeout: patient}, clock))(t)
					t.Cleanup(func() { _ = store.Close() })
					store.SetMaxSteps(steps)
					p.stores[i], runs[i] = store, countRuns(store)
				}
				p.Store = p.stores[0]
				return p
			}, 8_000)
			var decidedByBoth, all int64
			for i, r := range runs {
				decided := r.decided.Load()
				t.Logf("process %d: usual.lua decided %d times and left %d; %d other runs", i, decided, r.left.Load(), r.other.Load())
				decidedByBoth += decided
				all += decided + r.left.Load() + r.other.Load()
			}
			// A walk on a single ledger may be by limits that usual.lua always leaves.
			if all > 1000 && decidedByBoth == 0 {
				t.Error("usual.lua decided nothing: the walk shows less than it should")
			}
		})
	}
}
