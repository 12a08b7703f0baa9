package redisstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

const aFence = "~daily/7"

// holdOf is an item that holds units and calls of "read".
func holdOf(units, calls int64, lease time.Duration) driver.Item {
	return driver.Item{
		ID: "hold", Units: units, Fence: aFence, Labels: driver.Labels{Job: "daily"}, Lease: lease.Microseconds(), Span: time.Minute.Microseconds(),
		Needs: []driver.Need{{Operation: "read", Units: units, Calls: calls}},
	}
}

// drawing is a charge of the pass that holds.
func drawing(id string, units int64) driver.Item {
	return driver.Item{ID: id, Operation: "read", Units: units, Fence: aFence, Labels: driver.Labels{Job: "daily", Region: "US"}}
}

func results(d driver.Decisions) (list []driver.Result) {
	for _, one := range d.Items {
		list = append(list, one.Result)
	}
	return list
}

// While a hold lives, clients that decided by usual.lua before spend nothing that is held; after
// its end they decide by it again.
func TestUsualBesideAHold(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	holder, other := openFake(t, server.URL(0)), openFake(t, server.URL(0))
	limits := []limit.Limit{rolling("day", 100, 24*time.Hour)}
	runs, n := countRuns(other.Store), 0
	decide := func(f *fakeStore, items ...driver.Item) driver.Decisions {
		t.Helper()
		holder.now++
		other.now = holder.now
		return must.Get(f.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: limits, Items: items}))(t)
	}
	charge := func(units int64) driver.Decision {
		t.Helper()
		n++
		return decide(other, driver.Item{ID: fmt.Sprint(n), Operation: "read", Units: units}).Items[0]
	}
	for range 3 {
		must.Equal(t, charge(10).Result, driver.Granted, "a charge before")
	}
	must.Equal(t, runs.decided.Load() > 0, true, "that usual.lua decided")
	must.Equal(t, decide(holder, holdOf(60, 6, time.Minute)).Items[0].Result, driver.Granted, "the hold")
	until := holder.now + time.Minute.Microseconds()
	decided := runs.decided.Load()
	got := charge(11)
	must.Equal(t, fmt.Sprint(got.Result, " ", got.Remaining, " ", got.RetryAt-until), fmt.Sprint(driver.Refused, " ", 10, " ", 0), "what another one is refused")
	must.Equal(t, charge(10).Result, driver.Granted, "what is not held")
	must.Equal(t, fmt.Sprint(results(decide(holder, drawing("x", 60), drawing("y", 1)))), fmt.Sprint([]driver.Result{driver.Granted, driver.Refused}), "draws of all that is held, and of more")
	must.Equal(t, runs.decided.Load(), decided, "runs of usual.lua beside the hold")
	holder.now, n = until, 100
	limits[0].Limit = 1000
	for range 4 {
		must.Equal(t, charge(1).Result, driver.Granted, "a charge after")
	}
	must.Equal(t, runs.decided.Load() > decided, true, "that usual.lua decides again")
}

// A program that knows no holds does not decide on a ledger in which one was taken: its format
// differs from then on, until a reset.
func TestFormatOfAHold(t *testing.T) {
	t.Parallel()
	f, admin := startFake(t)
	limits := []limit.Limit{rolling("day", 100, 24*time.Hour)}
	format := func() string {
		return must.Get(admin.HGet(t.Context(), "quotactl:v1:{"+name+"}:m", "v").Result())(t)
	}
	decide := func(items ...driver.Item) driver.Decisions {
		t.Helper()
		f.now++
		return must.Get(f.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: limits, Items: items}))(t)
	}
	decide(driver.Item{ID: "a", Operation: "read", Units: 1})
	must.Equal(t, format(), "3", "the format before")
	lease := driver.Item{ID: "open", Operation: "read", Units: 5, Lease: time.Minute.Microseconds(), Fence: aFence}
	must.Equal(t, fmt.Sprint(results(decide(holdOf(20, 2, time.Second), lease))), fmt.Sprint([]driver.Result{driver.Granted, driver.Granted}), "a hold and a draw")
	must.Equal(t, format(), "4", "the format beside a hold")
	f.now += time.Second.Microseconds()
	decide(driver.Item{ID: "b", Operation: "read", Units: 1})
	must.Equal(t, format(), "4", "the format after the hold")
	var exported exportedRows
	must.Do(t, f.Export(t.Context(), driver.Export{Budget: name, Now: f.now}, &exported))
	must.Equal(t, len(exported), 4, "exported rows, one of the history")
	for _, row := range exported {
		check.Equal(t, row.Observed, false, "that it is observed", row)
	}
	must.Get(driver.Apply(t.Context(), f, driver.AcceptClock{Budget: name}))(t)
	must.Get(driver.Apply(t.Context(), f, driver.Reset{Budget: name}))(t)
	must.Equal(t, format(), "3", "the format after a reset")
}

// A refusal beside many holds is asked for in bounded runs, and tells the same.
func TestRefusalBesideManyHolds(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	limits := []limit.Limit{rolling("day", 1000, 24*time.Hour), rolling("hour", 500, time.Hour)}
	for db, steps := range []int{2000, 7} {
		f := openFake(t, server.URL(db))
		f.SetMaxSteps(steps)
		decide := func(items ...driver.Item) driver.Decisions {
			t.Helper()
			f.now++
			return must.Get(f.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: limits, Items: items}))(t)
		}
		for i := range 40 {
			decide(driver.Item{ID: fmt.Sprint(i), Operation: "read", Units: 2})
		}
		var ends []int64
		for i := range 30 {
			h := holdOf(10, 1, time.Duration(i+1)*time.Minute)
			h.Fence = fmt.Sprint("~daily/", i)
			must.Equal(t, decide(h).Items[0].Result, driver.Granted, "a hold")
			ends = append(ends, f.now+h.Lease)
		}
		// 80 are used, and 300 held.
		got := decide(driver.Item{ID: "x", Operation: "read", Units: 325}, driver.Item{ID: "y", Operation: "read", Units: 120}).Items
		check.Equal(t, got[0].Result, driver.Refused, "result", steps)
		check.Equal(t, got[0].RetryAt, ends[20], "when 205 of those that are held have returned, with steps", steps)
		check.Equal(t, got[0].Limit, 1, "limit", steps)
		check.Equal(t, got[0].Remaining, 120, "remaining", steps)
		check.Equal(t, got[1].Result, driver.Granted, "the next item's result", steps)
		view := must.Get(f.Look(t.Context(), driver.Look{Budget: name, Now: f.now, Limits: limits}))(t)
		check.Equal(t, fmt.Sprint(view.Limits[0].Used, len(view.Holds), view.Holds[0].Left), "200 30 [{read 10 1}]", "a look", steps)
	}
}

// What was held is not lost to a charge that another client makes between two runs of a refusal:
// the item is granted if it fits by then.
func TestHoldEndsAmidARefusal(t *testing.T) {
	t.Parallel()
	f, _ := startFake(t)
	f.SetMaxSteps(7)
	limits := []limit.Limit{rolling("hour", 100, time.Hour)}
	batch := func(items ...driver.Item) driver.Batch {
		f.now++
		return driver.Batch{Budget: name, Now: f.now, Limits: limits, Items: items}
	}
	for i := range 40 {
		must.Get(f.Decide(t.Context(), batch(driver.Item{ID: fmt.Sprint(i), Operation: "read", Units: 1})))(t)
	}
	must.Get(f.Decide(t.Context(), batch(holdOf(50, 5, time.Minute))))(t)
	ended := false
	f.Client().AddHook(&between{do: func() {
		if !ended {
			ended = true
			left := must.Get(driver.Apply(t.Context(), f, driver.HoldChange{Budget: name, Now: f.now, Fence: aFence}))(t)
			must.Equal(t, fmt.Sprint(left.Holds[0].Left), "[{read 50 5}]", "what was left")
		}
	}})
	got := must.Get(f.Decide(t.Context(), batch(driver.Item{ID: "x", Operation: "read", Units: 60})))(t)
	must.Equal(t, got.Items[0].Result, driver.Granted, "result")
	must.Equal(t, got.Used[0], 100, "used")
}

// between is a hook that does something after the first command that is not of its own.
type between struct {
	commandHook
	do     func()
	within bool
}

func (b *between) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if !b.within {
			b.within = true
			b.do()
			b.within = false
		}
		return err
	}
}

// exportedRows keeps what an export writes.
type exportedRows []driver.Row

func (e *exportedRows) Head(driver.LedgerHead) error { return nil }

func (e *exportedRows) Row(r driver.Row) error {
	*e = append(*e, r)
	return nil
}
