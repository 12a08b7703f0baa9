package outage

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/must"
)

// Of the budgets of a credential "*" no end is kept in memory; what was let go is
// remembered by its file.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		m := memory{dir: dir, wall: wallClock, budgets: map[string]*remembered{}, warn: func(_ string, err error) { t.Error(err) }}
		const n = maxRemembered + 50
		saw := func(i int) {
			name := fmt.Sprint("shop/v", i)
			at := time.Now().UnixMicro()
			must.Do(t, m.saw(driver.Batch{Budget: name, Items: []driver.Item{{ID: fmt.Sprint("id", i)}}},
				driver.Decisions{Now: at, Items: []driver.Decision{{Result: driver.Granted, At: at}}, Mark: driver.Mark{Ledger: "l", ID: fmt.Sprint("id", i), At: at, Seen: at}}))
		}
		for i := range n {
			saw(i)
		}
		for i := range n {
			if len(m.budgets) > maxRemembered {
				t.Fatalf("%d budgets are in memory, want %d at most", len(m.budgets), maxRemembered)
			}
			if got, _ := m.mark(fmt.Sprint("shop/v", i)); got.ID != fmt.Sprint("id", i) {
				t.Fatalf("of budget %d the newest charge is %q", i, got.ID)
			}
		}
	})
}
