package serve_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/serve"
)

const (
	policy  = `"daily";q=100;w=86400`
	divided = `, "divided";q=1000000;w=86400`
)

func TestCharge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, serve.Options{})
		first := w.post("/v1/charge", `{"budget": "shop/main", "operation": "export", "id": "a", "job": "pull", "region": "US", "run": "r/1"}`)
		first.is(200, "budget", "shop/main", "operation", "export", "id", "a", "units", 40, "allowed", true, "replayed", false, "charged", true,
			"remaining", 60, "limit_name", "daily", "reason", "", "retry_after_seconds", nil, "retry_at", nil, "source", "store",
			"at", "2000-01-01T00:00:00.000000Z")
		first.has("Content-Type", "application/json", "RateLimit", `"daily";r=60`, "RateLimit-Policy", policy+divided)
		again := w.post("/v1/charge", `{"budget": "shop/main", "operation": "export", "id": "a"}`)
		again.is(200, "allowed", true, "replayed", true, "units", 40, "charged", true)
		made := w.post("/v1/charge", `{"budget":"shop/main","operation":"get","units":7,"floor":50,"region":"","on_store_error":"open"}`)
		made.is(200, "units", 7, "remaining", 53)
		made.has("RateLimit-Policy", policy+`, "gets";q=50;w=3600`+divided)
		if id := made.body["id"].(string); len(id) < 20 {
			t.Errorf("id %q was made", id)
		}
		w.post("/v1/charge", `{"budget":"shop/main","operation":"get","units":4,"floor":50}`).is(429, "reason", "exhausted")
		w.post("/v1/charge", `{"budget":"shop/main","operation":"export","use_headroom":true,"floor":null}`).is(200, "remaining", 13)
		spent := w.spent(budget.ByJob)
		if spent["pull"] != 40 || spent[""] != 47 {
			t.Errorf("spent by job: %v", spent)
		}
	})
}

// A body says in several ways that it is UTF-8 and not coded. A region and a run that are empty
// are absent.
func TestPlainBodies(t *testing.T) {
	w := newWorld(t, serve.Options{})
	for i, as := range []struct{ media, coding string }{
		{"application/json", ""}, {"application/json; charset=utf-8", ""}, {`application/json;charset="UTF-8"`, "identity"}, {"Application/JSON; charset=US-ASCII", "Identity"},
	} {
		r := w.request(http.MethodPost, "/v1/charge", fmt.Sprintf(`{"budget":"shop/main","operation":"get","id":"c%d","region":"","run":""}`, i))
		r.Header["Content-Type"] = []string{as.media}
		if as.coding != "" {
			r.Header["Content-Encoding"] = []string{as.coding}
		}
		w.do(r).is(200, "charged", true)
	}
	check.Equal(t, w.spent(budget.ByRun)[""], 4, "spent without a run")
	w.post("/v1/charge", `{"budget":"shop/main","operation":"get","id":""}`).is(400, "reason", "invalid")
	w.post("/v1/charge", `{"budget":"shop/main","operation":"get","run":"","run":"r"}`).is(400, "reason", "invalid")
}

// spent is what the ledger of shop/main contains.
func (w *world) spent(by budget.GroupBy) map[string]int64 {
	w.t.Helper()
	view := must.Get(w.store.Spent(w.t.Context(), driver.SpentQuery{Budget: "shop/main", Now: time.Now().UnixMicro(), By: by}))(w.t)
	units := map[string]int64{}
	for _, row := range view.Rows {
		units[row.Name] = row.Units
	}
	return units
}

// The calls of a pass that is declared dead are refused; those of others are not.
func TestChargeFenced(t *testing.T) {
	w := newWorld(t, serve.Options{})
	must.Do(t, w.open("shop/main").Fence(t.Context(), "pull", 7))
	for body, status := range map[string]int{
		`"job":"pull","fence":7`: 409, `"job":"pull","fence":7,"lease_seconds":60`: 409, `"job":"pull","fence":7,"dry_run":true`: 409, `"job":"pull","fence":7,"wait_seconds":1`: 409,
		`"job":"pull","fence":8`: 200, `"job":"push","fence":7`: 200, `"job":"pull"`: 200, `"fence":0`: 200,
	} {
		got := w.post("/v1/charge", `{"budget":"shop/main","operation":"get",`+body+`}`)
		if got.is(status); status == 409 {
			got.is(409, "reason", "fenced", "type", serve.ProblemPage+"fenced", "allowed", false, "charged", false, "retry_after_seconds", nil)
		}
	}
	check.Equal(t, w.spent(budget.ByOperation)["get"], 4, "units are spent")
}

// A call that does not fit is refused and charges nothing. Retry-After is the wait until
// it fits, rounded up to whole seconds.
func TestChargeRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, serve.Options{})
		w.post("/v1/charge", `{"budget":"shop/main","operation":"get","units":60}`).is(200)
		sleep(1500 * time.Millisecond)
		w.post("/v1/charge", `{"budget":"shop/main","operation":"get","units":30}`).is(200)
		no := w.post("/v1/charge", `{"budget":"shop/main","operation":"export","id":"x"}`)
		no.is(429, "type", "https://iana.org/assignments/http-problem-types#quota-exceeded", "status", 429,
			"title", "Request cannot be satisfied as assigned quota has been exceeded",
			"violated-policies", "[daily]", "reason", "exhausted", "allowed", false, "charged", false, "id", "x", "units", 40, "remaining", 10,
			"limit_name", "daily", "retry_after_seconds", 86398.5, "retry_at", "2000-01-02T00:00:00.000000Z", "at", "2000-01-01T00:00:01.500000Z")
		no.has("Content-Type", "application/problem+json", "Retry-After", "86399", "RateLimit", `"daily";r=10;t=86399`, "RateLimit-Policy", policy+divided)
		w.post("/v1/charge", `{"budget":"shop/main","operation":"export","dry_run":true}`).is(429, "dry_run", true)
		sleep(86398*time.Second + 499999*time.Microsecond)
		w.post("/v1/charge", `{"budget":"shop/main","operation":"export","id":"x"}`).has("Retry-After", "1")
		sleep(time.Microsecond)
		w.post("/v1/charge", `{"budget":"shop/main","operation":"export","id":"x"}`).is(200)
	})
}

// A dry run answers as a charge would, and charges nothing.
func TestDryRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, serve.Options{})
		for range 2 {
			got := w.post("/v1/charge", `{"budget":"shop/main","operation":"export","dry_run":true,"lease_seconds":5}`)
			got.is(200, "allowed", true, "charged", false, "dry_run", true, "remaining", 60)
			if got.body["lease_until"] != nil {
				t.Errorf("a lease that nobody holds: %s", got.text)
			}
		}
	})
}

func TestReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, serve.Options{})
		open := w.post("/v1/charge", `{"budget":"shop/main","operation":"export","id":"r","lease_seconds":90.5}`)
		open.is(200, "lease_seconds", 90.5, "lease_until", "2000-01-01T00:01:30.500000Z", "remaining", 60)
		if again := w.post("/v1/charge", `{"budget":"shop/main","operation":"export","id":"r","lease_seconds":90.5}`); again.body["lease_until"] != nil || again.body["replayed"] != true {
			t.Errorf("a replay keeps its first lease: %s", again.text)
		}
		for range 2 { // the same value again is the same settlement
			w.post("/v1/settle", `{"budget":"shop/main","id":"r","units":3}`).is(200, "budget", "shop/main", "id", "r", "units", 3, "settled", true)
		}
		for _, same := range []string{"3.0", "2.5", "25e-1", "0.3e1"} { // rounded up
			w.post("/v1/settle", `{"budget":"shop/main","id":"r","units":`+same+`}`).is(200, "units", 3)
		}
		for _, none := range []string{`"3"`, "-0.5", "1e16", "1000000000000000.1", "true", "[3]"} {
			w.post("/v1/settle", `{"budget":"shop/main","id":"r","units":`+none+`}`).is(400, "reason", "invalid")
		}
		w.post("/v1/settle", `{"budget":"shop/main","id":"r","units":4}`).is(409, "reason", "conflict")
		w.post("/v1/release", `{"budget":"shop/main","id":"r"}`).is(409, "reason", "conflict")
		w.post("/v1/charge", `{"budget":"shop/main","operation":"export","id":"s","lease_seconds":2}`).is(200)
		w.post("/v1/release", `{"budget":"shop/main","id":"s"}`).is(200, "released", true)
		w.post("/v1/charge", `{"budget":"shop/main","operation":"export","id":"t","lease_seconds":2}`).is(200)
		sleep(3 * time.Second)
		w.post("/v1/release", `{"budget":"shop/main","id":"t"}`).is(410, "reason", "expired")
		w.post("/v1/settle", `{"budget":"shop/main","id":"none","units":0}`).is(410, "reason", "expired")
		check.Equal(t, w.spent(budget.ByOperation)["export"], 43, "units are spent")
	})
}

// A waiting call is charged when it fits, and refused at once if that is too late. Stop
// ends the wait, and so does a client that leaves.
func TestChargeWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, serve.Options{Waiting: 2})
		w.spec.Limits = []limit.Limit{{Name: "minute", Limit: 1, Counts: limit.CountCalls, Window: limit.RollingWindow(time.Minute)}}
		charge := func(ctx context.Context, body string) chan answer {
			got := make(chan answer, 1)
			go func() { got <- w.do(w.request(http.MethodPost, "/v1/charge", body).WithContext(ctx)) }()
			synctest.Wait()
			return got
		}
		began := time.Now()
		(<-charge(t.Context(), `{"budget":"shop/w","operation":"get"}`)).is(200)
		(<-charge(t.Context(), `{"budget":"shop/w","operation":"get","wait_seconds":59.999}`)).is(429, "reason", "exhausted", "retry_after_seconds", 60)
		check.Equal(t, time.Since(began), 0, "refused after")
		sleep(time.Second)
		(<-charge(t.Context(), `{"budget":"shop/w","operation":"get","wait_seconds":60}`)).is(200)
		if took := time.Since(began); took < time.Minute || took > time.Minute+10*time.Millisecond {
			t.Errorf("charged after %s, want a minute", took)
		}

		// A store that takes longer than the wait has its own time.
		w.store.decide = func(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
			select {
			case <-time.After(time.Second):
				return w.store.Store.Decide(ctx, b)
			case <-ctx.Done():
				return driver.Decisions{}, context.Cause(ctx)
			}
		}
		(<-charge(t.Context(), `{"budget":"shop/x","operation":"get","wait_seconds":0.05}`)).is(200)
		w.store.decide = nil
		began = began.Add(1050 * time.Millisecond)

		ctx, leave := context.WithCancel(t.Context())
		gone, stopped := charge(ctx, `{"budget":"shop/w","operation":"get","wait_seconds":60,"lease_seconds":9}`), charge(t.Context(), `{"budget":"shop/v","operation":"get","wait_seconds":60}`)
		(<-stopped).is(200)
		stopped = charge(t.Context(), `{"budget":"shop/v","operation":"get","wait_seconds":60}`)
		(<-charge(t.Context(), `{"budget":"shop/w","operation":"get","wait_seconds":1}`)).is(503, "reason", "busy")
		leave()
		(<-gone).is(429, "reason", "exhausted")
		w.Stop()
		(<-stopped).is(429, "reason", "exhausted", "charged", false)
		if took := time.Since(began); took > time.Minute+10*time.Millisecond {
			t.Errorf("ended after %s", took)
		}
		(<-charge(t.Context(), `{"budget":"shop/u","operation":"get","wait_seconds":1}`)).is(200)
	})
}

// A request waits as long as its job's max_wait, at most a minute. It does not wait if too
// many others do, or if it says wait_seconds 0 itself.
func TestChargeWaitsAsItsJobSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, serve.Options{Waiting: 1})
		hour := time.Hour
		w.spec.Jobs = map[string]budget.JobSays{"pull": {MaxWait: &hour}}
		w.spec.Limits = []limit.Limit{{Name: "some", Limit: 1, Counts: limit.CountCalls, Window: limit.RollingWindow(61 * time.Second)}}
		const asked = `{"budget":"shop/w","operation":"get","job":"pull"}`
		began := time.Now()
		w.post("/v1/charge", asked).is(200)
		w.post("/v1/charge", asked).is(429, "reason", "exhausted", "retry_after_seconds", 61)
		check.Equal(t, time.Since(began), 0, "refused after: it fits within the hour, but not within a minute")
		sleep(2 * time.Second)
		waits := make(chan answer, 1)
		go func() { waits <- w.post("/v1/charge", asked) }()
		synctest.Wait()
		w.post("/v1/charge", asked).is(429, "reason", "exhausted", "retry_after_seconds", 59)
		w.post("/v1/charge", strings.Replace(asked, "}", `,"wait_seconds":0}`, 1)).is(429, "reason", "exhausted")
		check.Equal(t, time.Since(began), 2*time.Second, "refused after")
		(<-waits).is(200)
		if took := time.Since(began); took < 61*time.Second || took > 61*time.Second+10*time.Millisecond {
			t.Errorf("charged after %s, want 61 s", took)
		}
	})
}

// The answer warns if an id was probably used for another call.
func TestChargeWarns(t *testing.T) {
	w := newWorld(t, serve.Options{})
	const asked = `{"budget":"shop/main","operation":"get","id":"x","lease_seconds":60,"job":"pull"}`
	again := func(body string, charged bool, says string) {
		t.Helper()
		got := w.post("/v1/charge", body)
		got.is(200, "allowed", true, "replayed", true, "charged", charged)
		if warning, _ := got.body["warning"].(string); !strings.Contains(warning, says) || (warning == "") != (says == "") {
			t.Errorf("%s: warning %q, want %q", body, warning, says)
		}
	}
	w.post("/v1/charge", asked).is(200, "replayed", false)
	again(asked, true, "")
	again(strings.Replace(asked, "pull", "push", 1), true, "with other labels (job pull)")
	w.post("/v1/settle", `{"budget":"shop/main","id":"x","units":1}`).is(200)
	again(asked, true, "is settled")
	w.post("/v1/charge", strings.Replace(asked, `"x"`, `"y"`, 1)).is(200)
	w.post("/v1/release", `{"budget":"shop/main","id":"y"}`).is(200)
	again(strings.Replace(asked, `"x"`, `"y"`, 1), false, "nothing counts under it")
}

// If the outcome is unknown, the answer says so.
func TestChargeUnknown(t *testing.T) {
	w := newWorld(t, serve.Options{})
	for _, c := range []struct {
		result  driver.Decision
		err     error
		reason  string
		charged any
	}{
		{driver.Decision{}, budget.ErrUnavailable, "unavailable", nil},
		{driver.Decision{Result: driver.Unreached, Err: budget.ErrUnavailable}, nil, "unavailable", false},
		{driver.Decision{Result: driver.OutcomeUnknown, Err: errors.New("reset by peer")}, nil, "unavailable", nil},
		{driver.Decision{}, budget.ErrClock, "clock", nil},
		{driver.Decision{}, budget.ErrDamaged, "damaged", nil},
		{driver.Decision{}, budget.ErrLost, "lost", nil},
		{driver.Decision{}, budget.ErrStoreConfig, "store_config", nil},
	} {
		c.result.Limit = -1
		w.store.decide = func(context.Context, driver.Batch) (driver.Decisions, error) {
			return driver.Decisions{Items: []driver.Decision{c.result}}, c.err
		}
		// With an id that the caller made, an earlier try may have been charged.
		got := w.post("/v1/charge", `{"budget":"shop/main","operation":"get","id":"x"}`)
		got.is(503, "reason", c.reason, "charged", nil, "allowed", false, "id", "x", "type", serve.ProblemPage+c.reason)
		got.has("Retry-After", "1", "RateLimit", "")
		w.post("/v1/charge", `{"budget":"shop/main","operation":"get"}`).is(503, "reason", c.reason, "charged", c.charged)
	}
}

// A client that leaves ends its decision.
func TestChargeInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, serve.Options{})
		w.store.decide = func(ctx context.Context, _ driver.Batch) (driver.Decisions, error) {
			<-ctx.Done()
			return driver.Decisions{}, ctx.Err()
		}
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, leave)
		began := time.Now()
		w.do(w.request(http.MethodPost, "/v1/charge", `{"budget":"shop/main","operation":"get"}`).WithContext(ctx)).is(503, "reason", "interrupted", "charged", nil)
		check.Equal(t, time.Since(began), 100*time.Millisecond, "it took")
		w.post("/v1/charge", `{"budget":"shop/main","operation":"get"}`).is(503, "reason", "unavailable", "charged", nil)
		check.Equal(t, time.Since(began), time.Minute+100*time.Millisecond, "it took, want the store's minute")
	})
}

func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, serve.Options{})
		w.post("/v1/charge", `{"budget":"shop/main","operation":"export"}`).is(200)
		w.post("/v1/charge", `{"budget":"shop/acme","operation":"get"}`).is(200)
		all := w.get("/v1/status")
		all.is(200, "at", "2000-01-01T00:00:00.000000Z")
		all.has("Cache-Control", "no-store")
		check.Equal(t, len(all.body["budgets"].([]any)), 1, "budgets, want those of the configuration", all.text)
		two := w.get("/v1/status?budget=shop/acme&budget=shop%2Fmain&budget=shop/acme").body["budgets"].([]any)
		if len(two) != 2 || two[0].(map[string]any)["remaining"] != 99.0 || two[1].(map[string]any)["remaining"] != 60.0 {
			t.Errorf("%v", two)
		}
		w.get("/v1/status?budget=else/x").is(404, "reason", "unknown_budget")
		w.get("/v1/status?budgets=shop/main").is(400, "reason", "invalid")
		w.get("/v1/status?budget=%zz").is(400)
	})
}

// A wait that ends while the store is deciding still gets a decision, and only one.
func TestStopWhileDeciding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, serve.Options{})
		asked := 0
		w.store.decide = func(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
			if asked++; asked > 1 {
				return w.store.Store.Decide(ctx, b)
			}
			decided, err := w.store.Store.Decide(ctx, b) // and its answer is lost
			must.Do(t, err)
			check.Equal(t, len(decided.Items), 1)
			<-ctx.Done()
			return driver.Decisions{}, ctx.Err()
		}
		time.AfterFunc(time.Second, w.Stop)
		w.post("/v1/charge", `{"budget":"shop/main","operation":"export","wait_seconds":9,"lease_seconds":60}`).is(200, "replayed", true, "remaining", 60)
		if spent := w.spent(budget.ByOperation)["export"]; spent != 40 || asked != 2 {
			t.Errorf("%d units are spent, %d times asked", spent, asked)
		}
	})
}
