package budgethttp_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
)

// An existing client is metered by setting its transport. A job opens the budget
// with open.Budget; costs and rules then come from its costs.toml.
func Example() {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "found")
	}))
	defer upstream.Close()
	store := memstore.New(func() int64 { return time.Now().UnixMicro() })
	b, err := budget.New(store, budget.Spec{
		Name:   "youtube/key1",
		Limits: []limit.Limit{{Name: "daily", Limit: 250, Counts: limit.CountUnits, Window: limit.RollingWindow(24 * time.Hour)}},
		Costs:  map[string]budget.Cost{"search.list": {Units: 100, Match: []string{"GET 127.0.0.1/youtube/v3/search"}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	transport, err := budgethttp.New(b, budgethttp.Options{Labels: budget.Labels{Job: "trending"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second}

	for range 3 {
		resp, err := client.Get(upstream.URL + "/youtube/v3/search?q=cats")
		var refused *budget.RefusedError
		if errors.Is(err, budget.ErrExhausted) && errors.As(err, &refused) {
			fmt.Printf("stop: limit %s has %d units left\n", refused.Limit, refused.Remaining)
			return
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = resp.Body.Close()
		if verdict, told := budgethttp.VerdictOf(resp); told {
			fmt.Println("the upstream says", verdict.Means)
		}
		fmt.Printf("%s\n", text)
	}
	// Output:
	// found
	// found
	// stop: limit daily has 50 units left
}
