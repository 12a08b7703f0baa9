package budgethttp_test

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
)

// The observer hears how long the upstream took until its header, without any wait for units or
// for the body, and nothing of a request that was not answered.
func TestHowLongTheUpstreamTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, budget.Spec{Limits: []limit.Limit{hourly(1)}, Costs: map[string]budget.Cost{"read": {Units: 1}}})
		fails := false
		base := roundTrip(func(*http.Request) (*http.Response, error) {
			time.Sleep(300 * time.Millisecond)
			if fails {
				return nil, errors.New("gone")
			}
			return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
		})
		o := &observer{}
		client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base, Operation: "read", Observer: o, Refused: budgethttp.Wait})}
		for range 2 { // the second waits for an hour first
			resp, err := client.Get("https://upstream.invalid/")
			check.NoError(t, err)
			time.Sleep(time.Second)
			check.NoError(t, resp.Body.Close())
		}
		fails = true
		if _, err := client.Get("https://upstream.invalid/"); err == nil { //nolint:bodyclose // there is none
			t.Error("a request without an answer has one")
		}
		check.EqualSlices(t, o.answered, []time.Duration{300 * time.Millisecond, 300 * time.Millisecond}, "took")
	})
}
