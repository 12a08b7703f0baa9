package page

import (
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/look"
)

// spans are those that can be planned: a plan for each is kept.
var spans = []struct {
	name string
	span time.Duration
}{{"6h", 6 * time.Hour}, {"24h", 24 * time.Hour}, {"48h", usual}, {"7d", 7 * 24 * time.Hour}, {"31d", 31 * 24 * time.Hour}}

// planBody is the page of the plan.
type planBody struct {
	Spans    []choice
	Verdict  string
	Short    bool
	Jobs     []planRow
	MoreJobs int
	Budgets  []planBudget
	Unknown  string
	Any      bool // there are jobs
}

// planRow is what becomes of a job's passes.
type planRow struct {
	Name, Budget, Needs, First string
	Level                      string
	Unknown                    bool // what its runs need
	Passes, Complete           int
	Cut, NotStarted            int
	Deferred, Skipped, Failed  int
	Units                      int64
}

type planBudget struct {
	Name   string
	Closed string // how it is locked; empty: it is not
	Limits []planLimit
}

type planLimit struct {
	Name, Counts, Level string
	Limit, Used, Least  int64
	LeastAt             time.Time
	Observed            bool
	Chart               chart
}

const (
	// mostPlanned is how many jobs the plan lists, those that lack units first.
	mostPlanned = 200
	// mostCharts is how many charts it draws.
	mostCharts = 24
)

// plan shows what will happen.
func (v *visit) plan() sheet {
	asked := v.query("for")
	span := usual
	if exact, err := limit.ParseSpan(asked); err == nil {
		for _, one := range spans {
			if span = one.span; exact <= span { // the next longer one, else the longest
				break
			}
		}
	}
	body := planBody{Any: len(v.reader.Jobs) > 0}
	for _, one := range spans {
		body.Spans = append(body.Spans, choice{one.name, one.name, one.span == span})
	}
	show := sheet{template: "plan", title: "Plan", place: "/plan"}
	if !body.Any {
		show.body = body
		return show
	}
	if seen, ok := v.foresight(span); ok {
		body.fill(seen)
	}
	show.body = body
	return show
}

func (p *planBody) fill(seen look.Foresight) {
	p.Verdict, p.Short = sentence(verdictText(seen.Plan)), seen.Plan.Short()
	var good []planRow
	for i := range seen.Plan.Jobs {
		j := &seen.Plan.Jobs[i]
		row := planRow{
			Name: j.Job, Budget: j.Budget, Needs: needsText(j.Expected().Needs), Level: levelGood, Passes: j.Passes, Complete: j.Complete, Cut: j.Cut, NotStarted: j.NotStarted,
			Deferred: j.Deferred, Skipped: j.Skipped, Failed: j.Failed, Units: j.Units,
		}
		if j.FirstCut != nil {
			row.First, row.Level = cutText(j.FirstCut, false), levelLow
			p.Jobs = append(p.Jobs, row)
			continue
		}
		if slices.Contains(seen.Plan.Guesses, j.Job) { // nothing is counted for it
			row.Level, row.Unknown = levelQuiet, true
		}
		good = append(good, row)
	}
	p.Jobs = append(p.Jobs, good...)
	p.MoreJobs = max(0, len(p.Jobs)-mostPlanned)
	p.Jobs = p.Jobs[:len(p.Jobs)-p.MoreJobs]
	drawn := 0
	for _, b := range seen.Plan.Budgets {
		one := planBudget{Name: b.Budget, Closed: ifClosed(b.Now)}
		for i := range b.Limits {
			l := &b.Limits[i]
			if l.Hidden() || drawn == mostCharts {
				continue
			}
			drawn++
			row := planLimit{Name: l.Name, Counts: string(l.Counts), Limit: l.Limit, Used: l.UsedNow, Least: l.Least, LeastAt: time.Time(l.LeastAt), Observed: l.Observed(), Level: levelGood}
			if l.Least == 0 && !row.Observed {
				row.Level = levelOut
			}
			row.Chart = planChart(l, seen.From, seen.Until)
			one.Limits = append(one.Limits, row)
		}
		if len(one.Limits) > 0 {
			p.Budgets = append(p.Budgets, one)
		}
	}
	if len(seen.Plan.Guesses) > 0 {
		p.Unknown = guesses(seen.Plan)
	}
}

// guesses names jobs whose needs are unknown.
func guesses(p *answer.Plan) string {
	const most = 10
	list := p.Guesses
	text := ""
	for i, name := range list[:min(most, len(list))] {
		if i > 0 {
			text += ", "
		}
		text += name
	}
	if len(list) > most {
		text += " and " + plural(len(list)-most, "more job")
	}
	return "It is not known what the runs of " + text + " need, so this plan counts nothing for them. Write needs into the tables of these jobs; without, needs are learned from five complete runs on."
}
