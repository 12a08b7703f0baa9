package budgethttp_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// Once a pass is declared dead, none of its requests is sent, whatever a caller
// wants of refusals: each carries its number. Those of other passes are.
func TestFencedRequestsAreNotSent(t *testing.T) {
	b := open(t, budget.Spec{Unknown: budget.Unknown{Allowed: true, Units: 1}})
	must.Do(t, b.Fence(t.Context(), "pull", 7))
	server := newCounting(t)
	for _, refused := range []budgethttp.Refused{budgethttp.Fail, budgethttp.Answer429, budgethttp.Wait} {
		client := func(fence int64) *http.Client {
			return &http.Client{Transport: meter(t, b, budgethttp.Options{Labels: budget.Labels{Job: "pull"}, Fence: fence, Refused: refused})}
		}
		before := server.count.Load()
		_, err := client(7).Get(server.URL) //nolint:bodyclose // there is none
		if !errors.Is(err, budget.ErrFenced) || server.count.Load() != before {
			t.Errorf("%d: %v, %d requests; want it fenced off", refused, err, server.count.Load()-before)
		}
		read(t, client(8), server.URL)
		read(t, client(0), server.URL)
	}
	want(t, b, 6, 6, 0)
	check.Is(t, check.Err(budgethttp.New(b, budgethttp.Options{Fence: 7})), budget.ErrInvalid, "without a job")
}
