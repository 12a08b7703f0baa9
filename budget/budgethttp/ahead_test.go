package budgethttp_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// tooFast is a rule that looks at the body of any response.
var tooFast = feedback.Rules{Refusals: []feedback.Refusal{{
	Name: "too-fast", Means: feedback.Throttled, Lock: time.Hour, Condition: feedback.Condition{JSON: map[string][]string{"error": {"fast"}}},
}}}

// A refusal whose body does not come is handed out after some seconds, and judged
// when the caller has read it.
func TestSlowBodiesOfRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		lease, deadline, want time.Duration
	}{
		"long lease":  {0, 0, 3 * time.Second},
		"short lease": {time.Second, 0, time.Second},
		"deadline":    {0, time.Hour, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const begun, rest = `{"error": `, `"fast"}`
				base := serve(t, func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(http.StatusInternalServerError)
					_, _ = io.WriteString(w, begun)
					_ = http.NewResponseController(w).Flush()
					<-time.After(time.Minute)
					_, _ = io.WriteString(w, rest)
				})
				b := open(t, budget.Spec{Costs: map[string]budget.Cost{"read": {Units: 5}}, Feedback: tooFast})
				o := &observer{}
				client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base, Operation: "read", Lease: c.lease, Observer: o})}
				ctx := t.Context()
				if c.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				}
				req := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, "http://upstream", nil))(t)
				start := time.Now()
				resp := do(t, client, req)
				check.Equal(t, time.Since(start), c.want, "the response came after")
				want(t, b, 5, 1, 0)
				first := make([]byte, 100) // at hand
				n, err := resp.Body.Read(first)
				if string(first[:n]) != begun || err != nil || time.Since(start) != c.want {
					t.Errorf("%q, %v after %s", first[:n], err, time.Since(start))
				}
				text, err := io.ReadAll(resp.Body)
				if string(text) != rest || err != nil || time.Since(start) != time.Minute {
					t.Errorf("%q, %v after %s", text, err, time.Since(start))
				}
				if stand := locks(t, b); len(stand) != 1 {
					t.Errorf("locked: %+v", stand)
				}
				if told, ok := budgethttp.VerdictOf(resp); !ok || told.Rule != "too-fast" {
					t.Errorf("told %+v, %v", told, ok)
				}
				_ = resp.Body.Close()
				o.check(t)
			})
		})
	}
}

// Closing the body ends what reads it ahead, and so does the request's context.
func TestSlowBodiesGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		b := open(t, budget.Spec{Costs: map[string]budget.Cost{"read": {Units: 5}}, Feedback: tooFast})
		client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base, Operation: "read"})}
		resp := fetch(t, client, "http://upstream")
		if err := resp.Body.Close(); err != nil { // that the test ends shows that nothing reads any more
			t.Error(err)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		req := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, "http://upstream", nil))(t)
		start := time.Now()
		resp = do(t, client, req)
		if _, err := io.ReadAll(resp.Body); err == nil || time.Since(start) != time.Second {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		_ = resp.Body.Close()
		want(t, b, 10, 2, 0)
	})
}

// A body that is too long to be read ahead is judged when the caller has read it.
func TestLongBodiesOfRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		padding int
		free    bool
		before  bool // it is known before the body is read
		locked  bool
	}{
		"short":        {1 << 10, false, true, true},
		"long":         {100 << 10, false, false, true},
		"long, free":   {100 << 10, true, false, true},
		"far too long": {2 << 20, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			feedback := feedback.Rules{Refusals: slices.Clone(tooFast.Refusals)}
			feedback.Refusals[0].Free = c.free
			body := `{"padding": "` + strings.Repeat("x", c.padding) + `", "error": "fast"}`
			o := &observer{}
			b := open(t, budget.Spec{Costs: map[string]budget.Cost{"read": {Units: 5}}, Feedback: feedback})
			client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: answers(403, nil, strings.NewReader(body)), Operation: "read", Observer: o})}
			resp := fetch(t, client, "http://upstream")
			if _, told := budgethttp.VerdictOf(resp); told != c.before {
				t.Errorf("before the body: told %v", told)
			}
			readAll(t, resp, body)
			_ = resp.Body.Close()
			if locked := len(locks(t, b)) > 0; locked != c.locked {
				t.Errorf("locked: %v", locked)
			}
			if c.free {
				want(t, b, 0, 0, 0)
			} else {
				want(t, b, 5, 1, 0)
			}
			o.check(t)
		})
	}
}
