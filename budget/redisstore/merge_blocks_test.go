package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/must"
)

// The charges of a coarse window are summed in blocks also after older entries have been merged,
// and while they are merged further: a long walk and a new window read few of them.
func TestBlocksBesideMergedEntries(t *testing.T) {
	t.Parallel()
	f, _ := startFake(t)
	f.SetMaxSteps(200) // so a block has 50
	runs := countRuns(f.Store)
	week := limit.Limit{Name: "w", Limit: 3000, Counts: limit.CountUnits, Window: limit.CoarseWindow(7*24*time.Hour, time.Minute)}
	n := 0
	decide := func(units int64, count int, limits ...limit.Limit) driver.Decisions {
		n++
		f.now++
		items := make([]driver.Item, count)
		for i := range items {
			items[i] = driver.Item{ID: fmt.Sprint(n, " ", i), Operation: "op", Units: units}
		}
		return must.Get(f.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: limits, Items: items}))(t)
	}
	minutes := func(count int) {
		for range count {
			for range 4 {
				decide(1, 10, week)
			}
			f.now += time.Minute.Microseconds()
		}
	}
	few := func(what string, do func()) {
		t.Helper()
		before := runs.other.Load()
		do()
		if took := runs.other.Load() - before; took > 3 {
			t.Errorf("%s took %d runs", what, took)
		}
	}
	minutes(15)
	f.now += 2 * time.Hour.Microseconds() // what was charged is merged
	second := f.now
	minutes(50)
	must.Equal(t, decide(1, 1, week).Used[0], 15*40+50*40+1, "used")
	few("the refusal", func() {
		got := decide(2000, 1, week).Items[0] // 1601 must return: those of the first minutes, and 1001 of the second
		must.Equal(t, fmt.Sprint(got.Result, " ", got.RetryAt), fmt.Sprint(driver.Refused, " ", week.Window.Returns(second+25*time.Minute.Microseconds()+1)), "the refusal")
	})
	few("a new window", func() {
		v := limit.Limit{Name: "v", Limit: 3000, Counts: limit.CountUnits, Window: limit.CoarseWindow(8*24*time.Hour, time.Minute)}
		must.Equal(t, decide(1, 1, week, v).Used[1], 65*40+2, "used in a new window")
	})
	f.now += 20 * time.Minute.Microseconds() // the first ten minutes of the second are merged too
	must.Equal(t, decide(1, 1, week).Used[0], 65*40+3, "used")
	few("a refusal after a further merge", func() {
		got := decide(2000, 1, week).Items[0]
		must.Equal(t, fmt.Sprint(got.Result, " ", got.RetryAt), fmt.Sprint(driver.Refused, " ", week.Window.Returns(second+25*time.Minute.Microseconds()+1)), "the refusal")
	})
	f.now = week.Window.Returns(second + 25*time.Minute.Microseconds() + 1)
	must.Equal(t, decide(1, 1, week).Used[0], 24*40+4, "used when what was before has left")
}

// Entries that no window counts any more once their ids are forgotten are not merged: they leave
// a coarse window as fast as another.
func TestNothingIsMergedForNobody(t *testing.T) {
	t.Parallel()
	f, runs, decide := usualFake(t, limit.Limit{Name: "w", Limit: 100_000, Counts: limit.CountUnits, Window: limit.CoarseWindow(24*time.Hour, time.Minute)})
	f.SetMaxSteps(200)
	for k := range 300 {
		f.now++
		items := make([]driver.Item, 10)
		for i := range items {
			items[i] = driver.Item{ID: fmt.Sprint(k, " ", i), Operation: "op", Units: 1}
		}
		decide(items...)
	}
	f.now += 25 * time.Hour.Microseconds()
	other := runs.other.Load()
	must.Equal(t, decide(driver.Item{ID: "last", Operation: "op", Units: 1}).Used[0], 1, "used")
	if took := runs.other.Load() - other; took > 5 {
		t.Errorf("the decision took %d runs", took)
	}
}

// A look forgets nothing, and so merges nothing: what a longer window counts that begins after it
// stays there when its id is charged again.
func TestLookMergesNothing(t *testing.T) {
	t.Parallel()
	f, _ := startFake(t)
	day := limit.Limit{Name: "day", Limit: 1000, Counts: limit.CountUnits, Window: limit.CoarseWindow(24*time.Hour, time.Minute)}
	week := limit.Limit{Name: "week", Limit: 1000, Counts: limit.CountUnits, Window: limit.CoarseWindow(8*24*time.Hour, time.Minute)}
	decide := func(id string, limits ...limit.Limit) driver.Decisions {
		f.now++
		return must.Get(f.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: limits, Items: []driver.Item{{ID: id, Operation: "op", Units: 5}}}))(t)
	}
	decide("a", day)
	f.now += 25 * time.Hour.Microseconds()
	must.Get(f.Look(t.Context(), driver.Look{Budget: name, Now: f.now, Limits: []limit.Limit{day}}))(t)
	must.Equal(t, fmt.Sprint(decide("b", day, week).Used), "[5 10]", "used when the longer window begins")
	must.Equal(t, fmt.Sprint(decide("a", day, week).Used), "[10 15]", "used when the id is charged again")
}

// A merge that a new window puts an end to does not keep usual.lua away while that window lasts.
// Ids that it has not reached stand for their charges on.
func TestUsualAfterAMergeThatEnds(t *testing.T) {
	t.Parallel()
	f, admin := startFake(t)
	f.SetMaxSteps(40)
	coarse := limit.Limit{Name: "day", Limit: 10_000, Counts: limit.CountUnits, Window: limit.CoarseWindow(24*time.Hour, time.Minute)}
	n := 0
	decide := func(ctx context.Context, limits ...limit.Limit) (driver.Decisions, error) {
		f.now++
		n++
		return f.Decide(ctx, driver.Batch{Budget: name, Now: f.now, Limits: limits, Items: []driver.Item{{ID: fmt.Sprint(n), Operation: "op", Units: 1}}})
	}
	for range 300 {
		must.Get(decide(t.Context(), coarse))(t)
	}
	f.now += 2 * time.Hour.Microseconds()
	ctx, cancel := context.WithCancel(t.Context())
	f.Client().AddHook(&endAfter{commands: 2, end: cancel}) // usual.lua leaves it to charge.lua, which merges a page
	if _, err := decide(ctx, coarse); !errors.Is(err, context.Canceled) {
		t.Fatalf("a call that gave up: %v", err)
	}
	must.Equal(t, must.Get(admin.HGet(t.Context(), "quotactl:v1:{"+name+"}:m", "mpos").Result())(t) != "", true, "that a merge is under way")
	exact := rolling("exact", 10_000, 3*time.Hour)
	runs := countRuns(f.Store)
	for i := range 20 {
		got := must.Get(decide(t.Context(), coarse, exact))(t)
		must.Equal(t, got.Used[0], int64(301+i), "used of the coarse limit")
	}
	if decided := runs.decided.Load(); decided < 15 {
		t.Errorf("usual.lua decided %d of 20 charges", decided)
	}
	n = 299
	again := must.Get(decide(t.Context(), coarse, exact))(t)
	must.Equal(t, again.Items[0].Replayed, true, "a replay of an id that was not merged")
	must.Equal(t, again.Used[0], int64(320), "used after that")
	n = 0
	again = must.Get(decide(t.Context(), coarse, exact))(t)
	must.Equal(t, again.Items[0].Replayed, false, "a replay of an id that was merged")
	must.Equal(t, again.Used[0], int64(321), "used after that")
}

// endAfter is a hook that ends a context after so many commands.
type endAfter struct {
	commandHook
	commands int
	end      context.CancelFunc
}

func (e *endAfter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if e.commands--; e.commands == 0 {
			e.end()
		}
		return err
	}
}
