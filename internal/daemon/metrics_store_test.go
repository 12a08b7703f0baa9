package daemon

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/budget/outage"
	"github.com/quotactl/quotactl/budget/refusals"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// away is a store that never answers.
type away struct{ *memstore.Store }

func (away) Decide(ctx context.Context, _ driver.Batch) (driver.Decisions, error) {
	<-ctx.Done()
	return driver.Decisions{}, fmt.Errorf("%w: %w", budget.ErrUnavailable, ctx.Err())
}

func (away) Look(ctx context.Context, _ driver.Look) (driver.View, error) {
	<-ctx.Done()
	return driver.View{}, fmt.Errorf("%w: %w", budget.ErrUnavailable, ctx.Err())
}

// A store that hangs does not hang a scrape, and the metrics show it.
func TestMetricsOfStoreAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, away{memstore.New(func() int64 { return 0 })})
		if code, text := w.get("/readyz"); code != http.StatusServiceUnavailable || !problemSays(text, "not_ready", "the store is not usable: unavailable") {
			t.Errorf("readyz: %d %q", code, text)
		}
		must.Is(t, w.charge("get", 1), budget.ErrUnavailable)
		w.has("quotactl_breaker_open 1", `quotactl_decisions_total{budget="shop/main",operation="get",result="unavailable",source="none"} 1`)
		if code, _ := w.get("/healthz"); code != http.StatusOK {
			t.Errorf("healthz: %d: a store out of reach is no reason to start the process anew", code)
		}
	})
}

// broken is a store that does not answer while it is broken.
type broken struct {
	open.Backend
	is atomic.Bool
}

func (b *broken) Decide(ctx context.Context, batch driver.Batch) (driver.Decisions, error) {
	if b.is.Load() {
		return driver.Decisions{}, budget.ErrUnavailable
	}
	return b.Backend.Decide(ctx, batch)
}

func (b *broken) Look(ctx context.Context, look driver.Look) (driver.View, error) {
	if b.is.Load() {
		return driver.View{}, budget.ErrUnavailable
	}
	return b.Backend.Look(ctx, look)
}

// A refusal that is given again from memory is counted as a decision, and says nothing of
// the store.
func TestMetricsOfRememberedRefusals(t *testing.T) {
	store := memstore.New(func() int64 { return time.Now().UnixMicro() })
	w := watch(t, struct {
		*refusals.Store
		driver.JobStore
	}{refusals.New(store, time.Minute), store})
	must.Do(t, w.charge("get", 100))
	for range 5 {
		must.Is(t, w.charge("get", 1), budget.ErrExhausted)
	}
	w.has(
		`quotactl_decisions_total{budget="shop/main",operation="get",result="exhausted",source="store"} 5`,
		`quotactl_remembered_total{budget="shop/main",operation="get"} 4`,
		`quotactl_store_seconds_count{call="decide"} 2`,
	)
}

// host is a store with the host's handling of outages, as open.Host makes it.
type host struct {
	*outage.Store
	driver.JobStore
}

// The metrics distinguish what the allowance decides, and show that the store is out of
// reach although calls are still granted.
func TestMetricsOfAllowance(t *testing.T) {
	store := &broken{Backend: memstore.New(func() int64 { return time.Now().UnixMicro() })}
	hosted := host{outage.New(store, outage.Options{Dir: t.TempDir(), Allowance: 10, Timeout: time.Minute, Interval: time.Hour}), store}
	defer func() { check.NoError(t, hosted.Close()) }()
	w := watch(t, hosted)
	charge := func(policy budget.Policy, want error) {
		t.Helper()
		units := int64(4)
		check.Is(t, check.Err(w.b.Charge(t.Context(), budget.Call{Operation: "get", Units: &units, OnStoreError: policy})), want)
	}
	charge(budget.Open, nil)
	w.has("quotactl_breaker_open 0", `quotactl_decisions_total{budget="shop/main",operation="get",result="granted",source="store"} 1`)
	if code, _ := w.get("/readyz"); code != http.StatusOK {
		t.Errorf("readyz: %d", code)
	}
	store.is.Store(true)
	charge(budget.Open, nil)
	charge(budget.Open, nil)
	charge(budget.Open, budget.ErrUnavailable) // the allowance is spent
	charge(budget.Closed, budget.ErrUnavailable)
	w.has("quotactl_breaker_open 1",
		`quotactl_decisions_total{budget="shop/main",operation="get",result="granted",source="allowance"} 2`,
		`quotactl_decisions_total{budget="shop/main",operation="get",result="unavailable",source="none"} 2`,
		`quotactl_units_total{budget="shop/main",operation="get"} 12`,
	)
	charge(budget.Open, budget.ErrUnavailable) // the allowance is spent
	if code, text := w.get("/readyz"); code != http.StatusServiceUnavailable || !problemSays(text, "not_ready", "the store is not usable: unavailable") {
		t.Errorf("readyz: %d %q", code, text)
	}
}
