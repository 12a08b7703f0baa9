package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/must"
)

// Besides its mark a caller may pass charges that other callers were granted: a decision
// detects a loss if one is missing, and a look says which are.
func testOthers(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 100, 2*time.Hour)}
	a := w.granted(item("a", "op", 1))
	b := w.granted(item("b", "op", 1))
	there := []driver.Mark{{ID: "a", At: a.At}, {ID: "b", At: b.At}}
	lacking := driver.Mark{ID: "c", At: b.At}
	look := func(others []driver.Mark, want ...string) {
		t.Helper()
		view := must.Get(w.store.Look(context.Background(), driver.Look{Budget: w.budget, Now: w.now, Limits: w.limits, Others: others}))(t)
		must.Equal(t, fmt.Sprint(view.Missing), fmt.Sprint(want), "a look says that")
	}
	decide := func(others []driver.Mark, want error) {
		t.Helper()
		w.now++
		_, err := w.store.Decide(context.Background(), driver.Batch{
			Budget: w.budget, Now: w.now, Limits: w.limits, Mark: w.tells(), Others: others, Items: []driver.Item{item(fmt.Sprint("at", w.now), "op", 10)},
		})
		w.wantError(err, want)
	}
	look(there)
	look([]driver.Mark{there[0], lacking, there[1], {ID: "d", At: b.At}}, "c", "d")
	decide(there, nil)
	decide([]driver.Mark{there[0], lacking, there[1]}, driver.ErrLost)
	must.Equal(t, w.used(0), 12, "used: nothing is charged while a charge is missed")
	most := make([]driver.Mark, driver.MaxOthers)
	for i := range most {
		most[i] = there[i%2]
	}
	decide(most, nil)
	look(append(most[1:], lacking), "c")
	// On a ledger that does not exist, as long as the windows of the request count it.
	w.budget = "up/flushed"
	look([]driver.Mark{lacking, {ID: "old", At: w.now - 2*hour}}, "c")
}
