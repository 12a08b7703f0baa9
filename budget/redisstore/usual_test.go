package redisstore_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// commandHook is the part of a redis.Hook that one for single commands need not change.
type commandHook struct{}

func (commandHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (commandHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// usualRuns counts the script runs of a store: those of usual.lua that decided, those that
// left their items to charge.lua, and all others.
type usualRuns struct {
	commandHook
	usual                string
	decided, left, other atomic.Int64
}

// countRuns counts from now on.
func countRuns(s *redisstore.Store) *usualRuns {
	runs := &usualRuns{usual: redisstore.UsualSHA(s)}
	s.Client().AddHook(runs)
	return runs
}

func (r *usualRuns) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if len(cmd.Args()) < 2 || cmd.Args()[0] != "evalsha" || err != nil {
			return err
		}
		reply := any(nil)
		if c, ok := cmd.(interface{ Val() any }); ok {
			reply = c.Val()
		}
		_, decided := reply.(string)
		switch {
		case cmd.Args()[1] != r.usual:
			r.other.Add(1)
		case decided:
			r.decided.Add(1)
		default:
			r.left.Add(1)
		}
		return err
	}
}

// A usual call is decided in one run of the script for it.
func TestUsualChargesTakeOneRun(t *testing.T) {
	t.Parallel()
	day := must.Get(limit.NewCalendar(limit.Day, "America/Los_Angeles", 0))(t)
	rolling := func(name string, length time.Duration, operations ...string) limit.Limit {
		return limit.Limit{Name: name, Limit: 1_000_000, Counts: limit.CountUnits, Window: limit.RollingWindow(length), Operations: operations}
	}
	hour := rolling("hour", time.Hour)
	calls := rolling("calls", time.Hour)
	calls.Counts = limit.CountCalls
	coarse, calendar, open := hour, hour, calls
	coarse.Window, calendar.Window, open.Window = limit.CoarseWindow(24*time.Hour, time.Minute), limit.CalendarWindow(day), limit.ConcurrentWindow()
	divided := hour
	divided.Shares = []limit.Share{{Name: "a", Jobs: []string{"a"}, Guarantee: 1000}, {Name: "b", Jobs: []string{"b", "b.*"}, Guarantee: 2000}}
	dividedDay := calendar
	dividedDay.Shares = []limit.Share{{Name: "a", Jobs: []string{"a"}, Guarantee: 1000, Lapse: time.Hour.Microseconds()}, {Name: "b", Jobs: []string{"b"}, Guarantee: 2000}}
	observed := hour
	observed.Observe = true
	bucket := hour
	bucket.Window = limit.BucketWindow(must.Get(limit.NewRefill(100, time.Second))(t))
	tries := bucket
	tries.Counts, tries.Operations = limit.CountCalls, []string{"op1", "op2"}
	server := redistest.Start(t)
	for what, c := range map[string]struct {
		limits  []limit.Limit
		item    driver.Item
		unkept  bool
		batches int
		settles bool // what the call before reserved
	}{
		"one limit":           {limits: []limit.Limit{hour}},
		"without history":     {limits: []limit.Limit{hour}, unkept: true},
		"calls":               {limits: []limit.Limit{calls}},
		"three limits":        {limits: []limit.Limit{hour, calls, rolling("day", 24*time.Hour)}},
		"some operations":     {limits: []limit.Limit{hour, rolling("one", time.Hour, "op1"), rolling("two", 24*time.Hour, "op1", "op2"), rolling("not", time.Hour, "!op3")}},
		"a coarse limit":      {limits: []limit.Limit{coarse}},
		"coarse and others":   {limits: []limit.Limit{coarse, calendar, rolling("day", 24*time.Hour)}},
		"a calendar":          {limits: []limit.Limit{calendar, hour}},
		"shares":              {limits: []limit.Limit{divided, calls}},
		"shares of a day":     {limits: []limit.Limit{dividedDay}},
		"observe mode":        {limits: []limit.Limit{observed}},
		"a floor":             {limits: []limit.Limit{divided}, item: driver.Item{Floor: 500, UseHeadroom: true}},
		"no units":            {limits: []limit.Limit{hour}, item: driver.Item{Units: -1}},
		"reservations":        {limits: []limit.Limit{hour, calendar}, item: driver.Item{Lease: time.Minute.Microseconds()}},
		"open reservations":   {limits: []limit.Limit{open, hour}, item: driver.Item{Lease: time.Minute.Microseconds()}},
		"beside reservations": {limits: []limit.Limit{open, hour}},
		"batches":             {limits: []limit.Limit{hour, calls}, batches: 20},
		"a bucket":            {limits: []limit.Limit{bucket}},
		"buckets and others":  {limits: []limit.Limit{bucket, tries, hour, calendar}},
		"batches of a bucket": {limits: []limit.Limit{bucket, tries}, batches: 20},
		"settlements":         {limits: []limit.Limit{hour, coarse, calendar, divided, tries}, item: driver.Item{Lease: time.Minute.Microseconds()}, batches: 3, settles: true},
		"one settlement":      {limits: []limit.Limit{hour}, item: driver.Item{Lease: time.Minute.Microseconds()}, unkept: true, settles: true},
	} {
		t.Run(what, func(t *testing.T) {
			o := redisstore.Options{Prefix: fmt.Sprintf("p%x", what), Timeout: patient}
			if c.unkept {
				o.History = -1
			}
			var now atomic.Int64 // amid a minute and a day: at their ends usual.lua leaves a charge
			now.Store(time.Date(2026, 6, 10, 12, 0, 30, 0, time.UTC).UnixMicro())
			store := must.Get(redisstore.OpenWithClock(server.URL(0), o, now.Load))(t)
			t.Cleanup(func() { _ = store.Close() })
			runs := countRuns(store)
			n, mark, settles := 0, driver.Mark{}, []driver.Finish(nil)
			charge := func() driver.Decisions {
				b := driver.Batch{Budget: name, Now: now.Add(1000), Limits: c.limits, Mark: mark, Host: "0a", Finishes: settles}
				settles = nil
				for range max(1, c.batches) {
					item := c.item
					item.ID, item.Operation, item.Units = fmt.Sprint("i", n), fmt.Sprint("op", n%3+1), c.item.Units+2
					if c.item.Units < 0 {
						item.Units = 0
					}
					item.Labels.Job = []string{"a", "b", "b.c", "none", ""}[n%5]
					b.Items = append(b.Items, item)
					n++
					if c.settles {
						settles = append(settles, driver.Finish{ID: item.ID, Units: item.Units})
					}
				}
				got := must.Get(store.Decide(t.Context(), b))(t)
				mark = got.Mark
				for i, f := range got.Finished {
					must.Equal(t, f, driver.Finished{Result: driver.Settled, At: now.Load(), Now: now.Load()}, "settlement", i)
				}
				must.Equal(t, len(got.Finished), len(b.Finishes), "settlements")
				return got
			}
			for range 15 { // each operation of each job is new to the ledger once
				charge()
			}
			before, left := runs.other.Load(), runs.left.Load()
			const more = 20
			decided := runs.decided.Load()
			for range more {
				for i, d := range charge().Items {
					must.Equal(t, d.Result, driver.Granted, "item", i)
				}
			}
			must.Equal(t, fmt.Sprint(runs.decided.Load()-decided, runs.left.Load()-left, runs.other.Load()-before), fmt.Sprint(more, 0, 0), "runs of usual.lua that decided, those that did not, and others")
		})
	}
}

// An id that is in a batch twice is charged once.
func TestUsualTwiceInABatch(t *testing.T) {
	t.Parallel()
	store := openStore(t, redistest.Start(t).URL(0), redisstore.Options{Timeout: patient})
	limits := []limit.Limit{{Name: "w", Limit: 100, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)}}
	decide := func(ids ...string) driver.Decisions {
		b := driver.Batch{Budget: name, Now: time.Now().UnixMicro(), Limits: limits}
		for _, id := range ids {
			b.Items = append(b.Items, driver.Item{ID: id, Operation: "op", Units: 1})
		}
		return must.Get(store.Decide(t.Context(), b))(t)
	}
	decide("first")
	got := decide("a", "b", "a", "c", "b")
	for i, replayed := range []bool{false, false, true, false, true} {
		d := got.Items[i]
		must.Equal(t, fmt.Sprint(d.Result, d.Replayed), fmt.Sprint(driver.Granted, replayed), "item", i)
	}
	must.Equal(t, got.Items[0].At, got.Items[2].At, "the time of the first answer")
	must.Equal(t, got.Used[0], 4, "used")
}

// A batch of which only a part fits is charged up to there, in order, by whichever script.
func TestUsualPartOfABatch(t *testing.T) {
	t.Parallel()
	store := openStore(t, redistest.Start(t).URL(0), redisstore.Options{Timeout: patient})
	runs := countRuns(store)
	limits := []limit.Limit{{Name: "w", Limit: 10, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)}}
	mark := driver.Mark{}
	decide := func(from int, units ...int64) driver.Decisions {
		b := driver.Batch{Budget: name, Now: time.Now().UnixMicro(), Limits: limits, Mark: mark}
		for i, u := range units {
			b.Items = append(b.Items, driver.Item{ID: fmt.Sprint(from + i), Operation: "op", Units: u})
		}
		got := must.Get(store.Decide(t.Context(), b))(t)
		mark = got.Mark
		return got
	}
	decide(98, 0)
	decide(99, 0)
	decide(0, 1)
	before := runs.decided.Load()      // the first one was not sent by its name
	got := decide(1, 4, 3, 3, 1, 2, 1) // 4 fits, of the two 3 one, 1 does, 2 does not
	want := []driver.Result{driver.Granted, driver.Granted, driver.Refused, driver.Granted, driver.Refused, driver.Granted}
	left := []int64{5, 2, 2, 1, 1, 0}
	for i, d := range got.Items {
		must.Equal(t, fmt.Sprint(d.Result, d.Remaining), fmt.Sprint(want[i], left[i]), "item", i)
	}
	must.Equal(t, runs.decided.Load()-before, 1, "runs of usual.lua that decided")
	must.Equal(t, got.Used[0], 10, "used")
	for i, d := range got.Items {
		if i > 0 && d.At > 0 && got.Items[0].At >= d.At {
			t.Fatalf("item %d is charged at %d, the first at %d", i, d.At, got.Items[0].At)
		}
	}
	must.Equal(t, mark.ID, "6", "the newest charge's id")
}

// A caller that knows another ledger, or more changes of this one, has lost something,
// whatever others charge meanwhile.
func TestUsualNoticesALoss(t *testing.T) {
	t.Parallel()
	store := openStore(t, redistest.Start(t).URL(0), redisstore.Options{Timeout: patient})
	runs := countRuns(store)
	limits := []limit.Limit{{Name: "w", Limit: 1000, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)}}
	n := 0
	decide := func(mark driver.Mark) (driver.Decisions, error) {
		n++
		return store.Decide(t.Context(), driver.Batch{Budget: name, Now: time.Now().UnixMicro(), Limits: limits, Mark: mark, Items: []driver.Item{{ID: fmt.Sprint(n), Operation: "op", Units: 1}}})
	}
	mark := driver.Mark{}
	for range 4 {
		mark = must.Get(decide(mark))(t).Mark
	}
	decided := runs.decided.Load()
	must.Get(decide(mark))(t)
	must.Equal(t, runs.decided.Load()-decided, 1, "runs of usual.lua that decided")
	for what, change := range map[string]func(*driver.Mark){
		"another ledger": func(m *driver.Mark) { m.Ledger = "another" },
		"more changes":   func(m *driver.Mark) { m.Changes += 1000 },
		"another charge": func(m *driver.Mark) { m.ID = "unknown" },
	} {
		wrong := mark
		change(&wrong)
		_, err := decide(wrong)
		check.Is(t, err, driver.ErrLost, what)
	}
}

// While the operations of a ledger become more, what a filter covers changes with each; when
// they are all known, the usual charge takes one run.
func TestUsualAfterManyOperations(t *testing.T) {
	t.Parallel()
	store := openStore(t, redistest.Start(t).URL(0), redisstore.Options{Timeout: patient})
	runs := countRuns(store)
	limits := []limit.Limit{
		{Name: "all", Limit: 10_000, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)},
		{Name: "not", Limit: 10_000, Counts: limit.CountUnits, Window: limit.RollingWindow(2 * time.Hour), Operations: []string{"!op7"}},
	}
	const operations = 120
	used := int64(0)
	charge := func(round, i int) {
		got := must.Get(store.Decide(t.Context(), driver.Batch{Budget: name, Now: time.Now().UnixMicro(), Limits: limits, Items: []driver.Item{
			{ID: fmt.Sprint(round, "/", i), Operation: fmt.Sprint("op", i), Units: 1},
		}}))(t)
		if i != 7 {
			used++
		}
		must.Equal(t, got.Used[1], used, "used of the filter, operation", i)
	}
	for round := range 2 {
		for i := range operations {
			charge(round, i)
		}
	}
	other := runs.other.Load()
	for i := range operations {
		charge(2, i)
	}
	must.Equal(t, runs.other.Load()-other, 0, "runs of charge.lua")
}

// What is guaranteed to a share is kept until it lapses, to the microsecond, and the script
// for the usual charge knows when that is.
func TestUsualSharesLapse(t *testing.T) {
	t.Parallel()
	f, _ := startFake(t)
	runs := countRuns(f.Store)
	day := must.Get(limit.NewCalendar(limit.Day, "UTC", 0))(t)
	limits := []limit.Limit{{
		Name: "day", Limit: 100, Counts: limit.CountUnits, Window: limit.CalendarWindow(day),
		Shares: []limit.Share{{Name: "nightly", Jobs: []string{"nightly"}, Guarantee: 60, Lapse: time.Hour.Microseconds()}},
	}}
	n := 0
	charge := func(job string, units int64) driver.Decision {
		n++
		return must.Get(f.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: limits, Items: []driver.Item{
			{ID: fmt.Sprint(n), Operation: "op", Units: units, Labels: driver.Labels{Job: job}},
		}}))(t).Items[0]
	}
	for range 4 {
		must.Equal(t, charge("other", 9).Result, driver.Granted, "within what is not kept")
	}
	lapses := time.Date(2026, 6, 10, 23, 0, 0, 0, time.UTC).UnixMicro()
	must.Equal(t, charge("nightly", 1).Result, driver.Granted, "the share's own")
	f.now = lapses - 1
	refused := charge("other", 6) // 40 − 36 are left to it
	must.Equal(t, fmt.Sprint(refused.Result, refused.RetryAt), fmt.Sprint(driver.Refused, lapses), "before the guarantee lapses")
	f.now = lapses
	decided, other := runs.decided.Load(), runs.other.Load()
	must.Equal(t, charge("other", 5).Result, driver.Granted, "fewer units, when it lapses")
	must.Equal(t, fmt.Sprint(runs.decided.Load()-decided, runs.other.Load()-other), "1 0", "runs of usual.lua that decided, and others")
}

// A day whose first charge is a usual one has its own id too, by which an import tells
// its history from others.
func TestUsualBeginsADay(t *testing.T) {
	t.Parallel()
	f, admin := startFake(t)
	limits := []limit.Limit{{Name: "w", Limit: 10, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)}}
	charge := func(id string, units int64) driver.Result {
		return must.Get(f.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: limits, Items: []driver.Item{{ID: id, Operation: "op", Units: units}}}))(t).Items[0].Result
	}
	midnight := time.Date(2026, 6, 11, 0, 0, 0, 0, time.UTC).UnixMicro()
	f.now = midnight - 10_000_000
	must.Equal(t, charge("yesterday", 8), driver.Granted)
	f.now = midnight + 120_000_000
	must.Equal(t, charge("too much", 5), driver.Refused, "charge.lua knows the day now, and charged nothing in it")
	runs := countRuns(f.Store)
	must.Equal(t, charge("first", 1), driver.Granted)
	must.Equal(t, charge("second", 1), driver.Granted)
	must.Equal(t, runs.decided.Load() > 0, true, "by usual.lua")
	must.Equal(t, must.Get(admin.HExists(t.Context(), dayKey(f.now), "@").Result())(t), true, "the day has its id")
}

// A batch of many kinds of items under many shares has more numbers than Lua's stack holds; it
// is decided all the same.
func TestUsualBatchOfManyKinds(t *testing.T) {
	t.Parallel()
	store := openStore(t, redistest.Start(t).URL(0), redisstore.Options{Timeout: patient})
	var limits []limit.Limit
	for i := range 3 {
		l := limit.Limit{Name: fmt.Sprint("l", i), Limit: 1_000_000, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Duration(i+1) * time.Hour)}
		for j := range 8 {
			l.Shares = append(l.Shares, limit.Share{Name: fmt.Sprint("s", j), Jobs: []string{fmt.Sprint("j", j)}, Guarantee: 10})
		}
		limits = append(limits, l)
	}
	for round := range 3 {
		b := driver.Batch{Budget: name, Now: time.Now().UnixMicro(), Limits: limits}
		for i := range driver.MaxBatch {
			b.Items = append(b.Items, driver.Item{ID: fmt.Sprint(round, "/", i), Operation: "op", Units: 1, Labels: driver.Labels{Job: fmt.Sprint("j", i%8)}})
		}
		got := must.Get(store.Decide(t.Context(), b))(t)
		must.Equal(t, got.Used[2], int64((round+1)*driver.MaxBatch), "used")
	}
}
