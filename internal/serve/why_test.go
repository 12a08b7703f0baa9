package serve_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/serve"
)

// An answer of why is bounded, whatever the ledger holds, and is as it is described.
func TestWhyIsBounded(t *testing.T) {
	const many = budget.WhyListed + 7
	w := newWorld(t, serve.Options{})
	w.spec.Limits = w.spec.Limits[2:] // which nothing reaches
	b := w.open("shop/many")
	for i := range many {
		must.Get(b.Reserve(t.Context(), budget.Call{Operation: "get", ID: fmt.Sprint("r", i), Labels: budget.Labels{Job: fmt.Sprint("j", i)}}, time.Duration(many-i)*time.Minute))(t)
	}
	got := w.get("/v1/why?budget=shop/many&operation=get")
	got.is(200, "changed_meanwhile", false)
	d := readDescription(t)
	d.holds(t, "why", d.response("get", "/v1/why", 200), got)
	l := got.body["limits"].([]any)[0].(map[string]any)
	for _, list := range []string{"used_by", "open"} {
		check.Equal(t, len(l[list].([]any)), budget.WhyListed, list)
		rest := l[list+"_rest"].(map[string]any)
		check.Equal(t, fmt.Sprint(rest["count"], rest["units"]), "7 7", list, "rest")
	}
	check.Equal(t, l["used_by_rest"].(map[string]any)["last"], nil, "last of those who used it")
	check.Equal(t, l["open_rest"].(map[string]any)["last"] != nil, true, "last reservation")
}
