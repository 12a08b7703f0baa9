package outage_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// hold asks for units of "list" for a pass of trending.
func (w *world) hold(b *budget.Budget, number, units int64) error {
	needs := []budget.Need{{Operation: "list", Units: units, Calls: units}}
	_, err := b.Hold(context.Background(), budget.Call{Fence: number, Labels: driver.Labels{Job: "trending"}}, needs, time.Minute, time.Hour)
	return err
}

// left is what the first living hold has left, in units; −1: there is none.
func (w *world) left() int64 {
	w.t.Helper()
	view := must.Get(w.store.inner().Look(context.Background(), driver.Look{Budget: w.spec.Name, Now: time.Now().UnixMicro()}))(w.t)
	if len(view.Holds) == 0 {
		return -1
	}
	return view.Holds[0].Left[0].Units
}

// A hold is no charge: no host misses it, makes it from its allowance, or takes a limit for
// exhausted because of it. Units that a pass spends while the store is away are drawn from
// its hold once they are recorded.
func TestHoldAcrossAnOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.host(t.TempDir())
	must.Do(t, w.hold(b, 7, 940))
	w.charged(b, "", budget.SourceStore)
	if _, err := w.charge(b, "search", ""); !errors.Is(err, budget.ErrExhausted) {
		t.Fatalf("a search beside the hold: %v, want it refused", err)
	}
	w.store.gone.Store(true)
	check.Is(t, w.hold(b, 8, 1), budget.ErrUnavailable)
	w.charged(b, "", budget.SourceAllowance) // the limit is not exhausted: units are held
	must.Equal(t, must.Get(w.chargePass(b, 7, "late"))(t).Source, budget.SourceAllowance, "a call of the pass")
	must.Equal(t, w.left(), 940, "held while the store is away")
	w.store.gone.Store(false)
	w.back(b)
	check.Equal(t, w.left(), 939, "held once the pass's charge is recorded")
	must.Get(b.EndHold(context.Background(), "trending", 7, ""))(t)
	must.Get(w.charge(b, "search", ""))(t)
}

// A store that lost its data has lost what was held: its pass goes on with ordinary charges.
func TestHoldLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.host(t.TempDir())
	must.Do(t, w.hold(b, 7, 500))
	must.Get(w.chargePass(b, 7, ""))(t)
	must.Get(driver.Apply(t.Context(), w.store.inner(), driver.Reset{Budget: w.spec.Name}))(t)
	check.Equal(t, len(must.Get(b.RenewHolds(t.Context(), "trending", 7, time.Hour))(t)), 0, "holds after the loss")
	must.Get(w.chargePass(b, 7, ""))(t)
	must.Equal(t, w.left(), -1, "held")
}
