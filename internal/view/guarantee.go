package view

import (
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/screen"
	"github.com/quotactl/quotactl/internal/table"
)

// Guarantees is a table of what each job, or pattern of jobs, is guaranteed.
func Guarantees(on screen.Screen, list []answer.Guarantee) *table.Table {
	t := on.Table("GUARANTEED TO", "BUDGET", "SHARE", "LIMIT", ">UNITS", "UNTIL")
	for _, g := range list {
		share, until := string(g.Share), "always"
		switch {
		case share == "":
			share, until = "-", "-"
		case g.ByPlan:
			until = "its jobs need no more"
		case g.Lapse != nil:
			until = limit.SpanText(time.Duration(*g.Lapse)) + " before the reset"
		}
		if together := slices.ContainsFunc(list, func(other answer.Guarantee) bool {
			return other.Jobs != g.Jobs && share != "-" && other.Budget == g.Budget && other.Limit == g.Limit && other.Share == g.Share
		}); together {
			until += ", for the whole share"
		}
		t.Add(g.Jobs, g.Budget, share, g.Limit, on.Number(g.Units), until)
	}
	return t
}
