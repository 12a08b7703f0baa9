package linear

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// checkTime is how long the search for an order may take. Histories are short: it usually
// ends at once.
const checkTime = 5 * time.Minute

// Check fails the test unless the history is linearizable.
func Check(t testing.TB, h *History) {
	t.Helper()
	if result := h.result(); result != porcupine.Ok {
		t.Fatalf("a history of %d operations (%d sent, %d with unknown outcome) is not linearizable: %s", len(h.ops), h.Tries, h.Unknown, result)
	}
}

// CheckFlagged fails the test if the history is linearizable, although it is from a store
// with a known fault.
func CheckFlagged(t testing.TB, h *History) {
	t.Helper()
	if result := h.result(); result != porcupine.Illegal {
		t.Fatalf("a history of %d operations (%d sent, %d with unknown outcome) of a store with a fault was judged %s: the check detects nothing", len(h.ops), h.Tries, h.Unknown, result)
	}
}

func (h *History) result() porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(model(h.limits), numbered(h.ops), checkTime)
}

// numbered numbers the ids of each budget.
func numbered(ops []porcupine.Operation) []porcupine.Operation {
	places := map[string]map[string]int{}
	for _, o := range ops {
		in := o.Input.(asked)
		if places[in.Budget] == nil {
			places[in.Budget] = map[string]int{}
		}
		for _, id := range []string{in.ID, in.Hold} {
			if _, known := places[in.Budget][id]; !known {
				places[in.Budget][id] = len(places[in.Budget])
			}
		}
	}
	all := make([]porcupine.Operation, len(ops))
	for i, o := range ops {
		in := o.Input.(asked)
		in.place, in.hold, in.ids = places[in.Budget][in.ID], places[in.Budget][in.Hold], len(places[in.Budget])
		o.Input = in
		all[i] = o
	}
	return all
}
