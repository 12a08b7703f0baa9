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

// The use that an upstream reports excludes a request that it does not count: after
// its release, remaining is what was reported, by whatever tells that it is free.
func TestTheReportOfAFreeRequest(t *testing.T) {
	free := func(c feedback.Condition) []feedback.Refusal {
		return []feedback.Refusal{{Name: "free", Means: feedback.Overloaded, Free: true, Condition: c}}
	}
	inBody := free(feedback.Condition{JSON: map[string][]string{"error": {"free"}}})
	inBoth := free(feedback.Condition{JSON: map[string][]string{"error": {"free"}}, Text: []string{"too late"}})
	for name, c := range map[string]struct {
		rules  []feedback.Refusal
		status int
		header string
		body   string
		late   time.Duration // the body comes, of a lease of a minute
		units  int64         // drift of the limit that counts them
		calls  int64
	}{
		"by its status":         {free(feedback.Condition{Status: []int{503}}), 503, "40", "", 0, 20, 38},
		"by its body, ahead":    {inBody, 403, "40", `{"error": "free"}`, 0, 20, 38},
		"by value and text":     {inBoth, 200, "40", `{"error": "free", "why": "Too Late"}`, 0, 20, 38},
		"by its body":           {inBody, 200, "40", `{"error": "free"}`, 0, 20, 38},
		"all in its body":       {inBody, 200, "", `{"error": "free", "used": 40}`, 0, 20, 38},
		"nobody else's":         {inBody, 200, "20", `{"error": "free"}`, 0, 0, 18},
		"not free":              {inBody, 200, "40", `{}`, 0, 15, 37},
		"no longer held":        {free(feedback.Condition{Status: []int{503}}), 503, "40", "", time.Hour / 2, 15, 37},
		"no longer held, later": {inBody, 200, "40", `{"error": "free"}`, time.Hour / 2, 15, 37},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := hourly(100)
				calls.Name, calls.Counts = "calls", limit.CountCalls
				var reports []feedback.Report
				for _, limit := range []string{"hourly", "calls"} {
					reports = append(reports,
						feedback.Report{Name: limit, Limit: limit, Used: &feedback.Source{Header: "X-Used", As: feedback.AsNumber}},
						feedback.Report{Name: limit + "-body", Limit: limit, Used: &feedback.Source{JSON: "used", As: feedback.AsNumber}})
				}
				spec := budget.Spec{
					Limits: []limit.Limit{hourly(100), calls}, Costs: map[string]budget.Cost{"read": {Units: 5}, "other": {Units: 10}},
					Feedback: feedback.Rules{Refusals: c.rules, Reports: reports},
				}
				header := map[string]string{}
				if c.header != "" {
					header["X-Used"] = c.header
				}
				start := func() *budget.Budget {
					b := open(t, spec)
					for range 2 {
						must.Get(b.Charge(t.Context(), budget.Call{Operation: "other"}))(t)
					}
					return b
				}
				check := func(by string, drifts []budget.Drift) {
					t.Helper()
					got := map[string]int64{}
					for _, d := range drifts {
						got[d.Limit] += d.Added
					}
					if got["hourly"] != c.units || got["calls"] != c.calls {
						t.Errorf("%s: drift %v, want %d and %d", by, got, c.units, c.calls)
					}
				}

				// A transport hears no response later than its lease, a body it may.
				b, o := start(), &observer{}
				base := answers(c.status, header, &slow{strings.NewReader(c.body), c.late})
				if c.late == 0 || c.body != "" {
					read(t, &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base, Operation: "read", Observer: o, Lease: time.Minute})}, "http://upstream")
					check("transport", o.drifts)
				}

				b = start()
				r := must.Get(b.Reserve(t.Context(), budget.Call{Operation: "read"}, time.Minute))(t)
				resp := &http.Response{StatusCode: c.status, Header: http.Header{}, Body: io.NopCloser(&slow{strings.NewReader(c.body), c.late})}
				for name, value := range header {
					resp.Header.Set(name, value)
				}
				done := must.Get(budgethttp.Apply(t.Context(), b, r.Receipt, resp))(t)
				check("apply", done.Drifts)
			})
		})
	}
}

// slow is a body that comes late.
type slow struct {
	io.Reader
	wait time.Duration
}

func (s *slow) Read(p []byte) (int, error) {
	<-time.After(s.wait)
	s.wait = 0
	return s.Reader.Read(p)
}
