package page

import (
	"cmp"
	"slices"

	"github.com/quotactl/quotactl/internal/alert"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/look"
)

const (
	// mostCards is how many budgets the first page shows, those that need attention first.
	mostCards = 24
	// mostBriefs is how many jobs it shows.
	mostBriefs = 10
)

// homeBody is the first page.
type homeBody struct {
	Cards     []budgetCard
	MoreCards int
	Jobs      []jobRow
	AllJobs   int
	Alerts    []string // what is wrong with alerts
	Told      int      // alerts
}

// home shows all budgets, and of jobs and alerts what needs attention.
func (v *visit) home() sheet {
	show := sheet{template: "home", title: "Budgets", place: "/"}
	seen, ok := v.overview()
	if !ok {
		show.body = homeBody{}
		return show
	}
	plan, _ := v.foresight(usual)
	body := homeBody{AllJobs: len(seen.Jobs), Told: len(seen.Alerts), Alerts: troubles(seen.Alerts)}
	for _, b := range seen.Budgets {
		body.Cards = append(body.Cards, newCard(b, plan.Forecast.Budget(b.Budget)))
	}
	if len(body.Cards) > mostCards {
		slices.SortStableFunc(body.Cards, func(a, b budgetCard) int { return cmp.Compare(urgency[a.Level], urgency[b.Level]) })
		body.MoreCards = len(body.Cards) - mostCards
		body.Cards = body.Cards[:mostCards]
	}
	body.Jobs = urgent(seen.Jobs, plan, mostBriefs)
	for i := range body.Jobs {
		body.Jobs[i].complete(v.now)
	}
	show.body = body
	return show
}

// urgency orders the levels.
var urgency = map[string]int{levelOut: 0, levelLow: 1, levelGood: 2, levelQuiet: 3}

// urgent are the first n rows of jobs by how much they ask for attention, then by the next tick.
func urgent(views []answer.Job, ahead look.Foresight, n int) []jobRow {
	rows := make([]jobRow, len(views))
	for i, one := range views {
		rows[i] = newJobRow(one, ahead)
	}
	slices.SortStableFunc(rows, func(a, b jobRow) int {
		return cmp.Or(cmp.Compare(urgency[a.Level], urgency[b.Level]), compareTicks(a, b))
	})
	return rows[:min(n, len(rows))]
}

// compareTicks orders rows by their next tick; those without one come last.
func compareTicks(a, b jobRow) int {
	switch {
	case a.Next.IsZero() || b.Next.IsZero():
		return cmp.Compare(b.Next.Unix(), a.Next.Unix())
	default:
		return a.Next.Compare(b.Next)
	}
}

// troubles are the texts of alerts that something is wrong with.
func troubles(list []alert.Health) (texts []string) {
	for _, h := range list {
		if text := h.Text(); text != "" {
			texts = append(texts, sentence(text))
		}
	}
	return texts
}
