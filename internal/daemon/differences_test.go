package daemon

import (
	"testing"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/must"
)

// Two readings of one budget are equal, even with a calendar's zone. A difference in any
// part counts.
func TestSameSpec(t *testing.T) {
	spec := func(zone string, change func(*budget.Spec)) budget.Spec {
		calendar := must.Get(limit.NewCalendar(limit.Day, zone, 0))(t)
		s := budget.Spec{
			Name: "shop/main", Costs: map[string]budget.Cost{"get": {Units: 1}},
			Limits: []limit.Limit{{Name: "daily", Limit: 10, Counts: limit.CountUnits, Window: limit.CalendarWindow(calendar)}},
		}
		change(&s)
		must.Get(budget.New(memstore.New(func() int64 { return 0 }), s))(t)
		return s
	}
	automatic := func(most int64) func(*budget.Spec) {
		return func(s *budget.Spec) {
			s.Limits[0].Quota, s.Limits[0].Auto = 10+most, most
			s.Limits[0] = s.Limits[0].WithHeadroom(most)
		}
	}
	if before, after := spec("Europe/London", automatic(2)), spec("Europe/London", automatic(2)); !sameSpec(before, after) {
		t.Error("an automatic headroom is a difference")
	}
	one := spec("Europe/London", func(*budget.Spec) {})
	for name, c := range map[string]struct {
		other budget.Spec
		same  bool
	}{
		"the same":      {spec("Europe/London", func(*budget.Spec) {}), true},
		"another zone":  {spec("Europe/Lisbon", func(*budget.Spec) {}), false},
		"another price": {spec("Europe/London", func(s *budget.Spec) { s.Costs["get"] = budget.Cost{Units: 2} }), false},
		"another limit": {spec("Europe/London", func(s *budget.Spec) { s.Limits[0].Limit = 11 }), false},
		"a guard":       {spec("Europe/London", func(s *budget.Spec) { s.Limits[0].Window.Guard = 1_000_000 }), false},
		"automatic":     {spec("Europe/London", automatic(2)), false},
		"observed":      {spec("Europe/London", func(s *budget.Spec) { s.Observe = true }), false},
	} {
		if sameSpec(one, c.other) != c.same {
			t.Errorf("%s: same is %v", name, !c.same)
		}
	}
	if one.Limits[0].Window.Calendar == nil {
		t.Error("the comparison changed what it compared")
	}
}
