package outage_test

import (
	"errors"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// A call that the store charged without an answer, and that the host then refuses, as it
// remembers its limit to be exhausted, is not said to be uncharged.
func TestLostThenExhausted(t *testing.T) {
	w := newWorld(t)
	now := time.Now().UnixMicro() // time stands still, and the breaker with it
	w.clocks = &sqlitestore.Clocks{
		Wall: func() int64 { return now },
		Boot: func() (string, int64, error) { return "boot", now, nil },
	}
	w.spec.Limits = append(w.spec.Limits, limit.Limit{Name: "burst", Limit: 2, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)})
	b := w.host(t.TempDir())
	w.charged(b, "a", budget.SourceStore)
	two := int64(2)
	must.Is(t, check.Err(b.Charge(t.Context(), budget.Call{Operation: "list", Units: &two})), budget.ErrExhausted)
	w.store.lost.Store(true)
	for _, lost := range []bool{true, false} {
		_, err := b.Charge(t.Context(), budget.Call{Operation: "list"}) // the second time the breaker keeps it away
		var refused *budget.RefusedError
		if !errors.Is(err, budget.ErrExhausted) || !errors.As(err, &refused) || refused.Source != budget.SourceAllowance || refused.NotCharged == lost {
			t.Fatalf("its answer was lost: %t; %+v", lost, refused)
		}
	}
	check.Equal(t, w.used(), 2, "used, want the one whose answer was lost too")
}
