package serve_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/serve"
)

const hit = `{"budget": "shop/main", "operation": "hit"}`

// ended ends a server's leases.
func (w *world) ended() {
	w.EndLeases()
	w.AwaitLeases(context.Background())
}

// Requests take from a lease, without asking the store. The lease has charged their units.
func TestChargeFromALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taken := map[string]int64{}
		w := newWorld(t, serve.Options{Leased: func(budget, operation string, units int64) { taken[budget+" "+operation] += units }})
		var decided atomic.Int64
		w.store.decide = func(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
			decided.Add(1)
			return w.store.Store.Decide(ctx, b)
		}
		first := w.post("/v1/charge", hit)
		first.is(200, "budget", "shop/main", "operation", "hit", "id", "", "units", 1, "allowed", true, "replayed", false, "charged", true,
			"remaining", 80, "limit_name", "daily", "reason", "", "retry_after_seconds", nil, "retry_at", nil, "source", "store",
			"at", "2000-01-01T00:00:00.000000Z")
		first.has("RateLimit", `"daily";r=80`, "RateLimit-Policy", policy+divided)
		check.Equal(t, w.spent(budget.ByOperation)["hit"], 20, "charged")
		for range 9 {
			w.post("/v1/charge", hit).is(200)
		}
		w.post("/v1/charge", `{"budget": "shop/main", "operation": "hit", "units": 4, "id": null}`).is(200, "units", 4, "id", "")
		check.Equal(t, decided.Load(), 1, "decisions")
		check.Equal(t, taken["shop/main hit"], 14, "told")
		w.ended()
		check.Equal(t, w.spent(budget.ByOperation)["hit"], 14, "once it is closed")
		w.post("/v1/charge", hit).is(200, "units", 1)
		check.Equal(t, w.spent(budget.ByOperation)["hit"], 15, "then each is charged")
	})
}

// Whatever a lease has not, a request is charged for on its own.
func TestChargeBesideALease(t *testing.T) {
	for name, body := range map[string]string{
		"id": `"id":"a"`, "job": `"job":"pull"`, "region": `"region":"US"`, "run": `"run":"r"`, "floor": `"floor":1`, "no floor": `"floor":0`,
		"fence": `"job":"pull","fence":1`, "reserve": `"lease_seconds":60`, "headroom": `"use_headroom":true`, "policy": `"on_store_error":"open"`,
		"wait": `"wait_seconds":1`, "more units than a lease": `"units":21`, "other operation": `"operation":"get"`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, serve.Options{Leased: func(string, string, int64) { t.Error("it was taken from a lease") }})
				operation := `"operation":"hit",`
				if name == "other operation" {
					operation = ""
				}
				got := w.post("/v1/charge", `{"budget":"shop/main",`+operation+body+`}`)
				got.is(200)
				if got.body["id"] == "" {
					t.Error("it has no id")
				}
				w.ended()
			})
		})
	}
	w := newWorld(t, serve.Options{Leased: func(string, string, int64) { t.Error("it was taken from a lease") }})
	w.post("/v1/charge", `{"budget":"shop/main","operation":"hit","dry_run":true}`).is(200, "charged", false)
	w.post("/v1/charge", `{"budget":"shop/main","operation":"hit","units":-1}`).is(400)
	check.Equal(t, w.spent(budget.ByOperation)["hit"], 0, "charged")
	w.ended()
}

// Down to the last unit requests are granted; then they get the refusal of their own units.
func TestLeaseOfTheLastUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, serve.Options{})
		for range 5 {
			w.post("/v1/charge", hit).is(200)
		}
		w.post("/v1/charge", `{"budget":"shop/main","operation":"export","units":76}`).is(200, "remaining", 4)
		for range 19 { // 15 of the lease, and the last 4
			w.post("/v1/charge", hit).is(200)
		}
		refused := w.post("/v1/charge", hit)
		refused.is(429, "reason", "exhausted", "id", "", "units", 1, "allowed", false, "charged", false, "remaining", 0, "limit_name", "daily", "source", "store")
		alone := w.post("/v1/charge", `{"budget":"shop/main","operation":"hit","id":"alone"}`)
		alone.is(429, "retry_at", refused.body["retry_at"], "detail", refused.body["detail"])
		w.ended()
		check.Equal(t, w.spent(budget.ByOperation)["hit"], 24, "charged")
	})
}

// A lease that does not fit is no refusal of a smaller request.
func TestLeaseThatDoesNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, serve.Options{})
		w.post("/v1/charge", `{"budget":"shop/main","operation":"export","units":90}`).is(200)
		for left := 9; left >= 0; left-- {
			got := w.post("/v1/charge", hit)
			got.is(200, "remaining", left)
			if got.body["id"] == "" {
				t.Error("it was taken from a lease")
			}
		}
		w.post("/v1/charge", hit).is(429, "reason", "exhausted")
		time.Sleep(25 * time.Hour)
		w.post("/v1/charge", hit).is(200, "id", "", "remaining", 80)
		w.ended()
	})
}

// A lock stops the requests within a second; while the store is away they are refused.
func TestLeaseStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, serve.Options{})
		var away atomic.Bool
		w.store.look = func() (driver.View, error) {
			if away.Load() {
				return driver.View{}, driver.ErrUnavailable
			}
			return w.store.Store.Look(context.Background(), driver.Look{Budget: "shop/main", Now: time.Now().UnixMicro(), Limits: w.spec.Limits})
		}
		w.post("/v1/charge", hit).is(200)
		must.Get(w.open("shop/main").Lock(t.Context(), budget.LockOrder{Until: budget.Until{After: time.Minute}, ByHand: true}))(t)
		time.Sleep(time.Second)
		w.post("/v1/charge", hit).is(429, "reason", "locked", "id", "", "charged", false)
		time.Sleep(time.Minute)
		w.post("/v1/charge", hit).is(200)
		away.Store(true)
		time.Sleep(time.Second)
		w.post("/v1/charge", hit).is(503, "reason", "unavailable", "id", "", "charged", false)
		away.Store(false)
		w.post("/v1/charge", hit).is(200)
		w.ended()
	})
}

// A lease that no request has used for a while is closed when another one is opened.
func TestLeasesThatAreIdleEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, serve.Options{MaxOpen: 2})
		for i := range 5 { // budgets of a credential "*"
			w.post("/v1/charge", fmt.Sprintf(`{"budget":"shop/visitor%d","operation":"hit"}`, i)).is(200, "id", "")
			time.Sleep(40 * time.Second)
		}
		check.Equal(t, serve.OpenLeases(w.Server), 2, "leases are open") // at 80 s one is closed, at 160 s two
		w.ended()
	})
}

// Requests at the same time, an end of the leases among them: each one that was granted is
// charged once.
func TestLeaseOfManyRequests(t *testing.T) {
	w := newWorld(t, serve.Options{})
	var granted atomic.Int64
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for j := range 10 {
				if i == 0 && j == 5 {
					w.EndLeases()
				}
				if got := w.post("/v1/charge", hit); got.status == 200 {
					granted.Add(1)
				} else if got.status != 429 {
					t.Errorf("%d %s", got.status, got.text)
				}
			}
		})
	}
	all.Wait()
	w.ended()
	check.Equal(t, w.spent(budget.ByOperation)["hit"], granted.Load(), "charged")
	if granted.Load() < 80 {
		t.Errorf("%d of 100 units were granted", granted.Load())
	}
}
