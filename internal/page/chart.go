package page

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/look"
)

// chart is the use of a limit over time. The curves have coordinates from 0 to 1000, which the
// page stretches to its width; all else is in percent of the width and in pixels of the height, so
// that neither lines nor letters are stretched.
type chart struct {
	Limit, Title, Label  string
	Past, Area, Ahead    string // paths
	LimitY, KeptY, KeptH int    // px; KeptH 0: nothing is kept
	Now                  string // where the present is; empty: at the left edge
	Resets               []tick
	Times, Levels        []tick
	Legend               legend
}

// legend is what a chart's legend has to explain.
type legend struct{ Past, Ahead, Kept, Resets bool }

// tick is a mark on an axis.
type tick struct {
	At    string // in percent of the width
	Y     int    // px
	Label string
}

// The heights of a chart in px: its plot begins at plotTop.
const plotTop, plotHeight = 18, 132

// point is how much was used at an instant.
type point struct {
	at   time.Time
	used int64
}

// charted reports whether the use of a limit is drawn: the history by hour says nothing of
// shorter windows, and buckets and open reservations have none.
func charted(l budget.LimitStatus) bool {
	switch l.Window.Kind {
	case limit.Rolling:
		return l.Window.Length >= 2*time.Hour.Microseconds()
	case limit.CalendarKind:
		return l.Window.Shortest() >= 2*time.Hour.Microseconds()
	}
	return false
}

// charts are those of a budget's limits.
func charts(b budget.Status, spent look.Spending, plan look.Foresight) (list []chart) {
	for _, l := range b.Limits {
		if hidden(l) || !charted(l) {
			continue
		}
		list = append(list, budgetChart(l, b.At, spent, planned(plan.Plan, b.Budget, l.Name)))
	}
	return list
}

// planned is the plan of a limit; nil: it is in none.
func planned(p *answer.Plan, name, limit string) *answer.PlanLimit {
	if p == nil {
		return nil
	}
	for i := range p.Budgets {
		for j := range p.Budgets[i].Limits {
			if l := &p.Budgets[i].Limits[j]; p.Budgets[i].Budget == name && l.Name == limit {
				return l
			}
		}
	}
	return nil
}

// budgetChart is what a limit used over its last window, and what it will use by plan.
func budgetChart(l budget.LimitStatus, now time.Time, spent look.Spending, ahead *answer.PlanLimit) chart {
	length := answer.WindowLength(l.Window, now)
	from := now.Add(-length)
	var past []point
	if !spent.At.IsZero() {
		past = useByHour(l, spent, from, now)
	}
	kept := int64(0)
	for _, s := range l.Shares {
		kept += s.Kept
	}
	c := plot{limit: l.Limit.Limit, kept: min(kept, l.Remaining), from: from, until: now.Add(min(length, usual)), now: now, past: past, resets: resetsOf(l.Window, from, now)}
	if ahead != nil {
		c.ahead = []point{{now, l.Used}}
		c.foresee(ahead)
	} else {
		c.until = now.Add(min(length, usual) / 4)
		c.resets = append(c.resets, resetsOf(l.Window, now, c.until)...)
	}
	drawn := c.draw()
	drawn.Limit, drawn.Title = l.Name, l.Name
	drawn.Label = fmt.Sprintf("Use of limit %s: %s of %s used now", l.Name, count(l.Used), countOf(l.Limit.Limit, l.Counts))
	if ahead != nil {
		drawn.Label += fmt.Sprintf("; by plan the fewest left are %s, at %s", count(ahead.Least), shown(time.Time(ahead.LeastAt)))
	}
	return drawn
}

// planChart is what a limit will use by plan.
func planChart(l *answer.PlanLimit, from, until time.Time) chart {
	c := plot{limit: l.Limit, from: from, until: until, now: from, ahead: []point{{from, l.UsedNow}}}
	c.foresee(l)
	drawn := c.draw()
	drawn.Limit, drawn.Now = l.Name, ""
	drawn.Label = fmt.Sprintf("Planned use of limit %s: %s of %s used now; the fewest left are %s, at %s", l.Name, count(l.UsedNow), countOf(l.Limit, l.Counts), count(l.Least), shown(time.Time(l.LeastAt)))
	return drawn
}

// useByHour is what a limit had used at each hour of a span, from the history by hour, and what it
// has used now.
func useByHour(l budget.LimitStatus, spent look.Spending, from, now time.Time) (points []point) {
	amounts := map[int64]int64{} // by the hour's beginning
	for _, h := range spent.Hours {
		if l.Covers(h.Operation) {
			amount := h.Units
			if l.Counts == limit.CountCalls && !limit.IsPseudo(h.Operation) {
				amount = h.Calls
			}
			amounts[h.Begin.Unix()] += amount
		}
	}
	hours := slices.Sorted(maps.Keys(amounts))
	totals := make([]int64, len(hours)+1) // of all hours before each
	for i, hour := range hours {
		totals[i+1] = totals[i] + amounts[hour]
	}
	total := func(before time.Time) int64 {
		i, _ := slices.BinarySearch(hours, before.Unix())
		return totals[i]
	}
	sum := func(after, before time.Time) int64 { return total(before) - total(after.Truncate(time.Hour)) }
	at := from.Truncate(time.Hour).Add(time.Hour)
	if known := spent.Since; at.Before(known) {
		at = known
	}
	for ; at.Before(now); at = at.Add(time.Hour) {
		if l.Window.Kind == limit.Rolling {
			points = append(points, point{at, sum(at.Add(-time.Duration(l.Window.Length)*time.Microsecond), at)})
			continue
		}
		start, _ := l.Window.Calendar.Period(at.UnixMicro() - 1)
		points = append(points, point{at, sum(time.UnixMicro(start), at)})
		if again, _ := l.Window.Calendar.Period(at.UnixMicro()); again != start {
			points = append(points, point{at, 0})
		}
	}
	return append(points, point{now, l.Used})
}

// resetsOf are the resets of a calendar within a span.
func resetsOf(w limit.Window, from, until time.Time) (list []time.Time) {
	if w.Kind != limit.CalendarKind {
		return nil
	}
	for at := from.UnixMicro(); ; {
		_, next := w.Calendar.Period(at)
		if next <= at || next >= until.UnixMicro() {
			return list
		}
		list, at = append(list, time.UnixMicro(next).UTC()), next
	}
}

// plot is what a chart draws.
type plot struct {
	limit, kept      int64
	from, until, now time.Time
	past, ahead      []point
	resets           []time.Time
}

// foresee adds what is planned of a limit. Its use falls to nothing at a reset, and not before.
func (p *plot) foresee(l *answer.PlanLimit) {
	for _, r := range l.Resets {
		at := time.Time(r.At)
		p.resets = append(p.resets, at)
		p.ahead = append(p.ahead, point{at, max(0, l.Limit-r.Left)}, point{at, 0})
	}
	for _, s := range l.Series {
		if at := time.Time(s.At); at.After(p.now) {
			p.ahead = append(p.ahead, point{at, s.Used})
		}
	}
	if at := time.Time(l.LeastAt); at.After(p.now) { // the peak may be between two samples
		p.ahead = append(p.ahead, point{at, l.Limit - l.Least})
	}
	slices.SortStableFunc(p.ahead, func(a, b point) int { return a.at.Compare(b.at) })
	p.ahead = slices.DeleteFunc(p.ahead, func(one point) bool { return one.at.After(p.until) })
}

func (p *plot) draw() chart {
	c := chart{Legend: legend{Past: len(p.past) > 0, Ahead: len(p.ahead) > 1, Kept: p.kept > 0, Resets: len(p.resets) > 0}}
	top := max(1, p.limit)
	for _, list := range [][]point{p.past, p.ahead} {
		for _, one := range list {
			top = max(top, one.used)
		}
	}
	span := float64(p.until.Sub(p.from))
	x := func(at time.Time) float64 { return 1000 * min(1, max(0, float64(at.Sub(p.from))/span)) }
	y := func(used int64) float64 { return 1000 - 1000*float64(used)/float64(top) }
	pixel := func(used int64) int { return plotTop + int(y(used)*plotHeight/1000+0.5) }
	c.Past = curve(p.past, x, y)
	if len(p.past) > 0 {
		c.Area = fmt.Sprintf("%sL%.1f 1000L%.1f 1000Z", c.Past, x(p.past[len(p.past)-1].at), x(p.past[0].at))
	}
	c.Ahead = curve(p.ahead, x, y)
	c.LimitY = pixel(p.limit)
	if p.kept > 0 {
		c.KeptY = c.LimitY
		c.KeptH = max(1, pixel(p.limit-p.kept)-c.LimitY)
	}
	where := func(at time.Time) string { return percent(x(at), 1000) }
	c.Now = where(p.now)
	for _, at := range p.resets {
		if at.After(p.from) && at.Before(p.until) {
			c.Resets = append(c.Resets, tick{At: where(at), Label: "reset " + shown(at)})
		}
	}
	c.Times = timesOf(p.from, p.until, where)
	c.Levels = []tick{{Y: pixel(p.limit), Label: count(p.limit)}, {Y: pixel(p.limit / 2), Label: count(p.limit / 2)}}
	if p.limit < 2 {
		c.Levels = c.Levels[:1]
	}
	return c
}

// curve is a line through points.
func curve(points []point, x func(time.Time) float64, y func(int64) float64) string {
	var b strings.Builder
	for i, p := range points {
		command := "L"
		if i == 0 {
			command = "M"
		}
		fmt.Fprintf(&b, "%s%.1f %.1f", command, x(p.at), y(p.used))
	}
	return b.String()
}

// timesOf are marks at round times, in UTC: at most six.
func timesOf(from, until time.Time, where func(time.Time) string) (list []tick) {
	const day = 24 * time.Hour
	step := 365 * day
	for _, d := range []time.Duration{time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, day, 2 * day, 7 * day, 14 * day} {
		if until.Sub(from)/d <= 6 {
			step = d
			break
		}
	}
	for at := from.UTC().Truncate(step).Add(step); at.Before(until); at = at.Add(step) {
		label := at.Format("15:04")
		if at.Equal(at.Truncate(day)) {
			label = at.Format("Jan 2")
		}
		if part := float64(at.Sub(from)) / float64(until.Sub(from)); part < 0.03 || part > 0.97 {
			continue // its label would be cut off
		}
		list = append(list, tick{At: where(at), Label: label})
	}
	return list
}
