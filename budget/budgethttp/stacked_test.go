package budgethttp_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// throttled locks the budget for what a 429 says.
var throttled = feedback.Rules{Refusals: []feedback.Refusal{{
	Name: "slow", Means: feedback.Throttled, Condition: feedback.Condition{Status: []int{http.StatusTooManyRequests}},
	Reset: []feedback.Source{{Header: "Retry-After", As: feedback.AsRetryAfter}},
}}}

// One budget below another: what the one refuses was not sent, and says nothing of
// the other's upstream.
func TestTransportsUponTransports(t *testing.T) {
	for name, refused := range map[string]budgethttp.Refused{"error": budgethttp.Fail, "429": budgethttp.Answer429} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			t.Run(name+" "+method, func(t *testing.T) {
				server := newCounting(t)
				below := open(t, budget.Spec{Costs: map[string]budget.Cost{"ask": {Units: 1}}, Limits: []limit.Limit{hourly(1)}})
				above := open(t, budget.Spec{Costs: map[string]budget.Cost{"ask": {Units: 1}}, Feedback: throttled})
				o := &observer{}
				inner := meter(t, below, budgethttp.Options{Operation: "ask", Refused: refused, Base: server.Client().Transport})
				client := &http.Client{Transport: meter(t, above, budgethttp.Options{Operation: "ask", Base: inner, Observer: o})}
				must.Get(below.Charge(t.Context(), budget.Call{Operation: "ask"}))(t)
				req := must.Get(http.NewRequestWithContext(t.Context(), method, server.URL, nil))(t)
				resp, err := client.Do(req)
				switch {
				case refused == budgethttp.Fail && !errors.Is(err, budget.ErrExhausted):
					t.Errorf("%v, want ErrExhausted", err)
				case refused == budgethttp.Answer429 && err != nil:
					t.Error(err)
				case refused == budgethttp.Answer429:
					if _, told := budgethttp.VerdictOf(resp); told || resp.StatusCode != http.StatusTooManyRequests {
						t.Errorf("%d, told %v", resp.StatusCode, told)
					}
					_ = resp.Body.Close()
				}
				want(t, above, 0, 0, 0)
				if units := o.check(t); units != 0 || len(o.verdicts) > 0 || server.count.Load() != 0 {
					t.Errorf("%d units, %+v, %d sent", units, o.verdicts, server.count.Load())
				}
				check.NoError(t, check.Err(above.Charge(t.Context(), budget.Call{Operation: "ask"})), "the budget above")
			})
		}
	}
}

// again sends each request twice, and hands on what came of the second.
type again struct{ http.RoundTripper }

func (a again) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := a.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	_ = resp.Body.Close()
	return a.RoundTripper.RoundTrip(req)
}

// With a client between the two that has sent it before, it stays charged.
func TestTransportsUponARetry(t *testing.T) {
	server := newCounting(t)
	below := open(t, budget.Spec{Costs: map[string]budget.Cost{"ask": {Units: 1}}, Limits: []limit.Limit{hourly(1)}})
	above := open(t, budget.Spec{Costs: map[string]budget.Cost{"ask": {Units: 1}}, Feedback: throttled})
	inner := meter(t, below, budgethttp.Options{Operation: "ask", Refused: budgethttp.Answer429, Base: server.Client().Transport})
	client := &http.Client{Transport: meter(t, above, budgethttp.Options{Operation: "ask", Base: again{inner}})}
	resp := fetch(t, client, server.URL)
	_ = resp.Body.Close()
	check.Equal(t, resp.StatusCode, http.StatusTooManyRequests, "status")
	check.Equal(t, server.count.Load(), 1, "status")
	want(t, above, 1, 1, 0)
	check.NoError(t, check.Err(above.Charge(t.Context(), budget.Call{Operation: "ask"})), "it is locked by what no upstream said")
}

// A request made of another's response has that one's verdict in its context.
func TestToldOfARequestMadeOfAResponse(t *testing.T) {
	b := open(t, budget.Spec{Costs: map[string]budget.Cost{"ask": {Units: 1}}, Feedback: throttled})
	header := map[string]string{"Retry-After": "60"}
	client := &http.Client{Transport: meter(t, b, budgethttp.Options{
		Operation: "ask", Refused: budgethttp.Answer429, Base: answers(http.StatusTooManyRequests, header, http.NoBody),
	})}
	first := fetch(t, client, "http://upstream")
	_ = first.Body.Close()
	second := do(t, client, first.Request.Clone(first.Request.Context()))
	_ = second.Body.Close()
	if _, told := budgethttp.VerdictOf(first); !told {
		t.Error("there is no verdict of the upstream's refusal")
	}
	if v, told := budgethttp.VerdictOf(second); told || second.Header.Get(budgethttp.RefusedHeader) == "" {
		t.Errorf("the transport's own refusal has the verdict %+v", v)
	}
}
