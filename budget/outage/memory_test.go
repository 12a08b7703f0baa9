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

// A host knows of a ledger until when it is there for sure, by the latest of all answers on it. A
// file of an older version does not say so.
func TestMemoryKnowsHowLongLedgersAreKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		open := func() *memory {
			return &memory{dir: dir, wall: wallClock, budgets: map[string]*remembered{}, warn: func(_ string, err error) { t.Error(err) }}
		}
		saw := func(m *memory, ledger string, changes, seen, kept int64) {
			mark := driver.Mark{Ledger: ledger, Changes: changes, ID: "a", At: 1, Seen: seen, Kept: kept}
			must.Do(t, m.saw(driver.Batch{Budget: "up/key1"}, driver.Decisions{Now: seen, Mark: mark}))
		}
		kept := func(m *memory) int64 {
			mark, _ := m.mark("up/key1")
			return mark.Kept
		}
		m := open()
		saw(m, "l", 1, 10, 0)
		must.Equal(t, kept(m), 0)
		saw(m, "l", 2, 20, 500)
		saw(m, "l", 3, 30, 400) // from a process that did not know of the last lock
		must.Equal(t, kept(m), 500)
		saw(m, "l", 2, 15, 600) // late
		must.Equal(t, kept(m), 600)
		m.close()
		other := open()
		must.Equal(t, kept(other), 600, "the next process")
		saw(other, "l", 4, 40, 450)
		must.Equal(t, kept(other), 600)
		saw(other, "new", 1, 50, 300)
		must.Equal(t, kept(other), 300, "another ledger")
		other.close()
	})
}
