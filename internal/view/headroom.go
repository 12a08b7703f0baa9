package view

import (
	"github.com/quotactl/quotactl/budget/headroom"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/screen"
	"github.com/quotactl/quotactl/internal/table"
)

// NewHeadroomTable makes a table of the bounds of automatic headrooms; AddHeadrooms fills it.
func NewHeadroomTable(on screen.Screen) *table.Table {
	return on.Table("AUTOMATIC HEADROOM", "LIMIT", ">QUOTA", ">AT LEAST", ">AT MOST")
}

// AddHeadrooms adds the limits of a budget whose headroom is automatic, and reports whether
// there are any.
func AddHeadrooms(t *table.Table, budget string, limits []limit.Limit) (some bool) {
	for _, l := range limits {
		if p := headroom.Unknown(l); l.Auto > 0 {
			t.Add(budget, l.Name, Number(l.Quota), Number(min(p.Most, max(p.Least, p.Outage))), Number(p.Most))
			some = true
		}
	}
	return some
}
