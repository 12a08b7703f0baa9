package sqlitestore_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/must"
)

func (b *bench) lock(limit string, until int64, force bool) driver.Locked {
	b.t.Helper()
	got := must.Get(driver.Apply(context.Background(), b.store, driver.Lock{
		Budget: name, Now: b.now, Limit: limit, Until: until, Most: driver.MaxLock, Why: "told", Force: force,
	}))(b.t)
	return got
}

// A lock is every process's, from the moment it is there until it is not, and
// stays when the process that took it has gone.
func TestLockOfOtherProcesses(t *testing.T) {
	b := newBench(t, rolling(10, hour))
	b.granted(item("a", 1))
	other := &bench{t: t, path: b.path, now: noon, limits: b.limits}
	other.open()
	other.granted(item("b", 1))
	end := noon + minute
	other.lock("", end, false)
	b.refused(item("c", 1), end)
	if got := b.lock("", end-1, false); !got.Stood || got.Until != end {
		t.Fatalf("%+v, want the other's lock, as it was", got)
	}
	end += minute
	if got := b.lock("", end, false); got.Stood || got.Until != end {
		t.Fatalf("%+v, want the other's lock extended", got)
	}
	other.close()
	b.refused(item("c", 1), end)
	if unlocked, err := driver.Apply(t.Context(), b.store, driver.Unlock{Budget: name, Now: b.now}); err != nil || !unlocked.Stood {
		t.Fatalf("%v, %v, want the other's lock to end", unlocked, err)
	}
	b.granted(item("c", 1))
}

// An idle budget is kept until its locks have ended, and no longer; what is
// opened by hand holds it no more.
func TestLockKeepsIdleBudget(t *testing.T) {
	for what, locked := range map[string]bool{"locked": true, "unlocked": false} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t, rolling(10, hour))
			b.granted(item("a", 1))
			end := noon + 30*day
			b.lock("w", end, false)
			b.lock("", noon+second, false)
			if !locked {
				must.Get(driver.Apply(t.Context(), b.store, driver.Unlock{Budget: name, Now: b.now, Limit: "w"}))(t)
			}
			kept := func(want int) {
				t.Helper()
				var budgets int
				for call := 0; call == 0 || budgets > want && call < 1000; call++ { // on a busy machine a later call finds the time to delete it
					must.Get(b.try("up/other", item(fmt.Sprint(b.now, "/", call), 1)))(t)
					budgets = query[int](t, b.path, "SELECT count(*) FROM budget WHERE name = '"+name+"'")
				}
				if locks := query[int](t, b.path, "SELECT count(*) FROM lock"); budgets != want || (locks > 0) != (want > 0) {
					t.Fatalf("%d budgets and %d locks %d µs past noon, want %d budgets", budgets, locks, b.now-noon, want)
				}
			}
			b.now = noon + 7*day
			kept(1)
			b.now = noon + 10*day
			if !locked {
				kept(0)
				return
			}
			kept(1)
			b.now = end
			kept(1)
			b.now = end + hour
			kept(0)
		})
	}
}

// Locks that have ended leave the file with the next lock.
func TestEndedLocksGo(t *testing.T) {
	b := newBench(t, rolling(10, hour))
	for i := range 5 {
		b.lock(fmt.Sprint("w:", i), b.now+minute, false)
	}
	b.now += minute - 1
	b.lock("w", b.now+minute, false)
	must.Equal(t, query[int](t, b.path, "SELECT count(*) FROM lock"), 6, "locks in the file: the first end in a microsecond")
	b.now++
	b.lock("", b.now+minute, false)
	must.Equal(t, query[int](t, b.path, "SELECT count(*) FROM lock"), 2, "locks in the file, want the 2 that stand")
}

// I7: a report brings the windows up to date in steps, and records what it says
// once, while others charge.
func TestReportInSteps(t *testing.T) {
	for steps := 1; steps <= 5; steps++ {
		t.Run(fmt.Sprint(steps), func(t *testing.T) {
			b := newBench(t, rolling(1000, hour), rolling(500, hour, "op"))
			b.limits[1].Name = "op"
			b.equalScores(6) // 63 units
			other := &bench{t: t, path: b.path, now: noon + hour + 4*minute, limits: b.limits}
			other.open()
			defer other.close()
			pauses := b.inSteps(steps)
			sqlitestore.SetPaused(b.store, func() {
				if *pauses++; *pauses == 1 {
					other.granted(item("between", 7))
				}
			})
			b.now = noon + hour + 4*minute // 33 of them are left
			got, err := driver.Apply(t.Context(), b.store, driver.Report{Budget: name, Now: b.now, Limits: b.limits, Limit: "w", Used: 100})
			if want := (driver.Drift{Now: b.now, Added: 60, Total: 60, Until: b.now + hour}); err != nil || *pauses == 0 || got != want {
				t.Fatalf("%+v, %v after %d pauses, want %+v after some", got, err, *pauses, want)
			}
			view, err := b.store.Look(t.Context(), driver.Look{Budget: name, Now: b.now, Limits: b.limits})
			if err != nil || view.Limits[0].Used != 100 || view.Limits[0].Drift != 60 || view.Limits[1].Used != 40 || view.Limits[1].Drift != 0 {
				t.Fatalf("%+v, %v, want 100 used, 60 of it drift, and 40 of the operation", view.Limits, err)
			}
		})
	}
}
