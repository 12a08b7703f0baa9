package redisstore_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// In the midst of a batch much leaves the window, more than a script run takes off
// it: the next item waits until all is off.
func TestItemAfterMuchHasLeft(t *testing.T) {
	t.Parallel()
	f := openFake(t, redistest.Start(t).URL(0))
	f.SetMaxSteps(3)
	limits := []limit.Limit{{Name: "w", Limit: 12, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Minute)}}
	decide := func(items ...driver.Item) {
		t.Helper()
		got := must.Get(f.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: limits, Items: items}))(t)
		for i, d := range got.Items {
			must.Equal(t, d.Result, driver.Granted, items[i].ID, d)
		}
	}
	var ids []string
	for i := range 10 {
		ids = append(ids, fmt.Sprint("r", i))
		decide(driver.Item{ID: ids[i], Operation: []string{"a", "b"}[i%2], Units: 1, Lease: time.Hour.Microseconds()})
	}
	f.now += time.Second.Microseconds()
	for _, id := range ids { // all leave the window at one instant
		must.Equal(t, must.Get(driver.FinishOne(t.Context(), f, name, f.now, driver.Finish{ID: id, Units: 1}))(t).Result, driver.Settled)
	}
	f.now += time.Minute.Microseconds() - 1
	one := func(id string, units int64) driver.Item { return driver.Item{ID: id, Operation: "a", Units: units} }
	decide(one("before", 1), one("a microsecond later", 1), one("fits then", 8))
}

// The surviving entries are summed for each limit in as many script runs as that takes; a
// limit whose sum is done waits for the others, and does not begin again. The scripts walk
// over the side with fewer entries.
func TestRecoveryOfManyEntriesEnds(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client()
	for seenAfter, most := range map[int]int{10: 10 + 1, 30: 10 + 1} { // of 40 charges of an operation, which are in no block
		f := openFake(t, server.URL(0))
		f.SetMaxSteps(3)
		must.Do(t, admin.FlushAll(t.Context()).Err())
		var limits []limit.Limit
		for _, operation := range []string{"a", "b", "c"} {
			limits = append(limits, limit.Limit{Name: operation, Limit: 100, Counts: limit.CountCalls, Window: limit.RollingWindow(time.Hour), Operations: []string{operation}})
		}
		var at int64
		want := []int64{5, 6, 7}
		r := driver.Recovery{Budget: name, Limits: limits, Used: slices.Clone(want)}
		for i := range 40 {
			if i == seenAfter {
				at = f.now
			}
			for j, operation := range []string{"a", "b", "c"} {
				if i%(j+1) > 0 { // fewer of one than of the other
					continue
				}
				f.now++
				got := must.Get(f.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: limits, Items: []driver.Item{{ID: fmt.Sprint(operation, i), Operation: operation}}}))(t)
				must.Equal(t, got.Items[0].Result, driver.Granted)
				if i < seenAfter {
					r.Used[j]++
				}
			}
		}
		r.Now, r.At, r.Mark = f.now, at, driver.Mark{ID: "lost", At: at}
		before := scriptRuns(admin)
		got, err := driver.Apply(t.Context(), f, r)
		if err != nil || !slices.Equal(got.Amounts, want) {
			t.Fatalf("seen after %d: %+v, %v; want %v", seenAfter, got, err, want)
		}
		if runs := scriptRuns(admin) - before; runs > most {
			t.Errorf("seen after %d: %d script runs, want at most %d", seenAfter, runs, most)
		}
	}
}

// Entries that leave the window while the surviving ones are summed count in the sum no more.
func TestRecoveryWhileTheWindowMoves(t *testing.T) {
	t.Parallel()
	f := openFake(t, redistest.Start(t).URL(0))
	limits := []limit.Limit{{Name: "w", Limit: 1000, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)}}
	at := int64(0)
	for i := range 59 {
		if i == 20 {
			at = f.now
		}
		f.now += time.Minute.Microseconds()
		got := must.Get(f.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: limits, Items: []driver.Item{{ID: fmt.Sprint(i), Operation: "a", Units: 1}}}))(t)
		must.Equal(t, got.Items[0].Result, driver.Granted)
	}
	f.SetMaxSteps(12)                        // only now, so that the ledger has no sums of blocks
	f.ahead = 5 * time.Minute.Microseconds() // from one script run to the next
	got := must.Get(driver.Apply(t.Context(), f, driver.Recovery{Budget: name, Now: f.now + time.Hour.Microseconds(), Limits: limits, Used: []int64{100}, At: at, Mark: driver.Mark{ID: "lost", At: at}}))(t)
	f.ahead = 0
	view, err := f.Look(t.Context(), driver.Look{Budget: name, Now: f.now, Limits: limits})
	if err != nil || view.Limits[0].Used != 100+39 || got.Amounts[0] < 83 {
		t.Fatalf("%d used, %d of it recovered, %v; want the 100 that were seen, of which some have left, and the 39 after", view.Limits[0].Used, got.Amounts[0], err)
	}
}

// A host that saw little recovers it in a few script runs, however much others have
// charged since the loss, and whatever they settle.
func TestRecoveryOfAnIdleHost(t *testing.T) {
	t.Parallel()
	f, admin := startFake(t)
	limits := []limit.Limit{
		{Name: "day", Limit: 1_000_000, Counts: limit.CountUnits, Window: limit.RollingWindow(24 * time.Hour)},
		{Name: "calls", Limit: 1_000_000, Counts: limit.CountCalls, Window: limit.RollingWindow(24 * time.Hour)},
		{Name: "coarse", Limit: 1_000_000, Counts: limit.CountUnits, Window: limit.CoarseWindow(24*time.Hour, time.Minute)},
	}
	n := 0
	charge := func(many int) driver.Decisions {
		t.Helper()
		var got driver.Decisions
		for end := n + many; n < end; {
			batch := driver.Batch{Budget: name, Limits: limits}
			for ; n < end && len(batch.Items) < driver.MaxBatch; n++ {
				batch.Items = append(batch.Items, driver.Item{ID: strconv.Itoa(n), Operation: "list", Units: int64(n % 2)})
			}
			f.now += time.Second.Microseconds()
			batch.Now = f.now
			var err error
			if got, err = f.Decide(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
		}
		return got
	}
	seen := charge(10)
	must.Do(t, admin.FlushAll(t.Context()).Err())
	charge(20_000)
	before := scriptRuns(admin)
	got, err := driver.Apply(t.Context(), f, driver.Recovery{Budget: name, Now: f.now, Limits: limits, Used: seen.Used, At: seen.Seen, Mark: seen.Mark})
	if err != nil || !slices.Equal(got.Amounts, []int64{5, 10, 5}) {
		t.Fatalf("%+v, %v; want what was seen of each", got, err)
	}
	if runs := scriptRuns(admin) - before; runs > 3 {
		t.Errorf("%d script runs, want a few", runs)
	}
	view, err := f.Look(t.Context(), driver.Look{Budget: name, Now: f.now, Limits: limits})
	if err != nil || view.Limits[0].Used != 10_005 || view.Limits[1].Used != 20_010 || view.Limits[2].Used != 10_005 {
		t.Fatalf("%+v, %v", view.Limits, err)
	}
}

// A ledger that is lost between two script runs of one batch begins at the time of
// the second.
func TestLossAmidABatch(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client()
	now, runs, lostAt := time.Date(2026, 6, 10, 12, 0, 0, 0, time.UTC).UnixMicro(), 0, -1
	s := must.Get(redisstore.OpenWithClock(server.URL(0), redisstore.Options{Timeout: patient}, func() int64 {
		if runs++; runs == lostAt {
			check.NoError(t, admin.FlushAll(t.Context()).Err())
		}
		return now
	}))(t)
	defer func() { _ = s.Close() }()
	hour, day := rolling("hour", 40, time.Hour), rolling("day", 1000, 24*time.Hour)
	decide := func(item driver.Item, limits ...limit.Limit) driver.Result {
		t.Helper()
		got := must.Get(s.Decide(t.Context(), driver.Batch{Budget: name, Now: now, Limits: limits, Items: []driver.Item{item}}))(t)
		return got.Items[0].Result
	}
	for run := 1; ; run++ { // of those that the batch takes, the one before which the ledger is lost
		s.SetMaxSteps(1000)
		for i := range 40 {
			now++
			must.Equal(t, decide(driver.Item{ID: fmt.Sprint(run, "/", i), Operation: "a", Units: 1}, hour), driver.Granted)
		}
		s.SetMaxSteps(3)
		lostAt = runs + run
		got := decide(driver.Item{ID: fmt.Sprint(run, "/all"), Operation: "a", Units: 40}, hour, day) // day is counted run by run
		if runs < lostAt {
			must.Equal(t, got, driver.Refused, "a batch that ended before the ledger was lost")
			if run < 6 {
				t.Fatalf("it took %d script runs", run-1)
			}
			return
		}
		must.Equal(t, got, driver.Granted, "what fits an empty ledger, lost before run", run)
		born := must.Get(admin.HGet(t.Context(), "quotactl:v1:{"+name+"}:m", "born").Result())(t)
		must.Equal(t, born, strconv.FormatInt(now, 10), "born, lost before run", run)
		must.Equal(t, int64(stateNumber(t, admin, redisstore.StateLast)), now, "last seen, lost before run", run)
		must.Do(t, admin.FlushAll(t.Context()).Err())
	}
}
