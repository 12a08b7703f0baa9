package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/screen"
	"github.com/quotactl/quotactl/internal/table"
)

// Plan is a plan for people: the verdict first, then the jobs, and a plot of each limit; on a
// terminal without all only of those with least left that it has lines for.
func Plan(on screen.Screen, p *answer.Plan, all bool) string {
	if len(p.Jobs) == 0 {
		return "There are no jobs, so there is nothing to plan.\n"
	}
	var b strings.Builder
	b.WriteString(PlanVerdict(on, p))
	b.WriteString("\n" + planJobs(on, p.Jobs).String())
	from, until := time.Time(p.From), time.Time(p.Until)
	heading := "\n" + on.Wrap("", fmt.Sprintf("What is used of each limit from %s to %s, a column for %s:", on.Brief(from), on.Brief(until), Roughly(until.Sub(from)/time.Duration(plotWidth(on)))))
	var plots []block
	for _, budget := range p.Budgets {
		name := "\n" + on.Wrap("", budget.Budget+IfClosed(on, budget.Now))
		for i := range budget.Limits {
			l := &budget.Limits[i]
			if l.Hidden() {
				continue
			}
			plots = append(plots, block{name, planLimit(on, l, from, until), float64(l.Least) / float64(max(1, l.Limit))})
		}
		if len(plots) == 0 || plots[len(plots)-1].head != name {
			plots = append(plots, block{name, "", 1})
		}
	}
	var below strings.Builder
	if len(p.Guesses) > 0 {
		below.WriteString("\n" + on.Wrap("", fmt.Sprintf("It is not known what the runs of %s need, so this plan counts nothing for them. Write needs into the tables of these jobs; without, needs are learned from five complete runs on.", strings.Join(p.Guesses, ", "))))
	}
	if p.Advised && len(p.Advice) == 0 {
		below.WriteString("\n" + on.Wrap("", "Nothing that was tried (another hour or minute, another stagger, a share, fewer pages) makes more passes complete."))
	}
	for _, a := range p.Advice {
		text := fmt.Sprintf("With this change, %d of %d passes will be complete", a.Complete, a.Passes)
		if c := a.FirstCut; c != nil {
			still := "will then"
			if slices.ContainsFunc(p.Jobs, func(j answer.PlanJob) bool { return j.Job == c.Job && j.FirstCut != nil }) {
				still = "will still"
			}
			text += fmt.Sprintf("; %s %s lack units", c.Job, still)
		}
		command := "--set"
		if on.Terminal {
			command = "quotactl plan --set"
		}
		below.WriteString("\n" + on.Wrap("", text+":") + "  " + command + " '" + a.Set + "'\n")
	}
	shown, left := fit(on, all, b.String()+heading+below.String(), plots, 0)
	switch {
	case shown != "":
		b.WriteString(heading + shown)
	case left > 0:
		b.WriteString("\n" + on.Wrap("", on.Faint("no lines left to plot "+Plural(left, "limit")+"; -v plots all")))
		left = 0
	}
	if left > 0 {
		b.WriteString(on.Wrap("", on.Faint(Plural(left, "more limit")+", less used; -v shows all")))
	}
	return b.String() + below.String()
}

// PlanVerdict is the answer in a sentence.
func PlanVerdict(on screen.Screen, p *answer.Plan) string {
	complete, passes := p.Complete()
	until, fits := "until "+on.Brief(time.Time(p.Until)), "fits: "
	if len(p.Guesses) > 0 {
		fits = "fits, as far as needs are known: "
	}
	switch first := p.First; {
	case first != nil:
		return on.Wrap("", fmt.Sprintf("short: %s. %d of %s %s will be complete.", Cut(on, first, true), complete, Plural(passes, "pass"), until))
	case p.HighCut() != nil:
		return on.Wrap("", fmt.Sprintf("%sno pass %s lacks units. But if each run takes as much as nine of ten runs do not exceed: %s.", fits, until, Cut(on, p.HighCut(), true)))
	}
	return on.Wrap("", fmt.Sprintf("%sno pass %s lacks units (%s, %d complete).", fits, until, Plural(passes, "pass"), complete))
}

// Cut says which pass is cut, when, by which limit, and by how many units.
func Cut(on screen.Screen, c *answer.PlanFirstCut, names bool) string {
	what := "will be cut"
	switch c.Outcome {
	case "not_started":
		what = "will not start"
	case "deferred":
		what = "will be deferred"
	case "failed":
		what = "will fail"
	}
	text := "tick " + on.Brief(time.Time(c.Tick))
	switch atTick := time.Time(c.Tick).Equal(time.Time(c.At)); {
	case on.Terminal && atTick && names:
		text = c.Job
	case on.Terminal && atTick:
		text = "its pass"
	case names:
		text = fmt.Sprintf("%s (%s)", c.Job, text)
	}
	if c.Limit == "" {
		return text + " has lacked units already and will not be complete"
	}
	text += fmt.Sprintf(" %s at %s", what, on.Time(time.Time(c.At)))
	if c.Lock != nil {
		return text + ": " + Closed(on, c.Lock.Lock())
	}
	return text + fmt.Sprintf(" by limit %s, %s short", c.Limit, on.Number(c.Short))
}

// planJobs is what becomes of each job. Columns that would be 0 throughout are left out.
func planJobs(on screen.Screen, list []answer.PlanJob) *table.Table {
	rare := []struct {
		head string
		of   func(*answer.PlanJob) int
	}{
		{">CUT", func(j *answer.PlanJob) int { return j.Cut }},
		{">NOT STARTED", func(j *answer.PlanJob) int { return j.NotStarted }},
		{">DEFERRED", func(j *answer.PlanJob) int { return j.Deferred }},
		{">SKIPPED", func(j *answer.PlanJob) int { return j.Skipped }},
		{">FAILED", func(j *answer.PlanJob) int { return j.Failed }},
	}
	rare = slices.DeleteFunc(rare, func(one struct {
		head string
		of   func(*answer.PlanJob) int
	}) bool {
		return !slices.ContainsFunc(list, func(j answer.PlanJob) bool { return one.of(&j) > 0 })
	})
	heads := []string{"JOB", ">PASSES", ">COMPLETE"}
	for _, one := range rare {
		heads = append(heads, one.head)
	}
	t := on.Table(append(heads, ">UNITS", "A PASS NEEDS")...)
	for i := range list {
		j := &list[i]
		row := []string{j.Job, fmt.Sprint(j.Passes), fmt.Sprint(j.Complete)}
		for _, one := range rare {
			row = append(row, fmt.Sprint(one.of(j)))
		}
		t.Add(append(row, on.Number(j.Units), Needs(j.Expected().Needs))...)
		if c := j.FirstCut; c != nil {
			t.Below("", "first: "+Cut(on, c, false))
		}
	}
	return t
}

// plotWidth is how many columns a plot has.
func plotWidth(on screen.Screen) int {
	if !on.Terminal {
		return 64
	}
	return min(on.Width-6, 192)
}

// bars are the eighths of a plot's line, from nothing to the whole limit.
var bars = []rune(" ▁▂▃▄▅▆▇█")

// planLimit is a plot of what a limit has used, and what is left at its resets.
func planLimit(on screen.Screen, l *answer.PlanLimit, from, until time.Time) string {
	unit := "units"
	if l.Counts == limit.CountCalls {
		unit = "calls"
	}
	name := l.Name
	if l.Observed() {
		name += " (observe mode)"
	}
	head := fmt.Sprintf("%s: %s of %s %s used now; fewest left: %s, at %s", name, on.Number(l.UsedNow), on.Number(l.Limit), unit, on.Number(l.Least), on.Time(time.Time(l.LeastAt)))
	out := on.Wrap("  ", head)
	width := plotWidth(on)
	line := make([]rune, width)
	span := until.Sub(from)
	column := func(at time.Time) int {
		return min(width-1, max(0, int(int64(at.Sub(from))*int64(width)/max(1, int64(span)))))
	}
	highest, sampled := make([]int64, width), make([]bool, width)
	for _, s := range l.Series {
		c := column(time.Time(s.At))
		highest[c], sampled[c] = max(highest[c], s.Used), true
	}
	for i, used := range highest {
		if !sampled[i] && i > 0 { // a short span has fewer samples than columns
			highest[i], used = highest[i-1], highest[i-1]
		}
		line[i] = bar(used, l.Limit)
	}
	if at := time.Time(l.LeastAt); !at.IsZero() { // it may be between two samples
		peak := column(at)
		line[peak] = bar(max(highest[peak], l.Limit-l.Least), l.Limit)
	}
	out += "    |" + string(line) + "|\n"
	if on.Terminal {
		out += on.Faint("     "+axis(on, width, from, until)) + "\n"
	}
	marks := []rune(strings.Repeat(" ", width))
	for _, r := range l.Resets {
		marks[column(time.Time(r.At))] = '^'
	}
	if len(l.Resets) > 0 {
		out += "    " + strings.TrimRight(" "+string(marks), " ") + "\n"
		const most = 3
		var texts []string
		for _, r := range l.Resets[:min(most, len(l.Resets))] {
			texts = append(texts, fmt.Sprintf("at %s with %s left", on.Time(time.Time(r.At)), on.Number(r.Left)))
		}
		if more := len(l.Resets) - most; more > 0 {
			texts = append(texts, fmt.Sprintf("%d more", more))
		}
		out += on.Wrap("    ^ ", "resets "+strings.Join(texts, ", "))
	}
	return out
}

// bar is the bar of what is used of a limit.
func bar(used, limit int64) rune {
	part := int64(len(bars) - 1)
	if limit > 0 {
		part = min(part, (used*part+limit-1)/limit)
	}
	return bars[part]
}

// axis names the beginning, the middle and the end of a plot of that many columns.
func axis(on screen.Screen, width int, from, until time.Time) string {
	begin, middle, end := on.Clock(from), on.Clock(from.Add(until.Sub(from)/2)), on.Clock(until)
	room := width - len(begin) - len(middle) - len(end)
	if room < 2 {
		return begin
	}
	left := max(1, (width-len(middle))/2-len(begin))
	return begin + strings.Repeat(" ", left) + middle + strings.Repeat(" ", max(1, room-left)) + end
}

// Beside compares two plans in a sentence.
func Beside(on screen.Screen, present, other *answer.Plan) string {
	before, of := present.Complete()
	after, passes := other.Complete()
	known := ""
	if len(present.Guesses)+len(other.Guesses) > 0 {
		known = ", as far as needs are known"
	}
	return on.Wrap("", fmt.Sprintf("With the change, %d of %s will be complete; without it, %d of %d%s.", after, Plural(passes, "pass"), before, of, known))
}

// Replay is a replay for people.
func Replay(on screen.Screen, r *answer.Replay) string {
	var b strings.Builder
	for _, one := range r.Budgets {
		since := time.Time(r.From)
		if at := time.Time(one.Since); !at.IsZero() {
			since = at
		}
		text := fmt.Sprintf("%s: %s since %s, %s units", one.Budget, Plural(int(one.Calls), "call"), on.Time(since), on.Number(one.Charged))
		if one.Units != one.Charged {
			text += fmt.Sprintf(", %s at these prices", on.Number(one.Units))
		}
		switch {
		case one.Calls == 0:
			b.WriteString(on.Wrap("", fmt.Sprintf("%s: nothing was charged since %s.", one.Budget, on.Time(since))))
			continue
		case len(one.Refused) == 0:
			b.WriteString(on.Wrap("", text+"; all would have fitted."))
			continue
		}
		calls, units := int64(0), int64(0)
		t := on.Table("JOB", "OPERATION", ">CALLS", ">UNITS", "FIRST IN THE HOUR", "LIMIT")
		for _, f := range one.Refused {
			calls, units = calls+f.Calls, units+f.Units
			t.Add(Shown(cmp.Or(string(f.Job), "-")), f.Operation, on.Number(f.Calls), on.Number(f.Units), on.Time(time.Time(f.First)), f.Limit)
		}
		b.WriteString(on.Wrap("", text+fmt.Sprintf("; %s (%s units) would not have fitted:", Plural(int(calls), "call"), on.Number(units))) + t.String())
	}
	b.WriteString(on.Wrap("", "The history is by the hour: the calls of an hour are taken as made when they fit best. Calls that were refused at the time are not in it."))
	return b.String()
}

// ByPlan is a line that says what the jobs' plan makes of a budget: the first pass that lacks
// units, else the least that is left. It is empty for nil.
func ByPlan(on screen.Screen, f *answer.BudgetForecast) string {
	if text := byPlan(on, f); text != "" {
		return on.Wrap("  ", text)
	}
	return ""
}

func byPlan(on screen.Screen, f *answer.BudgetForecast) string {
	if f == nil || f.Passes == 0 {
		return ""
	}
	about := "by plan: "
	if f.Rough {
		about = "by plan, to the hour: "
	}
	beside := ""
	switch unknown := strings.Join(f.Unknown, ", "); {
	case !f.Known() && f.FirstCut == nil:
		return "by plan: not known, since it is not known what the runs of " + unknown + " need"
	case unknown != "":
		beside = "; it counts nothing for " + unknown + ", whose needs are not known"
	}
	if f.FirstCut != nil {
		return about + Cut(on, f.FirstCut, true) + fmt.Sprintf("; %d of %s until %s will be complete", f.Complete, Plural(f.Passes, "pass"), on.Brief(time.Time(f.Until))) + beside
	}
	text := about + fmt.Sprintf("no pass until %s lacks units", on.Brief(time.Time(f.Until)))
	if f.Least != nil {
		text += fmt.Sprintf("; fewest left: %s of limit %s, at %s", on.Number(f.Least.Remaining), f.Least.Limit, on.Time(time.Time(f.Least.At)))
	}
	return text + beside
}

// JobByPlan says what the plan makes of a job with a pass that lacks units.
func JobByPlan(on screen.Screen, f *answer.JobForecast) string {
	return fmt.Sprintf("by plan: %s; %d of %s until %s will be complete", Cut(on, f.FirstCut, false), f.Complete, Plural(f.Passes, "pass"), on.Brief(time.Time(f.Until)))
}
