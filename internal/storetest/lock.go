package storetest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/must"
)

// lock locks at the world's instant.
func (w *world) lock(r driver.Lock) driver.Locked {
	w.t.Helper()
	if r.Most == 0 {
		r.Most = driver.MaxLock
	}
	r.Budget, r.Now = w.budget, w.now
	got, err := driver.Apply(context.Background(), w.store, r)
	if err != nil {
		w.t.Fatalf("lock %+v: %v", r, err)
	}
	return got
}

func (w *world) unlock(limit string, want bool) {
	w.t.Helper()
	got, err := driver.Apply(context.Background(), w.store, driver.Unlock{Budget: w.budget, Now: w.now, Limit: limit})
	must.Do(w.t, err)
	must.Equal(w.t, got.Stood, want, "unlock", limit)
}

// wantLocks checks the locks in force.
func (w *world) wantLocks(want ...driver.LockView) {
	w.t.Helper()
	if got := w.look().Locks; !slices.Equal(got, want) {
		w.t.Fatalf("locks %+v, want %+v", got, want)
	}
}

// A lock refuses everything exactly until its end, and charges nothing. Earlier charges
// are answered and finished as usual.
func testLock(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 100, time.Hour), rolling("search", 50, time.Minute, "search.list")}
	w.granted(item("a", "op", 10))
	w.granted(lease(item("open", "op", 10), time.Hour))
	w.now += second // charges at one instant are a microsecond apart
	begun := w.now
	got := w.lock(driver.Lock{After: 10 * minute, Why: "quotaExceeded: 403"})
	want := driver.LockView{Until: begun + 10*minute, Since: begun, Why: "quotaExceeded: 403"}
	must.Equal(t, got, (driver.Locked{Now: begun, Until: want.Until, Since: begun, Why: want.Why}), "locked, want", want)
	w.wantLocks(want)
	d := w.decide(item("b", "op", 0), item("c", "search.list", 1), item("a", "op", 10), item("never", "op", 101))
	for i := range 2 {
		if d[i].Result != driver.Refused || !d[i].Locked || d[i].Limit != -1 || d[i].RetryAt != want.Until || d[i].Why != want.Why {
			t.Fatalf("while locked: %+v", d[i])
		}
	}
	if !d[2].Replayed || d[3].Result != driver.NeverFits {
		t.Fatalf("while locked, what was charged %+v, and what never fits %+v", d[2], d[3])
	}
	w.finish(driver.Finish{ID: "open", Units: 5}, driver.Settled, false)
	w.granted(recorded(item("past", "op", 1), time.Minute))
	if dry := item("dry", "op", 1); true {
		dry.DryRun = true
		if d := w.decide(dry)[0]; d.Result != driver.Refused || !d.Locked {
			t.Fatalf("a dry run while locked: %+v", d)
		}
	}
	must.Equal(t, w.used(0), 16, "used: a refusal charges nothing")
	// If a limit has no room until later, that limit binds.
	w.refused(item("d", "op", 90), 0, noon+hour)
	w.onTime(item("b", "op", 1), -1, want.Until)
	w.wantLocks()
	if d := w.decide(item("e", "op", 1))[0]; d.Locked || d.Why != "" {
		t.Fatalf("after the lock: %+v", d)
	}
}

// A lock in force is extended by one that ends later, and never shortened, except by force.
// It ends by hand or at its maximum, and never before now.
func testLockStands(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 100, time.Hour)}
	w.granted(item("a", "op", 10))
	first := w.lock(driver.Lock{Until: w.now + minute, Why: "one"})
	w.now += 10 * second
	stands := driver.Locked{Now: w.now, Until: first.Until, Since: first.Since, Why: "one", Stood: true}
	for _, shorter := range []driver.Lock{{Until: first.Until - 1}, {Until: first.Until}, {After: second}, {Until: w.now + hour, Most: 50 * second}, {Until: w.now - 1}} {
		must.Equal(t, w.lock(shorter), stands, "locked again by", shorter)
	}
	for _, longer := range []driver.Lock{{Until: first.Until + 1}, {After: 51 * second}, {Until: w.now + hour, Most: 52 * second}, {After: 1000 * hour, Most: 72 * hour}, {Until: w.now + 80*hour}} {
		longer.Why = fmt.Sprint("longer: ", longer.Until, longer.After)
		end := max(longer.Until, w.now+longer.After)
		if longer.Most > 0 {
			end = min(end, w.now+longer.Most)
		}
		must.Equal(t, w.lock(longer), driver.Locked{Now: w.now, Until: end, Since: first.Since, Why: longer.Why}, "extended by", longer)
		w.wantLocks(driver.LockView{Until: end, Since: first.Since, Why: longer.Why})
		w.refused(item("b", "op", 1), -1, end)
	}
	force := w.lock(driver.Lock{After: second, Why: "by hand", Force: true})
	if want := (driver.Locked{Now: w.now, Until: w.now + second, Since: w.now, Why: "by hand"}); force != want {
		t.Fatalf("locked by force: %+v, want %+v", force, want)
	}
	w.onTime(item("b", "op", 1), -1, w.now+second)
	if past := w.lock(driver.Lock{Until: w.now}); past.Until != 0 || past.Stood {
		t.Fatalf("a lock that has ended: %+v", past)
	}
	w.wantLocks()
	if capped := w.lock(driver.Lock{Until: w.now + 1000*hour, Most: minute}); capped.Until != w.now+minute {
		t.Fatalf("locked until %d, want the most, %d", capped.Until, w.now+minute)
	}
	if past := w.lock(driver.Lock{Until: w.now - 1, Force: true}); !past.Stood || past.Until != w.now+minute {
		t.Fatalf("a lock by force that has ended: %+v", past)
	}
	w.unlock("", true)
	w.unlock("", false)
	w.unlock("w", false)
	w.granted(item("c", "op", 1))
	w.lock(driver.Lock{After: minute, Why: "three"})
	must.Get(driver.Apply(context.Background(), w.store, driver.Reset{Budget: w.budget}))(t)
	w.wantLocks()
	w.granted(item("d", "op", 1))
}

// A limit's lock closes what the limit covers and nothing else. Of several locks, the
// last to end gives the retry time. A budget without charges can be locked, too.
func testLockLimit(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 100, time.Hour), rolling("search", 50, time.Minute, "search.list")}
	w.limits[1].Counts = limit.CountCalls
	w.lock(driver.Lock{Limit: "search", After: 2 * minute, Why: "search is spent"})
	w.granted(item("a", "videos.list", 1))
	at := w.now
	if d := w.decide(item("b", "search.list", 1))[0]; d.Limit != 1 || !d.Locked || d.RetryAt != at+2*minute || d.Remaining != 50 || d.Why != "search is spent" {
		t.Fatalf("a locked limit: %+v", d)
	}
	w.lock(driver.Lock{After: minute, Why: "all"})
	w.wantLocks(
		driver.LockView{Until: at + minute, Since: at, Why: "all"},
		driver.LockView{Limit: "search", Until: at + 2*minute, Since: at, Why: "search is spent"},
	)
	w.refused(item("b", "search.list", 1), 1, at+2*minute)
	w.onTime(item("c", "videos.list", 1), -1, at+minute)
	w.onTime(item("b", "search.list", 1), 1, at+2*minute)
	// After the longest window and a week it is still in force.
	w.lock(driver.Lock{After: 30 * 24 * hour})
	end := w.now + 30*24*hour
	w.now = end - 1
	w.refused(item("d", "videos.list", 1), -1, end)
}

// A limit that only observes refuses nothing, and reports what it would have refused.
func testObserve(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("seen", 10, time.Hour), rolling("w", 30, time.Hour)}
	w.limits[0].Observe = true
	must.Equal(t, w.granted(item("a", "op", 10)).Observed, "", "what fits")
	labelled := item("b", "op", 11)
	labelled.Labels.Job = "job"
	dry := labelled
	dry.DryRun = true
	d := w.decide(dry, labelled, item("c", "op", 10), labelled)
	if d[0].Observed != "seen" || d[1].Result != driver.Granted || d[1].Observed != "seen" {
		t.Fatalf("what the observed limit would refuse: dry %+v, charged %+v", d[0], d[1])
	}
	if d[2].Result != driver.Refused || d[2].Limit != 1 || d[3].Observed != "" || !d[3].Replayed {
		t.Fatalf("refused by another %+v; a replay %+v", d[2], d[3])
	}
	view := w.look()
	must.Equal(t, view.Limits[0].Used, 21, "used: it is counted")
	w.lock(driver.Lock{Limit: "seen", After: minute})
	must.Equal(t, w.granted(item("locked", "op", 0)).Observed, "seen", "the lock of what only observes")
	w.lock(driver.Lock{After: minute})
	got, err := w.store.Decide(context.Background(), driver.Batch{Budget: w.budget, Now: w.now, Limits: w.limits, Observe: true, Items: []driver.Item{item("all", "op", 1)}})
	if err != nil || got.Items[0].Result != driver.Granted || got.Items[0].Observed != driver.ObservedLock {
		t.Fatalf("the budget's lock where all only observes: %+v, %v", got.Items, err)
	}
	w.now += 90 * minute // coarse ledgers have dropped their ids by now; this one has not
	w.limits = []limit.Limit{{Name: "coarse", Limit: 1, Observe: true, Counts: limit.CountUnits, Window: limit.CoarseWindow(24*time.Hour, time.Minute)}}
	w.budget = "up/coarse"
	for _, id := range []string{"a", "b", "c"} {
		w.granted(item(id, "op", 1))
	}
	for range 2 {
		spent, err := w.store.Spent(context.Background(), driver.SpentQuery{Budget: w.budget, Now: w.now, By: driver.ByOperation})
		if err != nil || len(spent.Rows) != 1 || spent.Rows[0].Calls != 3 || spent.Rows[0].Observed != 2 {
			t.Fatalf("spent %+v, %v; want 3 calls, 2 of them observed", spent.Rows, err)
		}
		w.now += 2 * hour // they are merged, and still reported
		w.decide()
	}
}
