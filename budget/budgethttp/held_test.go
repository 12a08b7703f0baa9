package budgethttp_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/must"
)

// An upstream that tells what is used has the request in it, at what it cost, or at
// what was asked for: neither is drift, in whatever part of the response it stands.
func TestTheRequestsOwnCostIsNoDrift(t *testing.T) {
	number := func(s feedback.Source) feedback.Source {
		s.As = feedback.AsNumber
		return s
	}
	inHeader, inBody := number(feedback.Source{Header: "X-Cost"}), number(feedback.Source{JSON: "cost"})
	usedHeader, usedBody := number(feedback.Source{Header: "X-Used"}), number(feedback.Source{JSON: "used"})
	for name, c := range map[string]struct {
		cost, used   feedback.Source
		header       map[string]string
		body         string
		settled      int64
		added, calls int64 // drift
	}{
		"more, header and body":   {inBody, usedHeader, map[string]string{"X-Used": "9"}, `{"cost": 9}`, 9, 0, 8},
		"more, in the header":     {inHeader, usedHeader, map[string]string{"X-Used": "9", "X-Cost": "9"}, `{}`, 9, 0, 8},
		"more, in the body":       {inBody, usedBody, nil, `{"cost": 9, "used": 9}`, 9, 0, 8},
		"more, body and header":   {inHeader, usedBody, map[string]string{"X-Cost": "9"}, `{"used": 9}`, 9, 0, 8},
		"less, as it was":         {inBody, usedHeader, map[string]string{"X-Used": "2"}, `{"cost": 2}`, 2, 0, 1},
		"less, as it was asked":   {inBody, usedHeader, map[string]string{"X-Used": "5"}, `{"cost": 2}`, 2, 0, 4},
		"less, asked, header":     {inHeader, usedHeader, map[string]string{"X-Used": "5", "X-Cost": "2"}, `{}`, 2, 0, 4},
		"not told":                {inBody, usedHeader, map[string]string{"X-Used": "5"}, `{}`, 5, 0, 4},
		"another's beside it":     {inBody, usedHeader, map[string]string{"X-Used": "12"}, `{"cost": 9}`, 9, 3, 11},
		"another's, and not told": {inBody, usedHeader, map[string]string{"X-Used": "12"}, `{}`, 5, 7, 11},
	} {
		synctest.Test(t, func(t *testing.T) {
			calls := hourly(1000)
			calls.Name, calls.Counts = "calls", limit.CountCalls
			spec := budget.Spec{
				Limits: []limit.Limit{hourly(1000), calls},
				Costs:  map[string]budget.Cost{"read": {Units: 5, Actual: []feedback.Source{c.cost}}},
				Feedback: feedback.Rules{Reports: []feedback.Report{
					{Name: "units", Limit: "hourly", Used: &c.used}, {Name: "calls", Limit: "calls", Used: &c.used},
				}},
			}
			want := map[string]int64{"hourly": c.added, "calls": c.calls}
			check := func(by string, drifts []budget.Drift, settled int64) {
				t.Helper()
				got := map[string]int64{"hourly": 0}
				for _, d := range drifts {
					got[d.Limit] += d.Added
				}
				if settled != c.settled || got["hourly"] != want["hourly"] || got["calls"] != want["calls"] {
					t.Errorf("%s, %s: settled %d, drift %v, want %d and %v", name, by, settled, got, c.settled, want)
				}
			}

			o := &observer{}
			_, client := upstreamSays(t, spec, budgethttp.Options{Observer: o}, said{status: 200, header: c.header, body: c.body})
			read(t, client, "http://upstream")
			check("transport", o.drifts, o.check(t))

			b := open(t, spec)
			r := must.Get(b.Reserve(t.Context(), budget.Call{Operation: "read"}, time.Minute))(t)
			resp := &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(c.body))}
			for name, value := range c.header {
				resp.Header.Set(name, value)
			}
			done := must.Get(budgethttp.Apply(t.Context(), b, r.Receipt, resp))(t)
			check("apply", done.Drifts, done.Units)
		})
	}
}

// What waits for a body comes back when the header said, counted from the header;
// and what counts calls waits for nothing.
func TestHeldReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := hourly(1000)
		calls.Name, calls.Counts = "calls", limit.CountCalls
		number := feedback.Source{Header: "X-Used", As: feedback.AsNumber}
		seconds := feedback.Source{Header: "X-Reset", As: feedback.AsSeconds}
		b := open(t, budget.Spec{
			Limits: []limit.Limit{hourly(1000), calls},
			Costs:  map[string]budget.Cost{"read": {Units: 5, Actual: []feedback.Source{{JSON: "cost", As: feedback.AsNumber}}}},
			Feedback: feedback.Rules{Reports: []feedback.Report{
				{Name: "units", Limit: "hourly", Used: &number, Reset: &seconds}, {Name: "calls", Limit: "calls", Used: &number, Reset: &seconds},
			}},
		})
		base := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Used", "100")
			w.Header().Set("X-Reset", "600")
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Minute)
			_, _ = io.WriteString(w, `{"cost": 9}`)
		})
		o := &observer{}
		client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base, Operation: "read", Observer: o})}
		reset := time.Now().Add(10 * time.Minute)
		resp := fetch(t, client, "http://upstream")
		if len(o.drifts) != 1 || o.drifts[0].Limit != "calls" || o.drifts[0].Added != 99 || !o.drifts[0].Until.Equal(reset) {
			t.Errorf("with the header: %+v", o.drifts)
		}
		must.Get(io.ReadAll(resp.Body))(t)
		_ = resp.Body.Close()
		if len(o.drifts) != 2 || o.drifts[1].Limit != "hourly" || o.drifts[1].Added != 91 || !o.drifts[1].Until.Equal(reset) {
			t.Errorf("with the body: %+v", o.drifts)
		}
	})
}
