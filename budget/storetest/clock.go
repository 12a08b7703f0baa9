package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// I6: a clock that steps back frees nothing early and gives nothing twice.
func testClockBackwards(t *testing.T, w *world) {
	w.limits = []budget.Limit{rolling("w", 10, time.Minute)}
	w.granted(item("a", "op", 10))
	w.now = noon + minute
	at := w.granted(item("b", "op", 10)).At
	w.now = noon - hour
	d := w.decide(item("c", "op", 1))[0]
	if d.Result != budget.Refused || d.RetryAt != at+minute {
		t.Fatalf("an hour back: %+v, want a refusal until %d", d, at+minute)
	}
	w.limits[0].Limit = 11
	if d := w.granted(item("d", "op", 1)); d.At != at+1 {
		t.Fatalf("charged at %d, want one microsecond after the newest entry, %d", d.At, at+1)
	}
	w.now = at + minute
	w.granted(item("e", "op", 10))
}

// I6: a clock that jumps ahead of all it has seen and of the caller frees
// nothing until it is accepted.
func testClockForwards(t *testing.T, w *world) {
	ctx := context.Background()
	w.limits = []budget.Limit{rolling("w", 10, time.Minute)}
	w.granted(lease(item("a", "op", 10), time.Second))
	caller := noon + second
	for _, ahead := range []int64{61 * second, hour, 1000 * hour} {
		w.now = caller + ahead
		_, err := w.tryDecide(caller, item("b", "op", 1))
		w.wantError(err, budget.ErrClock)
		_, err = w.store.Finish(ctx, budget.Finish{Budget: w.budget, Now: caller, ID: "a", Units: 1})
		w.wantError(err, budget.ErrClock)
		_, err = w.store.Look(ctx, budget.Look{Budget: w.budget, Now: caller, Limits: w.limits})
		w.wantError(err, budget.ErrClock)
	}
	w.now = caller // the glitch is over: nothing has expired, nothing is frozen
	w.refused(item("b", "op", 1), 0, noon+second+minute)
	w.now = caller + 60*second // 60 s is within the tolerance
	if _, err := w.tryDecide(caller, item("b", "op", 1)); err != nil {
		t.Fatalf("60 s ahead: %v", err)
	}
	w.now += hour
	_, err := w.tryDecide(caller, item("c", "op", 1))
	w.wantError(err, budget.ErrClock)
	if err := w.store.AcceptClock(ctx, w.budget); err != nil {
		t.Fatal(err)
	}
	got, err := w.tryDecide(caller, item("c", "op", 10))
	if err != nil || got.Items[0].Result != budget.Granted {
		t.Fatalf("after the clock was accepted: %+v, %v", got, err)
	}
	w.budget = "up/fresh" // a new ledger must not take a wrong clock for the truth
	_, err = w.tryDecide(caller, item("c", "op", 1))
	w.wantError(err, budget.ErrClock)
	if err := w.store.AcceptClock(ctx, w.budget); err != nil {
		t.Fatal(err)
	}
	if got, err := w.tryDecide(caller, item("c", "op", 1)); err != nil || got.Items[0].Result != budget.Granted {
		t.Fatalf("a new ledger whose clock was accepted: %+v, %v", got, err)
	}
}

// I6: a clock that stands far behind what it has shown, as that of a replica that
// became the master, tells no time: callers' clocks do, so that what is charged
// meanwhile neither stands still nor returns early once the clock is right again.
func testClockFarBehind(t *testing.T, w *world) {
	w.limits = []budget.Limit{rolling("w", 10, 10*time.Minute)}
	tell := func(caller int64, result budget.Result, i budget.Item) budget.Decision {
		t.Helper()
		got, err := w.tryDecide(caller, i)
		if err != nil || got.Items[0].Result != result {
			t.Fatalf("at %d by the caller, %d by the clock: %+v, %v, want %v", caller, w.now, got.Items, err, result)
		}
		return got.Items[0]
	}
	tell(noon, budget.Granted, item("a", "op", 4))
	w.now = noon + 5*minute - 2*hour
	if d := tell(noon+5*minute, budget.Granted, item("b", "op", 6)); d.At != noon+5*minute {
		t.Fatalf("charged at %d, want the caller's %d", d.At, noon+5*minute)
	}
	w.now = noon + 10*minute - 2*hour
	if d := tell(noon+10*minute-1, budget.Refused, item("c", "op", 4)); d.RetryAt != noon+10*minute {
		t.Fatalf("refused until %d, want %d", d.RetryAt, noon+10*minute)
	}
	tell(noon+10*minute, budget.Granted, item("c", "op", 4))
	tell(noon+9*minute, budget.Refused, item("d", "op", 1)) // another caller, whose clock is behind
	w.now = noon + 11*minute                                // the clock is right again: b and c count
	tell(noon+11*minute, budget.Refused, item("e", "op", 1))
	w.now = noon + 15*minute - 1
	tell(w.now, budget.Refused, item("e", "op", 6))
	w.now++
	tell(w.now, budget.Granted, item("e", "op", 6))
	w.now -= 60 * second // within the tolerance it stands still
	if d := tell(noon+hour, budget.Refused, item("f", "op", 1)); d.RetryAt != noon+20*minute {
		t.Fatalf("refused until %d, want %d", d.RetryAt, noon+20*minute)
	}
}

// I6: every entry has a microsecond of its own, also where the clock stands.
func testOwnMicrosecond(t *testing.T, w *world) {
	w.limits = []budget.Limit{rolling("w", 1000, time.Minute)}
	seen := map[int64]bool{}
	last := int64(0)
	for round := range 5 {
		var items []budget.Item
		for i := range 20 {
			items = append(items, item(fmt.Sprintf("%d-%d", round, i), "op", 1))
		}
		for _, d := range w.decide(items...) {
			if seen[d.At] || d.At <= last {
				t.Fatalf("an entry at %d after one at %d", d.At, last)
			}
			seen[d.At], last = true, d.At
		}
	}
	if last != noon+99 {
		t.Fatalf("the last of 100 entries at %d, want %d", last, noon+99)
	}
}
