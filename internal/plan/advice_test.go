package plan

import (
	"testing"

	"github.com/quotactl/quotactl/internal/check"
)

// A change harms a job that was whole and is not any more, or that gets fewer passes.
func TestAdviceHarmsNobody(t *testing.T) {
	cut := &Pass{Outcome: Cut}
	for what, one := range map[string]struct {
		before, after []JobPlan
		harms         bool
	}{
		"both stay whole":                      {[]JobPlan{{Name: "a", Passes: 2}}, []JobPlan{{Name: "a", Passes: 3}}, false},
		"one that was cut is cut":              {[]JobPlan{{Name: "a", Passes: 2, First: cut}}, []JobPlan{{Name: "a", Passes: 2, First: cut}}, false},
		"one that was whole is cut":            {[]JobPlan{{Name: "a", Passes: 2}, {Name: "b", Passes: 1, First: cut}}, []JobPlan{{Name: "a", Passes: 2, First: cut}, {Name: "b", Passes: 1}}, true},
		"a tick is moved beyond the plan":      {[]JobPlan{{Name: "a", Passes: 2, First: cut}}, []JobPlan{{Name: "a", Passes: 1}}, true},
		"a job is gone":                        {[]JobPlan{{Name: "a", Passes: 2}}, nil, true},
		"one that was cut is whole afterwards": {[]JobPlan{{Name: "a", Passes: 2, First: cut}}, []JobPlan{{Name: "a", Passes: 2}}, false},
	} {
		check.Equal(t, harms(one.before, one.after), one.harms, what)
	}
}
