package daemon

import (
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/must"
)

// A scrape has, for each share, what it is guaranteed by the configuration and now, what it
// has used, what is kept for it and what it has borrowed.
func TestShareMetrics(t *testing.T) {
	w := watch(t, nil, limit.Limit{
		Name: "low", Limit: 50, Counts: limit.CountUnits, Window: limit.RollingWindow(24 * time.Hour), // lower than the guarantees
		Shares: []limit.Share{{Name: "nightly", Jobs: []string{"nightly"}, Guarantee: 60}, {Name: "feeds", Jobs: []string{"feeds"}, Guarantee: 40}},
	}, limit.Limit{
		Name: "wide", Limit: 50, Counts: limit.CountUnits, Window: limit.RollingWindow(24 * time.Hour),
		Shares: []limit.Share{{Name: "nightly", Jobs: []string{"nightly"}, Guarantee: 20}},
	})
	units := int64(30)
	must.Get(w.b.Charge(t.Context(), budget.Call{Operation: "get", Units: &units, Labels: budget.Labels{Job: "nightly"}}))(t)
	must.Get(w.b.Charge(t.Context(), budget.Call{Operation: "get", Labels: budget.Labels{Job: "feeds"}}))(t)
	of := func(limit, share, name, value string) string {
		return `quotactl_share_` + name + `_units{budget="shop/main",limit="` + limit + `",share="` + share + `"} ` + value
	}
	w.has(
		of("low", "nightly", "guarantee", "60"), of("low", "nightly", "in_force", "30"), of("low", "nightly", "used", "30"),
		of("low", "nightly", "kept", "0"), of("low", "nightly", "borrowed", "0"),
		of("low", "feeds", "guarantee", "40"), of("low", "feeds", "in_force", "20"), of("low", "feeds", "used", "1"), of("low", "feeds", "kept", "19"),
		of("wide", "nightly", "in_force", "20"), of("wide", "nightly", "used", "30"), of("wide", "nightly", "borrowed", "10"),
	)
}
