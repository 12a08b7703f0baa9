package memstore

import (
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// Reading a budget that was never charged leaves nothing of it in the store.
func TestReadingLeavesNothing(t *testing.T) {
	s := New(func() int64 { return 1_780_000_000_000_000 })
	const budget, now = "up/key1", 1_780_000_000_000_000
	must.Get(s.Look(t.Context(), driver.Look{Budget: budget, Now: now}))(t)
	must.Get(s.History(t.Context(), driver.HistoryQuery{Budget: budget, Now: now}))(t)
	must.Get(s.Spent(t.Context(), driver.SpentQuery{Budget: budget, Now: now, By: driver.ByJob}))(t)
	check.Equal(t, len(s.ledgers)+len(s.histories), 0, "ledgers and histories")
	must.Get(s.Decide(t.Context(), driver.Batch{Budget: budget, Now: now, Items: []driver.Item{{ID: "a", Operation: "op", Units: 1}}}))(t)
	check.Equal(t, len(s.histories[budget].rows), 1, "rows once it was charged")
}
