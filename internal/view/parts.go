package view

import (
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/screen"
)

// What follows are the parts of a screen, for a page that arranges them otherwise.

// Notes is what is to be said of a limit beside its numbers.
func Notes(on screen.Screen, l budget.LimitStatus, at time.Time) []string { return notes(on, l, at) }

// Hidden reports whether a limit is that of one operation with nothing used, which is only
// counted.
func Hidden(l budget.LimitStatus) bool { return hidden(l) }

// Kind is "rolling 24h" or "calendar day".
func Kind(on screen.Screen, w limit.Window) string { return kindText(on, w) }

// Cut says which pass is cut, when, by which limit, and by how many units; with its job's name
// if names is true.
func Cut(on screen.Screen, c *answer.PlanFirstCut, names bool) string { return cutText(on, c, names) }

// PlanVerdict is a plan's answer in a sentence, on one line.
func PlanVerdict(on screen.Screen, p *answer.Plan) string {
	return strings.Join(strings.Fields(planVerdict(on, p)), " ")
}
