package page

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/look"
)

// budgetBody is the page of one budget.
type budgetBody struct {
	Card       budgetCard
	Locks      []lockRow
	Charts     []chart
	Shares     []shareRow
	Held       []heldRow
	Jobs       []spenderRow
	Operations []spenderRow
	Refused    [3][]look.Spender // by limit, job and operation
	WhoSince   time.Time
	MoreJobs   int
	MoreOps    int
	Lockable   []string // limits
	Planning   bool
}

// lockRow is a lock on the budget or one of its limits.
type lockRow struct {
	Limit string // empty: the whole budget
	Text  string
	Since time.Time
}

// shareRow is a share of a limit.
type shareRow struct {
	Limit, Name                              string
	Guarantee, InForce, Used, Kept, Borrowed int64
	Lapses                                   time.Time
	ByPlan                                   bool
}

// heldRow is what a pass holds of a limit.
type heldRow struct {
	Limit, Job, Region string
	Amount             int64
	Until              time.Time
}

// spenderRow is who spent how much.
type spenderRow struct {
	Name         string
	Units, Calls int64
	Part         string // of all units, as a width
	Percent      string
}

// mostSpenders is how many jobs and operations a budget's page lists.
const mostSpenders = 20

// budget shows one budget.
func (v *visit) budget() sheet {
	name := v.query("name")
	if !slices.Contains(v.reader.Budgets(), name) {
		if _, err := v.reader.Open(name); name == "" || err != nil {
			return missing("/", "There is no budget "+text(name)+" in the configuration.")
		}
	}
	show := sheet{template: "budget", title: name, place: "/"}
	body := budgetBody{Card: budgetCard{Name: name}}
	b, ok := v.status(name)
	if !ok {
		show.body = body
		if !v.pending {
			show.status = http.StatusServiceUnavailable
		}
		return show
	}
	plan, planned := v.foresight(usual)
	body.Planning = !planned
	body.Card = newCard(b, plan.Forecast.Budget(name))
	past, who := reach(b)
	spent, _ := v.spending(name, past, who)
	body.Charts = charts(b, spent, plan)
	for _, l := range b.Locks {
		body.Locks = append(body.Locks, lockRow{l.Limit, lockText(l), l.Since})
	}
	for _, l := range b.Limits {
		if !hidden(l) {
			body.Lockable = append(body.Lockable, l.Name)
		}
		for _, h := range l.Held {
			body.Held = append(body.Held, heldRow{l.Name, h.Job, h.Region, h.Amount, h.Until})
		}
		for _, s := range l.Shares {
			body.Shares = append(body.Shares, shareRow{l.Name, s.Name, s.Guarantee, s.InForce, s.Used, s.Kept, s.Borrowed, s.LapsesAt, s.Plan})
		}
	}
	body.WhoSince = spent.WhoSince
	body.Jobs, body.MoreJobs = spenders(spent.Jobs)
	body.Operations, body.MoreOps = spenders(spent.Operations)
	for i, list := range [][]look.Spender{spent.Limits, spent.Jobs, spent.Operations} {
		body.Refused[i] = refused(list)
	}
	show.body = body
	return show
}

// reach is how far back charts need the history, and what span those who spent are shown for: the
// tightest limit's window.
func reach(b budget.Status) (past, who time.Duration) {
	const least, most = 24 * time.Hour, 62 * 24 * time.Hour
	who = least
	for _, l := range b.Limits {
		if charted(l) {
			past = max(past, 2*answer.WindowLength(l.Window, b.At))
		}
	}
	if t := b.Tightest(); t != nil && (t.Window.Kind == limit.Rolling || t.Window.Kind == limit.CalendarKind) {
		who = max(least, answer.WindowLength(t.Window, b.At))
	}
	return min(most, max(past, least)), min(most, who)
}

// refused are those that were refused most or waited.
func refused(list []look.Spender) []look.Spender {
	list = slices.DeleteFunc(slices.Clone(list), func(s look.Spender) bool { return s.Refused == 0 && s.Waited == 0 })
	slices.SortStableFunc(list, func(a, b look.Spender) int { return cmp.Compare(b.Refused, a.Refused) })
	return list[:min(len(list), mostSpenders)]
}

func spenders(list []look.Spender) (rows []spenderRow, more int) {
	list = slices.DeleteFunc(slices.Clone(list), func(s look.Spender) bool { return s.Units == 0 && s.Calls == 0 })
	var total budget.SpentRow
	for _, s := range list {
		total.Units, total.Calls = total.Units+s.Units, total.Calls+s.Calls
	}
	for _, s := range list[:min(len(list), mostSpenders)] {
		part := answer.Part(budget.SpentRow{Units: s.Units, Calls: s.Calls}, total)
		rows = append(rows, spenderRow{s.Name, s.Units, s.Calls, percent(part, 1), fmt.Sprintf("%.1f%%", 100*part)})
	}
	return rows, len(list) - len(rows)
}
