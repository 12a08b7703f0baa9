package budgethttp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// A request without a response is cancelled as its lease ends, and counts until what
// was on its way is there.
func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := serve(t, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		for name, c := range map[string]struct{ lease, deadline, want time.Duration }{
			"default":         {0, 0, 10 * time.Minute},
			"own":             {time.Minute, 0, time.Minute},
			"longest":         {budget.MaxLease - time.Second, 0, budget.MaxLease - time.Second},
			"sooner deadline": {time.Minute, 20 * time.Second, 20 * time.Second},
			"later deadline":  {time.Minute, 2 * time.Minute, time.Minute},
		} {
			b := open(t, budget.Spec{Costs: map[string]budget.Cost{"read": {Units: 5}}})
			o := &observer{}
			client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base, Operation: "read", Lease: c.lease, Observer: o}), Timeout: c.deadline}
			start := time.Now()
			resp, err := client.Get("http://upstream") //nolint:bodyclose // there is none
			var timeout net.Error
			if resp != nil || !errors.As(err, &timeout) || !timeout.Timeout() || time.Since(start) != c.want {
				t.Fatalf("%s: after %s: %+v, %v", name, time.Since(start), resp, err)
			}
			time.Sleep(time.Second - time.Microsecond)
			check.Equal(t, held(t, b), ledger{5, 1, 1}, name)
			time.Sleep(time.Microsecond)
			if l := spent(t, b); l.open != 0 || c.want < time.Hour && l.units != 5 {
				t.Errorf("%s: %+v", name, l)
			}
			o.check(t)
		}
	})
}

// Once the header has come, the body takes as long as it takes.
func TestTheLeaseDoesNotCutTheBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := serve(t, func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(59 * time.Second)
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Hour)
			_, _ = io.WriteString(w, "late")
		})
		b := open(t, budget.Spec{Costs: map[string]budget.Cost{"read": {Units: 5}}})
		client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base, Operation: "read", Lease: time.Minute})}
		resp := fetch(t, client, "http://upstream")
		want(t, b, 5, 1, 0)
		text, err := io.ReadAll(resp.Body)
		if string(text) != "late" || err != nil {
			t.Errorf("%q, %v", text, err)
		}
		_ = resp.Body.Close()
	})
}

// The lease begins after the wait, and the time from when the store was asked.
func TestTheLeaseBeginsAfterTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := serve(t, func(w http.ResponseWriter, r *http.Request) { time.Sleep(30 * time.Second) })
		b := open(t, budget.Spec{Limits: []limit.Limit{hourly(5)}, Costs: map[string]budget.Cost{"read": {Units: 5}}})
		must.Get(b.Charge(t.Context(), budget.Call{Operation: "read"}))(t)
		client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base, Operation: "read", Lease: time.Minute, Refused: budgethttp.Wait})}
		start := time.Now()
		read(t, client, "http://upstream")
		if took := time.Since(start) - time.Hour - 30*time.Second; took < 0 || took > 20*time.Millisecond {
			t.Errorf("it took %s more", took)
		}
	})
}

// Whenever its context ends, a request ends, keeps nothing, and is charged unless it
// was not sent.
func TestContextsEndInEveryPhase(t *testing.T) {
	const phase = 10 * time.Second
	for name, c := range map[string]struct {
		after       time.Duration
		calls, open int64
		header      bool
	}{
		"while it waits for units": {phase / 2, 1, 0, false},
		"while dialing":            {phase + phase/2, 1, 0, false},
		"while the server thinks":  {2*phase + phase/2, 2, 1, false},
		"within the body":          {3*phase + phase/2, 2, 0, true},
		"after the body":           {4*phase + phase/2, 2, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := open(t, budget.Spec{
					Limits: []limit.Limit{{Name: "short", Limit: 5, Counts: limit.CountUnits, Window: limit.RollingWindow(phase)}, hourly(100)},
					Costs:  map[string]budget.Cost{"read": {Units: 5, Actual: []feedback.Source{{JSON: "cost", As: feedback.AsNumber}}}},
				})
				must.Get(b.Charge(t.Context(), budget.Call{Operation: "read"}))(t)
				base := serve(t, func(w http.ResponseWriter, r *http.Request) {
					wait := func() { _ = pause(r.Context(), phase) }
					wait()
					_, _ = io.WriteString(w, `{"cost":`)
					_ = http.NewResponseController(w).Flush()
					wait()
					_, _ = io.WriteString(w, `3}`)
				})
				dial := base.DialContext
				dialed := make(chan struct{}, 1)
				base.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
					defer func() { dialed <- struct{}{} }()
					time.Sleep(phase)
					return dial(ctx, network, address)
				}
				o := &observer{}
				ctx, cancel := context.WithTimeout(t.Context(), c.after)
				defer cancel()
				req := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, "http://upstream", nil))(t)
				resp, err := meter(t, b, budgethttp.Options{Base: base, Operation: "read", Observer: o, Refused: budgethttp.Wait}).RoundTrip(req)
				must.Equal(t, err == nil, c.header, resp, err)
				units := 5 * c.calls
				if err == nil {
					text, err := io.ReadAll(resp.Body)
					if whole := string(text) == `{"cost":3}`; whole {
						units -= 2
					} else if !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%q, %v", text, err)
					}
					check.NoError(t, resp.Body.Close())
				} else if !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				if c.open > 0 { // until it cannot arrive any more
					check.Equal(t, held(t, b).open, c.open, "open")
				}
				want(t, b, units, c.calls, 0)
				o.check(t)
				<-ctx.Done()
				if c.after > phase { // it has begun to dial; the call may wait for that no more
					<-dialed
				}
			})
		})
	}
}
