package outage

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// A process that only looks writes over nothing that another one charged meanwhile.
func TestLookerWritesOverNothing(t *testing.T) {
	dir := t.TempDir()
	open := func() *memory {
		return &memory{
			dir: dir, wall: wallClock, boot: func() (string, int64, error) { return "boot", 1, nil },
			budgets: map[string]*remembered{}, warn: func(_ string, err error) { t.Error(err) },
		}
	}
	n := 0
	charge := func(m *memory) {
		t.Helper()
		n++
		at, id := time.Now().UnixMicro(), fmt.Sprint("id", n)
		batch := budget.Batch{Budget: up, Limits: []budget.Limit{dayOf("day")}, Items: []budget.Item{{ID: id, Operation: "list", Units: 2}}}
		err := m.saw(batch, budget.Decisions{
			Now: at, Items: []budget.Decision{{Result: budget.Granted, Units: 2, At: at}}, Used: []int64{int64(2 * n)},
			Mark: budget.Mark{Ledger: "l", Changes: int64(n), ID: id, At: at, Seen: at},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	sum := func() (units int64) {
		for _, s := range open().loadOwn(up) {
			units += s.Amounts["day"]
		}
		return units
	}
	one, other, looker := open(), open(), open()
	charge(one)
	between := false
	looker.wall = func() int64 { // which save calls between reading and writing
		if between {
			between = false
			charge(other)
		}
		return wallClock()
	}
	looker.mu.Lock()
	r := looker.of(up)
	r.dirty, between = true, true
	err := looker.save(up, r)
	looker.mu.Unlock()
	if err != nil || between {
		t.Fatal(err, between)
	}
	charge(one)
	for _, m := range []*memory{one, other} {
		if err := m.close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := sum(); got != 6 {
		t.Errorf("the directory has %d of the 6 that were charged", got)
	}
}
