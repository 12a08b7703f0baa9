package outage_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/outage"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

func TestWhoOpens(t *testing.T) {
	t.Parallel()
	open, closed := driver.Open, driver.Closed
	for _, one := range []struct {
		call, operation, job, upstream driver.Policy
		want                           bool
	}{
		{"", "", "", "", false},
		{"", "", "", open, true},
		{"", "", closed, open, false},
		{"", "", open, closed, true},
		{"", closed, open, open, false},
		{"", open, closed, closed, true},
		{closed, open, open, open, false},
		{open, closed, closed, closed, true},
	} {
		w := newWorld(t)
		w.spec.OnStoreError, w.spec.Costs["list"] = one.upstream, budget.Cost{Units: 1, OnStoreError: one.operation}
		b := w.host(t.TempDir()).ForJob("pull", budget.JobSays{OnStoreError: one.job})
		w.store.gone.Store(true)
		_, err := b.Charge(context.Background(), budget.Call{Operation: "list", OnStoreError: one.call, Labels: driver.Labels{Job: "pull"}})
		if (err == nil) != one.want || err != nil && !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("call %q, operation %q, job %q, upstream %q: %v", one.call, one.operation, one.job, one.upstream, err)
		}
	}
}

// What the store answers never opens a call, however wrong it is.
func TestConfigurationErrorsNeverOpen(t *testing.T) {
	t.Parallel()
	for _, answer := range []error{driver.ErrStoreConfig, driver.ErrClock, driver.ErrDamaged, driver.ErrClosed} {
		w := newWorld(t)
		store := outage.New(answering{w.store, answer}, outage.Options{Dir: t.TempDir(), Allowance: 20, Timeout: timeout})
		b := must.Get(budget.New(store, w.spec))(t)
		if r, err := w.charge(b, "list", ""); !errors.Is(err, answer) {
			t.Errorf("%v: %+v, %v", answer, r, err)
		}
		check.NoError(t, store.Close())
	}
}

type answering struct {
	driver.Store
	answer error
}

func (a answering) Decide(context.Context, driver.Batch) (driver.Decisions, error) {
	return driver.Decisions{}, fmt.Errorf("the store says: %w", a.answer)
}

// A policy that leaves a host nothing to spend counts as closed.
func TestNothingToSpendIsClosed(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*world, *outage.Options){
		"no allowance":           func(_ *world, o *outage.Options) { o.Allowance = 0 },
		"no directory":           func(_ *world, o *outage.Options) { o.Dir = "" },
		"headroom for too many":  func(_ *world, o *outage.Options) { o.Hosts = 51 },
		"a limit without any":    func(w *world, _ *outage.Options) { w.spec.Limits[0].Headroom, w.spec.Limits[0].Quota = 0, 950 },
		"a directory of another": func(_ *world, o *outage.Options) { o.Dir = filepath.Join("/dev/null", "host") },
	} {
		w := newWorld(t)
		o := outage.Options{Dir: t.TempDir(), Allowance: 20, Timeout: timeout}
		change(w, &o)
		store := outage.New(w.store, o)
		b := must.Get(budget.New(store, w.spec))(t)
		w.store.gone.Store(true)
		if r, err := w.charge(b, "list", ""); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		_ = store.Close() // the directory of another cannot be written
	}
}

// A limit that the store last said is exhausted stays so until it said.
func TestExhaustedStaysExhausted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorldInFakeTime(t)
		w.spec.Limits = append(w.spec.Limits, limit.Limit{Name: "burst", Limit: 2, Counts: limit.CountUnits, Window: limit.RollingWindow(5 * time.Second)})
		b := w.host(t.TempDir())
		w.charged(b, "a", budget.SourceStore)
		w.charged(b, "b", budget.SourceStore)
		_, err := w.charge(b, "list", "c")
		var told *budget.RefusedError
		if !errors.Is(err, budget.ErrExhausted) || !errors.As(err, &told) {
			t.Fatal(err)
		}
		until := time.Now().Add(told.RetryAfter)
		w.store.gone.Store(true)
		var refused *budget.RefusedError
		if _, err = w.charge(b, "list", "d"); !errors.Is(err, budget.ErrExhausted) || !errors.As(err, &refused) || refused.Limit != "burst" ||
			refused.Source != budget.SourceAllowance || refused.RetryAfter > told.RetryAfter {
			t.Fatalf("told %v, then without the store %v", told, err)
		}
		waited, err := b.Wait(t.Context(), budget.Call{Operation: "list", ID: "e"})
		if err != nil || waited.Source != budget.SourceAllowance || time.Now().Before(until) {
			t.Fatalf("waited until %s, told %s: %+v, %v", time.Now(), until, waited, err)
		}
	})
}

// A look at an open call tells what the call would get, by the allowance too, and
// spends nothing of it.
func TestALookIsDecidedAsTheCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorldInFakeTime(t)
		b := w.host(t.TempDir())
		w.charged(b, "before", budget.SourceStore)
		w.store.away.Store(true)
		for range 30 {
			must.Equal(t, must.Get(b.Would(context.Background(), budget.Call{Operation: "list"}, 0))(t).Source, budget.SourceAllowance)
			must.Do(t, b.Room(context.Background(), budget.Needs{"list": 1}, budget.Call{}))
		}
		for i := range 20 {
			w.charged(b, fmt.Sprint("out-", i), budget.SourceAllowance)
		}
		for operation, why := range map[string]string{"list": "has 0 left", "safe": "policy is closed"} {
			if err := b.Room(context.Background(), budget.Needs{operation: 1}, budget.Call{}); !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), why) {
				t.Errorf("%s: %v, want one that says %q", operation, err, why)
			}
		}
	})
}
