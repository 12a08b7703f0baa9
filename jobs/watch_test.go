package jobs

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
)

// A holder is dead when another daemon has seen its claim past its end for so long, and not
// renewed meanwhile.
func TestWhoIsDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch{patience: 30 * time.Second, gap: 45 * time.Second}
		expect := func(past map[string]int64, wait time.Duration, want ...string) {
			t.Helper()
			found, left := w.dead("orders", past)
			var dead []string
			for holder := range past {
				if found[holder] {
					dead = append(dead, holder)
				}
			}
			slices.Sort(dead)
			if !slices.Equal(dead, want) || left != wait {
				t.Errorf("after %s: %v dead, %s to wait; want %v, %s", time.Since(midnight), dead, left, want, wait)
			}
		}
		expect(map[string]int64{"a": 1}, 30*time.Second)
		after(20 * time.Second)
		expect(map[string]int64{"a": 1, "b": 5}, 10*time.Second)
		if found, _ := w.dead("others", map[string]int64{"a": 1}); len(found) > 0 {
			t.Error("what holds one document is looked for in another")
		}
		after(10*time.Second - 1)
		expect(map[string]int64{"a": 1, "b": 5}, 1)
		after(1)
		expect(map[string]int64{"a": 1, "b": 5}, 20*time.Second, "a")
		after(20 * time.Second)
		expect(map[string]int64{"a": 1, "b": 6}, 30*time.Second, "a") // b was renewed, and not in time
		after(30 * time.Second)
		expect(nil, 0) // both were renewed
		expect(map[string]int64{"a": 1, "b": 6}, 30*time.Second)
		after(45 * time.Second)
		expect(map[string]int64{"a": 1}, 0, "a")
		after(45*time.Second + 1) // the store was away
		expect(map[string]int64{"a": 1}, 30*time.Second)
		after(30 * time.Second)
		w.forget("others")
		expect(map[string]int64{"a": 1}, 0, "a")
		w.forget("orders") // it could not be changed
		expect(map[string]int64{"a": 1}, 30*time.Second)
	})
}

// The store's clock jumps: a server's is set, another server takes over, or, with
// SQLite, the machine was suspended. Passes under way go on, also their own daemon's,
// and keep their slots.
func TestTheStoresClockJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion + "\ntimeout = \"4h\"\noverlap = \"allow\"\nparallel = 1"})
		jumps := &jumping{State: w.store}
		w.options.State, w.options.Poll = jumps, DefaultPoll
		w.options.Transport = direct{slow(20*time.Minute, w.sandbox)}
		after(7 * time.Second) // the daemons look between two heartbeats
		stopFirst, stopSecond := w.daemon(false), w.daemon(false)
		after(3*time.Hour + 5*time.Minute + 24*time.Second)
		jumps.ahead.Store((10 * time.Minute).Microseconds())
		after(2 * time.Hour)
		stopFirst()
		stopSecond()
		check.EqualSlices(t, w.history(), []string{"3h0m0s succeeded"}, "history")
	})
}

// A store's clock that was ahead for a while leaves no claim and no slot behind that
// stands until it is there again.
func TestTheStoresClockWasAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion})
		w.list[0].BudgetParallel = 1
		jumps := &jumping{State: w.store}
		w.options.State = jumps
		jumps.ahead.Store((10 * time.Hour).Microseconds())
		crashed := w.runner()
		if _, _, end := crashed.beginManual(t.Context(), t.Context(), w.list[0]); end != nil {
			t.Fatal(end)
		}
		if taken, err := crashed.docs.takeSlot(t.Context(), runSlots("youtube/key1"), "crashed", 1); err != nil || !taken {
			t.Fatal(taken, err)
		}
		jumps.ahead.Store(0)
		w.follow(false, 4*time.Hour)
		check.EqualSlices(t, w.history(), []string{"1s lost crashed", "3h0m0s succeeded"}, "history")
	})
}

// jumping is a state whose clock is ahead of what it was.
type jumping struct {
	State
	ahead atomic.Int64 // µs
}

func (j *jumping) Job(ctx context.Context, job string) (driver.JobDocument, error) {
	found, err := j.State.Job(ctx, job)
	found.Now += j.ahead.Load()
	return found, err
}

func (j *jumping) Jobs(ctx context.Context, names []string) ([]driver.JobDocument, error) {
	list, err := j.State.Jobs(ctx, names)
	for i := range list {
		list[i].Now += j.ahead.Load()
	}
	return list, err
}

// A store that is back for a moment between two outages, or that answers and takes no
// change, lets nobody renew either.
func TestAStoreThatIsHalfAway(t *testing.T) {
	const minute = time.Minute
	lives := func(t *testing.T, away func(since time.Duration) bool, readable bool) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, setup{job: oneRegion + "\ntimeout = \"4h\""})
			w.options.Transport = direct{slow(20*minute, w.sandbox)}
			fails := func() bool { return away(time.Since(midnight) - 3*time.Hour - 5*minute) }
			w.options.State = failing{w.store, fails}
			if readable {
				w.options.State = unchanging{w.store, fails}
			}
			w.spendOn(unlocked{w.store, fails})
			w.options.Poll = DefaultPoll
			after(7 * time.Second) // the daemon looks between two heartbeats
			w.follow(false, 5*time.Hour)
			check.EqualSlices(t, w.history(), []string{"3h0m0s succeeded"}, "history")
		})
	}
	for i := range 6 {
		back := 5*minute + time.Duration(5*i)*time.Second
		lives(t, func(since time.Duration) bool { return since >= 0 && since < back }, true)
	}
	const ( // it is looked at 7 s past each half minute, and the claim is renewed each quarter of one
		back  = 5*minute + 5*time.Second
		again = back + 5*time.Second
		end   = again + 10*minute + 25*time.Second
	)
	lives(t, func(since time.Duration) bool { return since >= 0 && since < end && (since < back || since >= again) }, false)
}

// unchanging is a state that can be read and not changed while it fails, unlocked a
// store of ledgers whose locks, and fences, are not changed either.
type (
	unchanging struct {
		State
		fails func() bool
	}
	unlocked struct {
		driver.Store
		fails func() bool
	}
)

func (u unchanging) SwapJob(ctx context.Context, swap driver.JobSwap) (bool, error) {
	if u.fails() {
		return false, errFails
	}
	return u.State.SwapJob(ctx, swap)
}

func (u unlocked) Change(ctx context.Context, change driver.Change) (driver.Changed, error) {
	if u.fails() {
		return nil, errFails
	}
	return u.Store.Change(ctx, change)
}

// A manual pass that finds another past its end waits whether that is renewed.
func TestAManualPassWaitsForTheDead(t *testing.T) {
	for _, lives := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, setup{job: oneRegion})
			first := w.runner()
			lost, _, end := first.beginManual(t.Context(), t.Context(), w.list[0])
			if end != nil {
				t.Fatal(end)
			}
			after(time.Hour)
			began := time.Now()
			if lives {
				time.AfterFunc(20*time.Second, func() {
					h := heldClaim{claim: *lost, docs: first.docs, job: w.list[0]}
					if mine, _, err := h.renew(t.Context(), nil); err != nil || !mine {
						t.Error(mine, err)
					}
				})
			}
			p := w.once()
			if waited := time.Since(began); waited < 30*time.Second || waited > 32*time.Second {
				t.Errorf("it waited %s, want twice %s", waited, DefaultHeartbeat)
			}
			w.logged("another pass of the job may have died", "tick="+formatTick(time.UnixMicro(lost.Tick)))
			switch {
			case lives && (p.Outcome != Skipped || p.Reason != ReasonOverlap):
				t.Errorf("%s %s beside a pass that lives", p.Outcome, p.Reason)
			case !lives && p.Outcome != Succeeded:
				t.Errorf("%s %s %s after a pass that died", p.Outcome, p.Reason, p.Error)
			}
			if lives {
				return
			}
			if _, _, end = first.beginManual(t.Context(), t.Context(), w.list[0]); end != nil {
				t.Fatal(end)
			}
			after(time.Hour)
			drained, cancel := context.WithCancelCause(t.Context())
			cancel(errDrained)
			if _, _, end = first.beginManual(t.Context(), drained, w.list[0]); end == nil || end.reason != ReasonDrained {
				t.Errorf("told to stop, it ends with %+v", end)
			}
		})
	}
}
