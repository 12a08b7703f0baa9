package budgethttp_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// A request that the upstream answers with 304 costs what its operation says of that:
// less than one that has a page, nothing, or the same. A response that tells what it
// cost is believed, and what is not counted at all is released.
func TestNotModified(t *testing.T) {
	none, two := int64(0), int64(2)
	const etag = `"1"`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", etag)
		if r.URL.Query().Has("cost") {
			w.Header().Set("X-Cost", "3")
		}
		if r.Header.Get("If-None-Match") == etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = io.WriteString(w, "page")
	}))
	defer server.Close()
	for name, c := range map[string]struct {
		cost             budget.Cost
		free             []int
		query, condition string
		units, calls     int64
	}{
		"a page":                 {budget.Cost{Units: 5, NotModified: &two}, nil, "", "", 5, 1},
		"another page":           {budget.Cost{Units: 5, NotModified: &two}, nil, "", `"0"`, 5, 1},
		"unchanged":              {budget.Cost{Units: 5, NotModified: &two}, nil, "", etag, 2, 1},
		"unchanged for nothing":  {budget.Cost{Units: 5, NotModified: &none}, nil, "", etag, 0, 1},
		"as any other":           {budget.Cost{Units: 5}, nil, "", etag, 5, 1},
		"what the response says": {budget.Cost{Units: 5, NotModified: &two, Actual: []feedback.Source{{Header: "X-Cost", As: feedback.AsNumber}}}, nil, "?cost", etag, 3, 1},
		"what it does not say":   {budget.Cost{Units: 5, NotModified: &two, Actual: []feedback.Source{{Header: "X-Cost", As: feedback.AsNumber}, {JSON: "cost", As: feedback.AsNumber}}}, nil, "", etag, 2, 1},
		"not counted":            {budget.Cost{Units: 5, NotModified: &two}, []int{304}, "", etag, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, budget.Spec{Costs: map[string]budget.Cost{"get": c.cost}, Feedback: feedback.Rules{Free: c.free}})
			o := &observer{}
			client := &http.Client{Transport: meter(t, b, budgethttp.Options{Operation: "get", Observer: o})}
			request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/"+c.query, nil))(t)
			if c.condition != "" {
				request.Header.Set("If-None-Match", c.condition)
			}
			resp := do(t, client, request)
			must.Get(io.ReadAll(resp.Body))(t)
			_ = resp.Body.Close()
			want(t, b, c.units, c.calls, 0)
			check.Equal(t, o.check(t), c.units, "the observer saw … units")
		})
	}
}

// A cache below the transport that asks by itself whether its page has changed costs
// what any request does: what the upstream said is not seen.
func TestACacheThatAsksByItself(t *testing.T) {
	none := int64(0)
	b := open(t, budget.Spec{Costs: map[string]budget.Cost{"get": {Units: 5, NotModified: &none}}})
	client := &http.Client{Transport: meter(t, b, budgethttp.Options{Operation: "get", Base: roundTrip(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{"X-From-Cache": {"1"}}, Body: io.NopCloser(strings.NewReader("page")), Request: r}, nil
	})})}
	read(t, client, "http://upstream.test")
	want(t, b, 5, 1, 0)
}

// The same for a response that is handed over.
func TestApplyNotModified(t *testing.T) {
	none, twenty := int64(0), int64(20)
	b := open(t, budget.Spec{Costs: map[string]budget.Cost{
		"get": {Units: 5, NotModified: &none}, "odd": {Units: 5, NotModified: &twenty}, "put": {Units: 5},
		"ask": {Units: 5, NotModified: &none, Actual: []feedback.Source{{Header: "X-Cost", As: feedback.AsNumber}}},
	}})
	for _, c := range []struct {
		operation string
		resp      given
		units     int64
	}{
		{"get", given{304, "", nil}, 0}, {"get", given{200, "page", nil}, 5}, {"odd", given{304, "", nil}, 20}, {"put", given{304, "", nil}, 5},
		{"ask", given{304, "", []string{"X-Cost", "3"}}, 3}, {"ask", given{304, "", nil}, 0},
	} {
		before := spent(t, b)
		for range 2 {
			receipt := reserve(t, b, c.operation)
			if done, err := c.resp.apply(t, b, receipt); err != nil || done.Units != c.units || done.Released {
				t.Errorf("%s: %+v, %v; want %d", c.operation, done, err, c.units)
			}
		}
		check.Equal(t, spent(t, b).units-before.units, 2*c.units, c.operation, "… units in the ledger")
	}
}
