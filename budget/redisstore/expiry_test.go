package redisstore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/must"
)

const day = 24 * time.Hour

// expires is in how long the ledger's keys expire.
func (f *fakeStore) expires() time.Duration {
	f.t.Helper()
	left := must.Get(f.Client().PTTL(f.t.Context(), "quotactl:v1:{"+name+"}:m").Result())(f.t)
	if left < 0 {
		f.t.Fatalf("the ledger does not expire: %d", left)
	}
	return left
}

// one decides an item on a limit of 1000 units.
func (f *fakeStore) one(w limit.Window, item driver.Item, caller int64) driver.Mark {
	f.t.Helper()
	item.Operation, item.Units = "a", 1
	b := driver.Batch{
		Budget: name, Now: caller, Items: []driver.Item{item},
		Limits: []limit.Limit{{Name: "w", Limit: 1000, Counts: limit.CountUnits, Window: w}},
	}
	d := must.Get(f.Decide(f.t.Context(), b))(f.t)
	must.Equal(f.t, d.Items[0].Result, driver.Granted, item.ID)
	return d.Mark
}

// A ledger is kept for as long again as its longest window, an hour to a week. A caller knows for
// how long, to a minute. If the ledger is gone earlier, it was lost; later, it was idle. What limits
// the next call has does not matter.
func TestKeysExpireAfterTheirWindow(t *testing.T) {
	t.Parallel()
	calendar := func(length string) limit.Window {
		return limit.CalendarWindow(must.Get(limit.NewCalendar(length, "UTC", 0))(t))
	}
	for _, c := range []struct {
		window      limit.Window
		least, most time.Duration
	}{
		{limit.RollingWindow(time.Second), 2 * time.Hour, 2 * time.Hour},
		{limit.RollingWindow(time.Minute), 2 * time.Hour, 2 * time.Hour},
		{limit.RollingWindow(day), 2 * day, 2 * day},
		{limit.RollingWindow(30 * day), 37 * day, 37 * day},
		{calendar(limit.Day), 2 * day, 4 * day},
		{calendar(limit.Month), 37 * day, 40 * day},
		{limit.BucketWindow(must.Get(limit.NewRefill(1, 6*time.Second))(t)), 200 * time.Minute, 200 * time.Minute},
	} {
		f, admin := startFake(t)
		told := f.one(c.window, driver.Item{ID: "1"}, f.now)
		if left := f.expires(); left > c.most || left < c.least-5*time.Second {
			t.Errorf("%v: the ledger expires in %s, want %s to %s", c.window, left, c.least, c.most)
		}
		const early = time.Minute
		if kept := time.Duration(told.Kept-told.Seen) * time.Microsecond; kept > c.most-early || kept < c.least-early-5*time.Second {
			t.Errorf("%v: the caller learns that the ledger is kept for %s, want %s to %s", c.window, kept, c.least-early, c.most-early)
		}
		must.Do(t, admin.FlushDB(t.Context()).Err())
		look := driver.Look{Budget: name, Mark: driver.Mark{Ledger: told.Ledger, Changes: told.Changes, Seen: told.Seen, Kept: told.Kept}}
		look.Limits = []limit.Limit{{Name: "other", Limit: 1, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Minute)}}
		for _, past := range []int64{-1, 0} {
			f.now = told.Kept + past
			look.Now = f.now
			_, err := f.Look(t.Context(), look)
			_, inBatch := f.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: look.Limits, Mark: look.Mark})
			if want := past < 0; errors.Is(err, driver.ErrLost) != want || errors.Is(inBatch, driver.ErrLost) != want {
				t.Errorf("%v: gone %d µs after it was kept for sure: %v, %v", c.window, past, err, inBatch)
			}
			must.Do(t, admin.FlushDB(t.Context()).Err())
		}
	}
}

// What counts for longer than the windows do keeps a ledger for longer, whatever is charged beside
// it.
func TestKeysOutliveWhatCounts(t *testing.T) {
	t.Parallel()
	minute := limit.RollingWindow(time.Minute)
	bucket := limit.BucketWindow(must.Get(limit.NewRefill(1, time.Second))(t))
	hours := func(n int64) int64 { return n * time.Hour.Microseconds() }
	for what, c := range map[string]struct {
		make func(f *fakeStore)
		want time.Duration
	}{
		"a reservation": {func(f *fakeStore) { f.one(minute, driver.Item{ID: "x", Lease: hours(20)}, f.now) }, 22 * time.Hour},
		"a hold": {func(f *fakeStore) {
			f.one(minute, driver.Item{ID: "x", Lease: hours(20), Fence: "f", Needs: []driver.Need{{Operation: "a", Units: 1, Calls: 1}}}, f.now)
		}, 21 * time.Hour},
		"a renewed hold": {func(f *fakeStore) {
			f.one(minute, driver.Item{ID: "x", Lease: 1000, Fence: "f", Needs: []driver.Need{{Operation: "a", Units: 1, Calls: 1}}}, f.now)
			must.Get(driver.Apply(f.t.Context(), f, driver.HoldChange{Budget: name, Now: f.now, Fence: "f", Lease: hours(20)}))(f.t)
		}, 21 * time.Hour},
		"a caller whose clock is ahead": {func(f *fakeStore) { f.one(minute, driver.Item{ID: "x"}, f.now+hours(20)) }, 22 * time.Hour},
		"a lock of one limit": {func(f *fakeStore) {
			must.Get(driver.Apply(f.t.Context(), f, driver.Lock{Budget: name, Limit: "other", Now: f.now, After: hours(480), Most: hours(480)}))(f.t)
		}, 481 * time.Hour},
		"what a bucket has above its limit": {func(f *fakeStore) {
			f.one(bucket, driver.Item{ID: "x", Lease: 1000}, f.now)
			must.Get(driver.FinishOne(f.t.Context(), f, name, f.now, driver.Finish{ID: "x", Units: 20 * 3600}))(f.t)
		}, 21 * time.Hour},
	} {
		f, _ := startFake(t)
		c.make(f)
		f.now += time.Minute.Microseconds()
		for _, id := range []string{"1", "2", "3"} {
			told := f.one(minute, driver.Item{ID: id}, f.now)
			left := f.expires() + time.Minute // the server's clock did not advance
			kept := time.Duration(told.Kept-told.Seen)*time.Microsecond + 2*time.Minute
			if left < c.want-15*time.Minute || left > c.want+2*time.Minute || kept < c.want-15*time.Minute || kept > c.want+2*time.Minute {
				t.Errorf("%s: the ledger expires in %s, and callers learn %s; want %s", what, left, kept, c.want)
			}
		}
	}
}

// usual.lua does not note that the keys are used: it charges only while they outlive what it charges.
func TestUsualKeepsKeys(t *testing.T) {
	t.Parallel()
	hours := func(n int64) int64 { return n * time.Hour.Microseconds() }
	for what, c := range map[string]struct {
		window      limit.Window
		lease, skew int64 // of the last charge
		kept        int64 // how long after it stops counting
	}{
		"a month":                 {limit.RollingWindow(30 * day), 0, 0, hours(7*24) - hours(1)/2},
		"a minute":                {limit.RollingWindow(time.Minute), 0, 0, hours(1) - hours(1)/2},
		"a lease":                 {limit.RollingWindow(time.Minute), hours(1) / 3, 0, 0},
		"a longer lease":          {limit.RollingWindow(time.Minute), hours(10), 0, 0},
		"a clock ahead":           {limit.RollingWindow(time.Minute), 0, hours(1) / 7, 0},
		"a clock further ahead":   {limit.RollingWindow(time.Minute), 0, hours(5), 0},
		"both, as far as it goes": {limit.RollingWindow(time.Minute), hours(1) / 3, hours(1)/6 - 10_000_000, 0},
	} {
		f, _ := startFake(t)
		runs := countRuns(f.Store)
		const calls = 400
		for i := range calls {
			f.now += 20 * time.Second.Microseconds()
			item, skew := driver.Item{ID: fmt.Sprint(i)}, int64(0)
			if i == calls-1 {
				item.Lease, skew = c.lease, c.skew
			}
			told := f.one(c.window, item, f.now+skew)
			counts := f.now + skew + item.Lease + max(c.window.Length, time.Hour.Microseconds()) // an id is held for an hour
			expires := 1000 * must.Get(f.Client().HGet(t.Context(), "quotactl:v1:{"+name+"}:m", "exp").Int64())(t)
			if expires < counts+c.kept || told.Kept > expires-60_000_000 {
				t.Fatalf("%s: charge %d counts until %d, the keys expire at %d, and the caller learns %d", what, i, counts, expires, told.Kept)
			}
		}
		if runs.decided.Load() < calls/2 {
			t.Errorf("%s: usual.lua decided %d of %d charges and left %d; charge.lua ran %d times", what, runs.decided.Load(), calls, runs.left.Load(), runs.other.Load())
		}
	}
}
