package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// testGoroutines: 1,000 goroutines on one budget grant exactly the limit.
func testGoroutines(t *testing.T, w *world) {
	const goroutines, most = 1000, 300
	b, err := budget.New(w.store, budget.Spec{
		Name: w.budget, Limits: []limit.Limit{rolling("w", most, time.Hour)},
		Costs: map[string]budget.Cost{"op": {Units: 1}}, Timeout: time.Minute,
	}, budget.WithNow(func() time.Time { return time.UnixMicro(noon) }))
	if err != nil {
		t.Fatal(err)
	}
	var granted, refused atomic.Int64
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			_, err := b.Charge(context.Background(), budget.Call{Operation: "op"})
			switch {
			case err == nil:
				granted.Add(1)
			case errors.Is(err, budget.ErrExhausted):
				refused.Add(1)
			default:
				t.Errorf("charge: %v", err)
			}
		})
	}
	all.Wait()
	if granted.Load() != most || refused.Load() != goroutines-most {
		t.Fatalf("%d granted, %d refused; want %d and %d", granted.Load(), refused.Load(), most, goroutines-most)
	}
	w.limits = b.Spec().Limits
	if got := w.used(0); got != most {
		t.Fatalf("used %d, want %d", got, most)
	}
}

// testBatch: a batch of the largest size is decided in order; bad items fail
// alone.
func testBatch(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 100, time.Hour)}
	var items []driver.Item
	for i := range driver.MaxBatch {
		items = append(items, item(fmt.Sprint(i), []string{"a", "b", "c"}[i%3], 1))
	}
	items[5].Units = 101
	items[6].ID = items[4].ID
	for i, d := range w.decide(items...) {
		want := driver.Granted
		switch {
		case i == 5:
			want = driver.NeverFits
		case i == 6: // another operation under the id of the fourth
			want = driver.Conflict
		case i >= 102:
			want = driver.Refused
		}
		if d.Result != want {
			t.Fatalf("item %d: %+v, want result %d", i, d, want)
		}
	}
	if got := w.used(0); got != 100 {
		t.Fatalf("used %d, want 100", got)
	}
	if got := w.decide(); len(got) != 0 {
		t.Fatalf("an empty batch has answers: %+v", got)
	}
}

// testDeadline: what is decided past its deadline is not charged.
func testDeadline(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 100, time.Hour)}
	late, early := item("late", "op", 1), item("early", "op", 1)
	late.Deadline = time.UnixMicro(w.now - second)
	early.Deadline = time.UnixMicro(w.now + minute)
	got := w.decide(late, early)
	if got[0].Result != driver.Late || got[1].Result != driver.Granted {
		t.Fatalf("decisions %+v", got)
	}
	w.granted(lease(item("r", "op", 5), time.Hour))
	w.finish(driver.Finish{ID: "r", Units: 1, Deadline: time.UnixMicro(w.now - second)}, driver.FinishLate, false)
	if used := w.used(0); used != 6 {
		t.Fatalf("used %d, want 6", used)
	}
}

// testCancelled: a context that has ended is the error, and nothing is charged.
func testCancelled(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 100, time.Hour)}
	w.granted(item("a", "op", 1))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := w.store.Decide(ctx, driver.Batch{Budget: w.budget, Now: w.now, Limits: w.limits, Items: []driver.Item{item("b", "op", 1)}})
	w.wantError(err, context.Canceled)
	_, err = w.store.Finish(ctx, driver.Finish{Budget: w.budget, Now: w.now, ID: "a"})
	w.wantError(err, context.Canceled)
	_, err = w.store.Look(ctx, driver.Look{Budget: w.budget, Now: w.now, Limits: w.limits})
	w.wantError(err, context.Canceled)
	_, err = w.store.Job(ctx, "job")
	w.wantError(err, context.Canceled)
	_, err = w.store.SwapJob(ctx, driver.JobSwap{Job: "job", Text: []byte("{}")})
	w.wantError(err, context.Canceled)
	_, err = w.store.JobValue(ctx, "job", "key")
	w.wantError(err, context.Canceled)
	_, err = w.store.JobHistory(ctx, driver.JobHistoryQuery{Job: "job", Most: 1})
	w.wantError(err, context.Canceled)
	if got := w.used(0); got != 1 {
		t.Fatalf("used %d, want 1", got)
	}
}

// testRanges: units, sums and instants are exact at the ends of their ranges.
func testRanges(t *testing.T, w *world) {
	big := limit.MaxUnits
	calls := rolling("calls", 10, time.Hour, "huge")
	calls.Counts = limit.CountCalls
	w.limits = []limit.Limit{rolling("w", big, 366*24*time.Hour, "op"), calls}
	w.granted(item("a", "op", big-1))
	w.refused(item("b", "op", 2), 0, noon+366*24*hour)
	if d := w.granted(item("c", "op", 1)); d.Remaining != 0 {
		t.Fatalf("remaining %d, want 0", d.Remaining)
	}
	if got := w.used(0); got != big {
		t.Fatalf("used %d, want %d", got, big)
	}
	if d := w.decide(item("d", "huge", 1))[0]; d.Result != driver.Overflow {
		t.Fatalf("a sum above the range: %+v, want an overflow", d)
	}
	w.granted(item("e", "huge", 0))

	w.budget, w.limits = "up/settled", w.limits[:1]
	for i := range 10 {
		w.granted(lease(item(fmt.Sprint(i), "op", 1), time.Hour))
	}
	for i := range 8 {
		w.finish(driver.Finish{ID: fmt.Sprint(i), Units: big}, driver.Settled, false)
	}
	w.finish(driver.Finish{ID: "8", Units: big}, driver.FinishOverflow, false)
	w.finish(driver.Finish{ID: "8", Units: big - 1}, driver.Settled, false)
	if got := w.used(0); got != 9*big {
		t.Fatalf("used %d, want %d", got, 9*big)
	}
}

// testLabels: labels never change a decision.
func testLabels(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 3, time.Hour)}
	for i, labels := range []driver.Labels{{}, {Job: "j"}, {Job: "j", Region: "US", Run: "j/20260610T120000Z/US"}} {
		one := item(fmt.Sprint(i), "op", 1)
		one.Labels = labels
		w.granted(one)
	}
	w.refused(item("4", "op", 1), 0, noon+hour)
}

// testClosed: a closed store says so; closing twice is no error.
func testClosed(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 3, time.Hour)}
	w.granted(item("a", "op", 1))
	for range 2 {
		if err := w.store.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
	}
	_, err := w.tryDecide(w.now, item("b", "op", 1))
	w.wantError(err, driver.ErrClosed)
}
