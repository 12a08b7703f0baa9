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
func AddHeadrooms(on screen.Screen, t *table.Table, budget string, limits []limit.Limit) (some bool) {
	for _, l := range limits {
		if p := headroom.Unknown(l); l.Auto > 0 {
			t.Add(budget, l.Name, on.Number(l.Quota), on.Number(min(p.Most, max(p.Least, p.Outage))), on.Number(p.Most))
			some = true
		}
	}
	return some
}
