package page

import (
	"maps"
	"slices"

	"github.com/quotactl/quotactl/budget"
)

// whyBody is the page that explains what a call would get.
type whyBody struct {
	Budget, Operation, Job string
	Budgets                []choice
	Operations, Jobs       []string // to choose from
	Asked                  bool
	Allowed                bool
	Known                  bool
	Verdict                string
	Text                   string
}

// why explains what a call would get.
func (v *visit) why() sheet {
	body := whyBody{Budget: v.query("budget"), Operation: v.query("operation"), Job: v.query("job"), Jobs: v.jobNames()}
	body.Asked = body.Budget != "" && body.Operation != ""
	known := v.reader.Budgets()
	if body.Budget != "" && !slices.Contains(known, body.Budget) {
		known = append(known, body.Budget)
	}
	operations := map[string]bool{}
	for _, name := range known {
		body.Budgets = append(body.Budgets, choice{name, name, name == body.Budget})
		if spec, err := v.reader.Config.Spec(name); err == nil && (body.Budget == "" || body.Budget == name) {
			for operation := range spec.Costs {
				operations[operation] = true
			}
		}
	}
	body.Operations = slices.Sorted(maps.Keys(operations))
	body.Operations = body.Operations[:min(len(body.Operations), mostOffered)]
	show := sheet{template: "why", title: "Why", place: "/why"}
	if body.Asked {
		if why, ok := v.explain(body.Budget, budget.Call{Operation: body.Operation, Labels: budget.Labels{Job: body.Job}}); ok {
			body.Known, body.Allowed, body.Text = true, why.Refused == nil, whyText(why)
			body.Verdict = "This call would be charged now."
			if !body.Allowed {
				body.Verdict = sentence(why.Refused.Error())
			}
		}
	}
	show.body = body
	return show
}
