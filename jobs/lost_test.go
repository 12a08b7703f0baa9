package jobs

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
)

// The record of a pass whose daemon crashed has the units and the regions that the
// ledger knows of, also where there was no heartbeat before, or more was spent after
// the last; and the next pass begins with the first region that had not begun.
func TestALostPassTellsWhatItSpent(t *testing.T) {
	for name, test := range map[string]struct {
		crash time.Duration // after the tick
		runs  []string
		units []int64
		next  string
	}{
		"before the first heartbeat": {12 * time.Second, []string{"US lost crashed", "GB skipped crashed", "DE skipped crashed"}, []int64{3, 0, 0}, "GB"},
		"after the last heartbeat":   {38 * time.Second, []string{"US succeeded", "GB lost crashed", "DE skipped crashed"}, []int64{4, 4, 0}, "DE"},
		"before it had begun":        {0, []string{"US skipped crashed", "GB skipped crashed", "DE skipped crashed"}, []int64{0, 0, 0}, "US"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				upstream := &recorded{}
				w := newWorld(t, setup{job: "regions = [\"US\", \"GB\", \"DE\"]\nparallel = 1\nschedule = \"0 */6 * * *\"", upstream: upstream})
				upstream.Handler = slow(5*time.Second, w.sandbox)
				var deaf atomic.Bool
				sound := w.options.State
				w.options.State = failing{sound, deaf.Load}
				ctx, crash := context.WithCancel(t.Context())
				crashed := make(chan error, 1)
				r := w.runner()
				free := func() {}
				if test.crash == 0 {
					w.list[0].BudgetParallel = 1 // held by another
					if taken, err := r.docs.takeSlot(ctx, runSlots("youtube/key1"), "busy", 1); err != nil || !taken {
						t.Fatal(taken, err)
					}
					free = r.docs.keepSlot(ctx, w.options.Log, runSlots("youtube/key1"), "busy")
				}
				go func() { crashed <- r.Run(ctx, nil, false) }()
				after(6*time.Hour + max(test.crash, time.Second))
				deaf.Store(true)
				crash()
				if err := <-crashed; err == nil {
					t.Error("a daemon that was cut returned nil")
				}
				free()
				w.options.State, w.list[0].BudgetParallel = sound, 0
				stop := w.daemon(false)
				after(5 * time.Minute)
				records, err := History(t.Context(), sound, "trending", time.Time{}, time.Time{}, 9)
				if err != nil || len(records) != 1 {
					t.Fatal(records, err)
				}
				p := Pass{"trending", records[0]}
				equal(t, "runs", outcomes(p), test.runs)
				var units []int64
				sum := int64(0)
				for _, run := range p.Runs {
					units, sum = append(units, run.Units), sum+run.Units
				}
				equal(t, "units", units, test.units)
				if p.Outcome != Lost || p.Reason != ReasonCrashed || p.Units != sum || p.Units != w.used() || w.state().NextRegion != test.next {
					t.Errorf("%+v, %d units used; the next pass begins with %q, want %q", p, w.used(), w.state().NextRegion, test.next)
				}
				stop()
			})
		})
	}
}

// silenced is a store whose ledger does not answer.
type silenced struct{ driver.Store }

func (silenced) Spent(context.Context, driver.SpentQuery) (driver.SpentView, error) {
	return driver.SpentView{}, errFails
}

// Where the ledger does not say what a pass spent, its record has what the heartbeats
// told, and that it is not known is logged.
func TestALostPassOfASilentLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: "regions = [\"US\", \"GB\"]"})
		b, err := budget.New(silenced{w.store}, w.options.Budgets["youtube/key1"].Spec())
		if err != nil {
			t.Fatal(err)
		}
		w.options.Budgets["youtube/key1"] = b
		r := w.runner()
		w.claimed(r, midnight, "host/1/x")
		stop := w.daemon(false)
		after(5 * time.Minute)
		stop()
		records, err := History(t.Context(), w.store, "trending", time.Time{}, time.Time{}, 9)
		if err != nil || len(records) != 1 || records[0].Outcome != Lost || len(records[0].Runs) != 0 || strings.Contains(records[0].Error, "not shut out") {
			t.Fatalf("%+v, %v", records, err)
		}
		w.logged("level=WARN", "what a lost pass spent", "job=trending")
	})
}
