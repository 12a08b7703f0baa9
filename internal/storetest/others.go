package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
)

// Besides its mark a caller may give charges that others were told of: a decision finds a
// loss where one is missing, and a look tells which are.
func testOthers(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 100, 2*time.Hour)}
	a := w.granted(item("a", "op", 1))
	b := w.granted(item("b", "op", 1))
	there := []budget.Mark{{ID: "a", At: a.At}, {ID: "b", At: b.At}}
	lacking := budget.Mark{ID: "c", At: b.At}
	look := func(others []budget.Mark, want ...string) {
		t.Helper()
		view, err := w.store.Look(context.Background(), budget.Look{Budget: w.budget, Now: w.now, Limits: w.limits, Others: others})
		if err != nil || fmt.Sprint(view.Missing) != fmt.Sprint(want) {
			t.Fatalf("a look says that %v are missing, want %v; %v", view.Missing, want, err)
		}
	}
	decide := func(others []budget.Mark, want error) {
		t.Helper()
		w.now++
		_, err := w.store.Decide(context.Background(), budget.Batch{
			Budget: w.budget, Now: w.now, Limits: w.limits, Mark: w.tells(), Others: others, Items: []budget.Item{item(fmt.Sprint("at", w.now), "op", 10)},
		})
		w.wantError(err, want)
	}
	look(there)
	look([]budget.Mark{there[0], lacking, there[1], {ID: "d", At: b.At}}, "c", "d")
	decide(there, nil)
	decide([]budget.Mark{there[0], lacking, there[1]}, budget.ErrLost)
	if used := w.used(0); used != 12 {
		t.Fatalf("%d are used, want 12: nothing is charged while a charge is missed", used)
	}
	most := make([]budget.Mark, budget.MaxOthers)
	for i := range most {
		most[i] = there[i%2]
	}
	decide(most, nil)
	look(append(most[1:], lacking), "c")
	// On a ledger that is not there, as long as the windows that are asked for count it.
	w.budget = "up/flushed"
	look([]budget.Mark{lacking, {ID: "old", At: w.now - 2*hour}}, "c")
}
