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
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// rolling is a limit on units in a rolling window.
func rolling(name string, most int64, length time.Duration, operations ...string) limit.Limit {
	return limit.Limit{Name: name, Limit: most, Counts: limit.CountUnits, Window: limit.RollingWindow(length), Operations: operations}
}

// A call that was refused is not asked of usual.lua again until charge.lua has granted one.
func TestUsualAfterARefusal(t *testing.T) {
	t.Parallel()
	f, runs, decide := usualFake(t, rolling("w", 100, time.Minute))
	n := 0
	charge := func(operation string, units int64) string {
		t.Helper()
		f.now++
		n++
		decided, left, other := runs.decided.Load(), runs.left.Load(), runs.other.Load()
		got := decide(driver.Item{ID: fmt.Sprint(n), Operation: operation, Units: units})
		return fmt.Sprintf("%d: %d %d %d", got.Items[0].Result, runs.decided.Load()-decided, runs.left.Load()-left, runs.other.Load()-other)
	}
	granted, refused := fmt.Sprintf("%d: ", driver.Granted), fmt.Sprintf("%d: ", driver.Refused)
	charge("a", 60)
	charge("b", 20)
	charge("b", 1) // the first run of usual.lua is sent by its text
	must.Equal(t, charge("a", 30), refused+"0 1 1", "the first refusal")
	must.Equal(t, charge("a", 31), refused+"0 0 1", "a refusal of more")
	must.Equal(t, charge("b", 1), granted+"1 0 0", "another operation")
	must.Equal(t, charge("a", 18), granted+"1 0 0", "fewer units")
	f.now += time.Minute.Microseconds()
	charge("b", 1)
	must.Equal(t, charge("a", 30), granted+"0 0 1", "once it fits")
	must.Equal(t, charge("a", 30), granted+"1 0 0", "after that")
}

// What was only tried has a row too, so that a limit over it alone leaves charges to usual.lua.
func TestUsualBesideAnOperationTried(t *testing.T) {
	t.Parallel()
	f, runs, decide := usualFake(t, rolling("w", 100, time.Minute), rolling("tried", 10, time.Minute, "tried"))
	decide(driver.Item{ID: "dry", Operation: "tried", Units: 1, DryRun: true})
	for i := range 5 {
		f.now++
		decide(driver.Item{ID: fmt.Sprint(i), Operation: "op", Units: 1})
	}
	must.Equal(t, fmt.Sprint(runs.decided.Load(), runs.left.Load()), "3 0", "runs of usual.lua that decided, and that left their item")
}

// The order in which limits come does not matter to a Budget whose limits hold for each operation
// alone, see budget.TestPerOperation; another host's plans do not replace one's own.
func TestUsualOfTwoHosts(t *testing.T) {
	t.Parallel()
	f, _ := startFake(t)
	runs := countRuns(f.Store)
	limits := []limit.Limit{rolling("w", 1000, time.Minute)}
	for i := range 12 {
		f.now++
		must.Get(f.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: limits, Host: []string{"0a", "0b"}[i%2], Items: []driver.Item{{ID: fmt.Sprint(i), Operation: "op", Units: 1}}}))(t)
	}
	// Each host needs charge.lua twice, as the operation is new at first, and sends usual.lua by its text once.
	if decided := runs.decided.Load(); decided < 7 {
		t.Errorf("usual.lua decided %d of 12 charges; it left %d, and charge.lua ran %d times", decided, runs.left.Load(), runs.other.Load())
	}
}

// A window whose counting was given up is counted on beside the calls that have other limits.
func TestUsualBesideAWindowGivenUp(t *testing.T) {
	t.Parallel()
	for _, other := range []limit.Window{
		limit.RollingWindow(time.Hour), limit.CalendarWindow(must.Get(limit.NewCalendar(limit.Day, "UTC", 0))(t)),
		limit.BucketWindow(must.Get(limit.NewRefill(1, time.Second))(t)),
	} {
		f, _ := startFake(t)
		limits := []limit.Limit{{Name: "w", Limit: limit.MaxUnits, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Minute)}}
		early := f.now
		must.Get(f.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: limits, Items: []driver.Item{{ID: "early", Operation: "b", Units: 2, Lease: time.Hour.Microseconds()}}}))(t)
		f.now++
		f.SetMaxSteps(40)
		f.charge("first", 300)
		n := 0
		decide := func(ctx context.Context, limits ...limit.Limit) error {
			f.now++
			n++
			_, err := f.Decide(ctx, driver.Batch{Budget: name, Now: f.now, Limits: limits, Items: []driver.Item{{ID: fmt.Sprint(n), Operation: "a", Units: 1}}})
			return err
		}
		// The other window is begun, and its caller gives up after one run.
		runs := countRuns(f.Store)
		ctx, cancel := context.WithCancel(t.Context())
		f.Client().AddHook(after{end: cancel})
		if err := decide(ctx, limits[0], limit.Limit{Name: "v", Limit: 1_000_000, Counts: limit.CountUnits, Window: other}); !errors.Is(err, context.Canceled) {
			t.Fatalf("a call that gave up: %v", err)
		}
		cancel()
		// What has been counted may have changed since.
		f.now += 1000
		must.Get(driver.FinishOne(t.Context(), f, name, f.now, driver.Finish{ID: "early", Units: 9, Age: f.now - early - 10}))(t)
		before := runs.decided.Load()
		for i := range 40 {
			must.Do(t, decide(t.Context(), limits...))
			if id := fmt.Sprint("reserved", i); i%3 == 0 {
				f.now++
				must.Get(f.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: limits, Items: []driver.Item{{ID: id, Operation: "b", Units: 2, Lease: time.Hour.Microseconds()}}}))(t)
				f.now++
				must.Get(driver.FinishOne(t.Context(), f, name, f.now, driver.Finish{ID: id, Units: 5}))(t)
			}
		}
		if decided := runs.decided.Load() - before; decided < 10 {
			t.Errorf("usual.lua decided %d of 40 charges beside a window of kind %s that was given up", decided, other.Kind)
		}
		if other.Kind == limit.Bucket { // another over the same operations is counted at once
			v := limit.Limit{Name: "v", Limit: 1_000_000, Counts: limit.CountUnits, Window: other}
			w := v
			w.Operations = []string{"a", "b"}
			f.SetMaxSteps(10_000)
			view := must.Get(f.Look(t.Context(), driver.Look{Budget: name, Now: f.now, Limits: []limit.Limit{v, w}}))(t)
			must.Equal(t, view.Limits[0].Used, view.Limits[1].Used, "used in the bucket that was given up")
		}
	}
}

// after is a hook that ends a context after a command.
type after struct {
	commandHook
	end context.CancelFunc
}

func (a after) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		defer a.end()
		return next(ctx, cmd)
	}
}

// broken is a hook that has a script fail.
type broken struct {
	commandHook
	sha  string
	runs int
}

func (b *broken) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) < 2 || args[1] != b.sha {
			return next(ctx, cmd)
		}
		b.runs++
		err := scriptError("ERR user_script:1: attempt to index a nil value script: " + b.sha + ", on @user_script:1.")
		cmd.SetErr(err)
		return err
	}
}

// scriptError is an answer of Redis.
type scriptError string

func (e scriptError) Error() string { return string(e) }
func (e scriptError) RedisError()   {}

// Where usual.lua fails, charge.lua decides.
func TestUsualFails(t *testing.T) {
	t.Parallel()
	f, _, decide := usualFake(t, rolling("w", 3, time.Minute))
	hook := &broken{sha: redisstore.UsualSHA(f.Store)}
	f.Client().AddHook(hook)
	for i := range 4 {
		f.now++
		must.Equal(t, decide(driver.Item{ID: fmt.Sprint(i), Operation: "op", Units: 1}).Used[0], int64(min(i+1, 3)), "used after charge", i)
	}
	if hook.runs == 0 {
		t.Error("usual.lua was not run")
	}
}

// More windows than Lua's stack has room for their totals.
func TestManyWindows(t *testing.T) {
	t.Parallel()
	f, _ := startFake(t)
	n := int64(0)
	decide := func(limits ...limit.Limit) driver.Decisions {
		n++
		f.now++
		return must.Get(f.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: limits, Items: []driver.Item{{ID: fmt.Sprint(n), Operation: "op", Units: 2}}}))(t)
	}
	for round := range 12 {
		var limits []limit.Limit
		for i := range 100 {
			limits = append(limits, rolling(fmt.Sprint(i), 1000, time.Hour+time.Duration(100*round+i)*time.Second))
		}
		must.Equal(t, decide(limits...).Used[99], 2*n, "used in round", round)
	}
	must.Equal(t, decide(rolling("w", 1000, time.Hour)).Used[0], 2*n, "used beside 1,200 windows")
	f.now += 2 * time.Hour.Microseconds()
	must.Equal(t, decide(rolling("w", 1000, time.Hour)).Used[0], 2, "used when all has left")
}

// More of many operations is due at once than one run of usual.lua may read.
func TestUsualReadsLittle(t *testing.T) {
	t.Parallel()
	f, runs, decide := usualFake(t, rolling("w", 1_000_000, time.Minute), rolling("v", 1_000_000, time.Minute+time.Microsecond))
	fill := func(round int) {
		for k := range 90 {
			items := make([]driver.Item, 20)
			for i := range items {
				items[i] = driver.Item{ID: fmt.Sprint(round, k, " ", i), Operation: fmt.Sprint("op", k), Units: 1}
			}
			decide(items...)
		}
		f.now++
	}
	fill(1)
	fill(2)
	f.now += time.Minute.Microseconds() + 10_000
	left, other := runs.left.Load(), runs.other.Load()
	must.Equal(t, decide(driver.Item{ID: "last", Operation: "op1", Units: 1}).Used[0], 1, "used when all has left")
	if runs.left.Load() != left+1 || runs.other.Load() == other {
		t.Errorf("usual.lua left %d batches to charge.lua, which ran %d times", runs.left.Load()-left, runs.other.Load()-other)
	}
}

// Many refused calls of a batch that need much of the window back read its entries once.
func TestRefusedBatchReadsOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := openStore(t, server.URL(0), redisstore.Options{Timeout: patient})
	limits := []limit.Limit{rolling("w", 10_000, time.Hour)}
	n := 0
	decide := func(operation string, count int, units int64) []driver.Decision {
		n++
		items := make([]driver.Item, count)
		for i := range items {
			items[i] = driver.Item{ID: fmt.Sprint(n, " ", i), Operation: operation, Units: units}
		}
		return must.Get(store.Decide(t.Context(), driver.Batch{Budget: name, Now: time.Now().UnixMicro(), Limits: limits, Items: items}))(t).Items
	}
	var at []int64 // when each unit was charged
	fill := func(operation string, count int) {
		for ; count > 0; count -= 100 {
			for _, d := range decide(operation, 100, 1) {
				at = append(at, d.At)
			}
		}
	}
	fill("b", 900)
	fill("a", 6000)
	fill("b", 1000)
	runs := countRuns(store)
	for i, d := range decide("a", driver.MaxBatch, 9_000) {
		must.Equal(t, fmt.Sprint(d.Result, " ", d.RetryAt), fmt.Sprint(driver.Refused, " ", at[len(at)-1_001]+time.Hour.Microseconds()), "refusal", i)
	}
	if other := runs.other.Load(); other > driver.MaxBatch/10 {
		t.Errorf("the refusals took %d runs", other)
	}
}
