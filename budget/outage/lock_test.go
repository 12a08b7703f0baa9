package outage_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// locked wants a call to be refused by a lock.
func (w *world) locked(b *budget.Budget, operation, limit, why string) {
	w.t.Helper()
	_, err := w.charge(b, operation, "")
	var refused *budget.RefusedError
	if !errors.As(err, &refused) || !errors.Is(err, budget.ErrLocked) || refused.Limit != limit || refused.Why != why || refused.RetryAfter < 50*time.Minute {
		w.t.Fatalf("%s: %v, want a lock on %q because of %q", operation, err, limit, why)
	}
}

func (w *world) lock(b *budget.Budget, limit, why string) budget.Lock {
	w.t.Helper()
	lock := must.Get(b.Lock(context.Background(), budget.LockOrder{Limit: limit, Until: budget.Until{After: time.Hour}, Why: why}))(w.t)
	return lock
}

// withSearch gives the budget a second limit.
func (w *world) withSearch() {
	search := w.spec.Limits[0]
	search.Name, search.Operations = "search", []string{"search"}
	w.spec.Limits = append(w.spec.Limits, search)
}

// A lock that the host has heard of holds while the store is away, for its other
// processes too, of one limit or the whole budget; not past an unlock.
func TestToldOfALock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withSearch()
	dir := t.TempDir()
	b := w.host(dir)
	w.lock(w.host(t.TempDir()), "", "of another host")
	w.locked(b, "list", "", "of another host") // told by a refusal
	w.store.gone.Store(true)
	w.locked(b, "list", "", "of another host")
	must.Do(t, b.Close()) // it writes down the answers it got
	b = w.host(dir)
	w.locked(b, "search", "", "of another host")

	w.store.gone.Store(false)
	w.asked(b)
	if stood, err := b.Unlock(context.Background(), ""); err != nil || !stood {
		t.Fatalf("unlock: %v, %v", stood, err)
	}
	w.lock(b, "search", "quotaExceeded: 403")
	w.store.gone.Store(true)
	w.charged(b, "open", budget.SourceAllowance)
	w.locked(b, "search", "search", "quotaExceeded: 403")
}

// asked waits until the store is asked again, where it refuses everything.
func (w *world) asked(b *budget.Budget) {
	w.t.Helper()
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); {
		if _, err := b.Status(context.Background()); err == nil {
			return
		}
	}
	w.t.Fatal("the store is back and is not asked")
}

// An upstream that refuses while the store is away locks this host, and the others once the
// store is back.
func TestLockWhileAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := t.TempDir()
	b, sibling, other := w.host(dir), w.host(dir), w.host(t.TempDir())
	w.store.gone.Store(true)
	w.charged(sibling, "first", budget.SourceAllowance) // it has read what there was
	first := w.lock(b, "", "rule: 403")
	w.locked(sibling, "list", "", "rule: 403")
	again := func(span time.Duration) budget.Lock {
		order := budget.LockOrder{Until: budget.Until{After: span}, Why: "rule: 429", Longest: 72 * time.Hour}
		return must.Get(sibling.Lock(context.Background(), order))(t)
	}
	if second := again(30 * time.Minute); !second.Stood || second.Why != "rule: 403" || second.Until.After(first.Until.Add(time.Second)) {
		t.Fatalf("locked again: %+v, first %+v", second, first)
	}
	w.locked(b, "list", "", "rule: 403")
	w.locked(sibling, "list", "", "rule: 403")
	if longer := again(22 * time.Hour); longer.Stood || longer.Until.Before(first.Until.Add(20*time.Hour)) {
		t.Fatalf("extended: %+v, first %+v", longer, first)
	}
	w.locked(b, "list", "", "rule: 429")
	w.locked(sibling, "list", "", "rule: 429")
	w.charged(other, "elsewhere", budget.SourceAllowance)
	if !strings.Contains(w.log.String(), "locked on this host alone") {
		t.Fatalf("the log says\n%s", w.log.String())
	}
	w.store.gone.Store(false)
	for end := time.Now().Add(5 * time.Minute); len(w.standing()) == 0; <-time.After(time.Millisecond) {
		if _, err := w.charge(b, "list", ""); !errors.Is(err, budget.ErrLocked) || time.Now().After(end) {
			t.Fatalf("the host's own lock: %v", err)
		}
	}
	check.Equal(t, w.standing()[0].Why, "rule: 429")
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); <-time.After(time.Millisecond) {
		if r, err := w.charge(other, "list", ""); err != nil || r.Source == budget.SourceStore { // it asks again
			break
		}
	}
	w.locked(other, "list", "", "rule: 429")
	must.Get(other.Unlock(context.Background(), ""))(t)
	w.charged(b, "after", budget.SourceStore) // it does not lock again what was unlocked
	check.Equal(t, len(w.standing()), 0, "locks")
}

// standing are the locks that the store has.
func (w *world) standing() []driver.LockView {
	w.t.Helper()
	return must.Get(w.store.inner().Look(context.Background(), driver.Look{Budget: w.spec.Name, Now: time.Now().UnixMicro(), Limits: w.spec.Limits}))(w.t).Locks
}

// What only observes refuses nothing while the store is away either.
func TestObserveWhileAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.spec.Limits[0].Observe = true
	b := w.host(t.TempDir())
	w.store.gone.Store(true)
	for i := range 30 { // the allowance is 20
		w.charged(b, fmt.Sprint("id-", i), budget.SourceAllowance)
	}
	w.spec.Observe = true
	b = w.host("")
	r, err := w.charge(b, "list", "")
	if err != nil || r.Source != budget.SourceNone || r.Observed == "" {
		t.Fatalf("an upstream that only observes: %+v, %v", r, err)
	}
	reserved, err := b.Reserve(context.Background(), budget.Call{Operation: "list"}, time.Minute)
	if err != nil || reserved.Settle(context.Background(), 5) != nil || reserved.Release(context.Background()) != nil {
		t.Fatalf("a reservation that nobody counted: %+v, %v", reserved, err)
	}
}

// A lock that the host made alone stands where its next call is another lock.
func TestLockWhileAwayThenAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withSearch()
	b := w.host(t.TempDir())
	w.charged(b, "first", budget.SourceStore)
	w.store.gone.Store(true)
	w.lock(b, "day", "rule: 403")
	w.store.gone.Store(false)
	for end := time.Now().Add(5 * time.Minute); len(w.standing()) == 0 && time.Now().Before(end); <-time.After(50 * time.Millisecond) {
		w.lock(b, "search", "rule: 429")
	}
	_, err := w.charge(b, "list", "")
	check.Is(t, err, budget.ErrLocked)
	check.Equal(t, len(w.standing()), 2, "locks in the store")
}
