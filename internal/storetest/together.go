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
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// testGoroutines: 1,000 goroutines on one budget grant exactly the limit.
func testGoroutines(t *testing.T, w *world) {
	const goroutines, most = 1000, 300
	b := must.Get(budget.New(w.store, budget.Spec{
		Name: w.budget, Limits: []limit.Limit{rolling("w", most, time.Hour)},
		Costs: map[string]budget.Cost{"op": {Units: 1}}, Timeout: patience,
	}, budget.WithNow(func() time.Time { return time.UnixMicro(noon) })))(t)
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
	must.Equal(t, granted.Load(), most)
	must.Equal(t, refused.Load(), goroutines-most)
	w.limits = b.Spec().Limits
	must.Equal(t, w.used(0), most, "used")
}

// testBatch: a batch of the largest size is decided in order; only the bad items fail.
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
		case i == 6: // another operation with the fourth item's id
			want = driver.Conflict
		case i >= 102:
			want = driver.Refused
		}
		if d.Result != want {
			t.Fatalf("item %d: %+v, want result %d", i, d, want)
		}
	}
	must.Equal(t, w.used(0), 100, "used")
	if got := w.decide(); len(got) != 0 {
		t.Fatalf("an empty batch has answers: %+v", got)
	}
}

// testFinishes: a batch of the largest size is finished in order; only the bad ones fail.
func testFinishes(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 1000, time.Hour)}
	var items []driver.Item
	var all []driver.Finish
	for i := range driver.MaxBatch {
		items = append(items, lease(item(fmt.Sprint(i), []string{"a", "b", "c"}[i%3], 2), time.Hour))
		all = append(all, driver.Finish{ID: fmt.Sprint(i), Units: 3})
	}
	items[7].Lease = 0
	for _, one := range items {
		w.granted(one)
	}
	w.now += minute
	all[3].Deadline = time.UnixMicro(w.now - hour)
	all[4].Release = true
	all[5].ID = "unknown"
	all[6] = all[4]                           // again
	all[8] = driver.Finish{ID: "4", Units: 1} // otherwise
	done, err := w.store.Finish(context.Background(), driver.Finishes{Budget: w.budget, Now: w.now, Items: all})
	must.Do(t, err)
	want := map[int]driver.FinishResult{
		3: driver.FinishLate, 4: driver.Released, 5: driver.FinishExpired, 6: driver.Released, 7: driver.FinishConflict, 8: driver.FinishConflict,
	}
	for i, one := range done {
		result := want[i]
		if result == 0 {
			result = driver.Settled
		}
		if one.Result != result || one.Replayed != (i == 6) || result == driver.Settled && one.At != w.now {
			t.Errorf("reservation %d: %+v, want result %d", i, one, result)
		}
	}
	must.Equal(t, len(done), driver.MaxBatch)
	must.Equal(t, w.used(0), 3*(driver.MaxBatch-6)+2*5, "used") // those of 3, 5, 6 and 8 are open, that of 7 is plain, and 4 is released
	none, err := w.store.Finish(context.Background(), driver.Finishes{Budget: w.budget, Now: w.now})
	if len(none) > 0 || err != nil {
		t.Errorf("nothing is answered %+v, %v", none, err)
	}
}

// testFinishesBeforeItems: what a batch finishes is done before its items are decided.
func testFinishesBeforeItems(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 10, time.Hour)}
	w.granted(lease(item("a", "op", 4), time.Minute))
	w.granted(lease(item("b", "op", 4), time.Minute))
	w.now += second
	got, err := w.store.Decide(context.Background(), driver.Batch{
		Budget: w.budget, Now: w.now, Limits: w.limits, Items: []driver.Item{item("c", "op", 5), item("d", "op", 4)},
		Finishes: []driver.Finish{{ID: "a", Release: true}, {ID: "b", Units: 4, Age: second / 2}, {ID: "unknown"}},
	})
	must.Do(t, err)
	results := []driver.FinishResult{driver.Released, driver.Settled, driver.FinishExpired}
	must.Equal(t, len(got.Finished), len(results))
	for i, one := range got.Finished {
		check.Equal(t, one.Result, results[i], "finish", i)
	}
	check.Equal(t, got.Finished[1].At, w.now-second/2, "the end of what ended earlier")
	check.Equal(t, got.Items[0].Result, driver.Granted, "what fits since then")
	check.Equal(t, got.Items[1].RetryAt, w.now-second/2+hour, "what was settled returns first")
	check.Equal(t, w.used(0), 9, "used")
}

// testDeadline: an item decided after its deadline is not charged. The deadlines are far away: a
// store compares them by its clock, which stands still here while the machine's goes on.
func testDeadline(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 100, time.Hour)}
	late, early := item("late", "op", 1), item("early", "op", 1)
	late.Deadline = time.UnixMicro(w.now - hour)
	early.Deadline = time.UnixMicro(w.now + hour)
	got := w.decide(late, early)
	must.Equal(t, got[0].Result, driver.Late, "decisions")
	must.Equal(t, got[1].Result, driver.Granted, "decisions")
	w.granted(lease(item("r", "op", 5), time.Hour))
	w.finish(driver.Finish{ID: "r", Units: 1, Deadline: time.UnixMicro(w.now - hour)}, driver.FinishLate, false)
	must.Equal(t, w.used(0), 6, "used")
}

// testCancelled: if the context has ended, its error is returned and nothing is charged.
func testCancelled(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 100, time.Hour)}
	w.granted(item("a", "op", 1))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := w.store.Decide(ctx, driver.Batch{Budget: w.budget, Now: w.now, Limits: w.limits, Items: []driver.Item{item("b", "op", 1)}})
	w.wantError(err, context.Canceled)
	_, err = driver.FinishOne(ctx, w.store, w.budget, w.now, driver.Finish{ID: "a"})
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
	must.Equal(t, w.used(0), 1, "used")
}

// testRanges: units, sums and instants are exact at the ends of their ranges.
func testRanges(t *testing.T, w *world) {
	big := limit.MaxUnits
	calls := rolling("calls", 10, time.Hour, "huge")
	calls.Counts = limit.CountCalls
	w.limits = []limit.Limit{rolling("w", big, 366*24*time.Hour, "op"), calls}
	w.granted(item("a", "op", big-1))
	w.refused(item("b", "op", 2), 0, noon+366*24*hour)
	must.Equal(t, w.granted(item("c", "op", 1)).Remaining, 0, "remaining")
	must.Equal(t, w.used(0), big, "used")
	must.Equal(t, w.decide(item("d", "huge", 1))[0].Result, driver.Overflow, "a sum above the range")
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
	must.Equal(t, w.used(0), 9*big, "used")

	w.budget, w.limits = "up/behind", []limit.Limit{bucket(t, "b", 10, 1, time.Hour, "other"), rolling("w", big, 366*24*time.Hour, "op")}
	w.granted(item("a", "op", big))
	must.Equal(t, w.decide(item("b", "huge", 1))[0].Result, driver.Overflow, "a sum above the range, behind a bucket")
}

// testLookBehind: a look says when units return also behind unused limits.
func testLookBehind(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("unused", 10, time.Hour, "other"), bucket(t, "b", 10, 1, time.Second), rolling("w", 10, time.Hour, "op")}
	w.granted(item("a", "op", 3))
	if v := w.look().Limits[2]; v.Used != 3 || v.NextAt != noon+hour || v.NextAmount != 3 {
		t.Errorf("%+v, want 3 used, which return after an hour", v)
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

// testClosed: a closed store returns an error; closing it twice is not an error.
func testClosed(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 3, time.Hour)}
	w.granted(item("a", "op", 1))
	for range 2 {
		must.Do(t, w.store.Close())
	}
	_, err := w.tryDecide(w.now, item("b", "op", 1))
	w.wantError(err, driver.ErrClosed)
}
