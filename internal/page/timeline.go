package page

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/look"
	"github.com/quotactl/quotactl/internal/plan"
	"github.com/quotactl/quotactl/jobs"
)

// timeline is the passes of a job around the present. Each outcome has a shape of its own.
type timeline struct {
	Label string // all of it in words
	Marks []mark
	Bars  []span // passes under way
}

// mark is a pass, or several that are close together.
type mark struct {
	At, Shape, Title string // in percent; a symbol's name; in words
}

type span struct{ At, Width, Title string }

// scale is what the timelines of a page have in common.
type scale struct {
	Now   string
	Times []tick
}

// slots is how many marks a timeline has at most to each side.
const slots = 16

// The shapes of marks, as the symbols of the page are called: the more urgent come first.
var shapes = []string{"failed", "missed", "exhausted", "cut", "drained", "skipped", "unknown", "fits", "succeeded"}

// legendOfMarks names the shapes.
var legendOfMarks = []choice{
	{Value: "succeeded", Name: "succeeded"}, {Value: "exhausted", Name: "exhausted"}, {Value: "failed", Name: "failed"}, {Value: "missed", Name: "missed or lost"}, {Value: "drained", Name: "drained"}, {Value: "skipped", Name: "skipped"},
	{Value: "fits", Name: "will fit"}, {Value: "cut", Name: "will lack units"}, {Value: "unknown", Name: "not known"},
}

func newScale(now time.Time, span time.Duration) scale {
	from, until := now.Add(-span), now.Add(span)
	where := func(at time.Time) string { return percent(float64(at.Sub(from)), float64(until.Sub(from))) }
	return scale{where(now), timesOf(from, until, where)}
}

// shapeOf is the shape of an outcome.
func shapeOf(o jobs.Outcome) string {
	switch o {
	case jobs.Succeeded:
		return "succeeded"
	case jobs.Exhausted:
		return "exhausted"
	case jobs.Drained:
		return "drained"
	case jobs.Skipped:
		return "skipped"
	case jobs.Missed, jobs.Lost:
		return "missed"
	}
	return "failed"
}

// plannedShape is the shape of a planned outcome.
func plannedShape(o plan.Outcome) string {
	switch o {
	case plan.Complete:
		return "fits"
	case plan.Skipped:
		return "skipped"
	}
	return "cut"
}

// newTimeline draws the passes of a job over a span to both sides of now.
func newTimeline(one answer.Job, past []jobs.Record, ahead look.Foresight, now time.Time, reach time.Duration) timeline {
	var t timeline
	from := now.Add(-reach)
	where := func(at time.Time) string { return percent(float64(at.Sub(from)), float64(2*reach)) }
	before, after := newTally(reach), newTally(reach)
	for _, record := range past {
		if at := record.Tick.Time; at.After(from) && !at.After(now) {
			before.add(at, from, shapeOf(record.Outcome), string(record.Outcome))
		}
	}
	for _, active := range one.Active {
		begin := active.Since.Time
		if begin.Before(from) {
			begin = from
		}
		t.Bars = append(t.Bars, span{where(begin), percent(float64(now.Sub(begin)), float64(2*reach)), "under way since " + shown(active.Since.Time)})
	}
	known, until := map[int64]bool{}, now
	if ahead.Forecast.Job(one.Name) != nil {
		until = ahead.Until
		for _, pass := range ahead.Passes[one.Name] {
			if pass.Tick.After(now) && pass.Tick.Before(now.Add(reach)) {
				known[pass.Tick.Unix()] = true
				shape, words := plannedShape(pass.Outcome), outcomeName(string(pass.Outcome))
				if ahead.Unknown[one.Name] {
					shape, words = "unknown", "with unknown needs"
				}
				after.add(pass.Tick, now, shape, words)
			}
		}
	}
	if one.Schedule != nil { // what no plan says anything of
		tick := later(now, until)
		for range 12 * slots {
			if tick = one.Next(tick); tick.IsZero() || !tick.Before(now.Add(reach)) {
				break
			}
			if !known[tick.Unix()] {
				after.add(tick, now, "unknown", "not planned")
			}
		}
	}
	t.Marks = append(before.marks(where), after.marks(where)...)
	t.Label = fmt.Sprintf("Last %s: %s. Next %s: %s.", roughly(reach), before.words(), roughly(reach), after.words())
	if len(one.Active) > 0 {
		t.Label += " " + plural(len(one.Active), "pass") + " under way."
	}
	return t
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// tally gathers passes by slot.
type tally struct {
	each  time.Duration
	found map[int64]*slot
	named map[string]int
	order []string
	total int
}

type slot struct {
	at     time.Time
	shape  string
	titles []string
	more   int
}

func newTally(reach time.Duration) *tally {
	return &tally{each: reach / slots, found: map[int64]*slot{}, named: map[string]int{}}
}

func (t *tally) add(at, from time.Time, shape, words string) {
	t.total++
	if t.named[words]++; t.named[words] == 1 {
		t.order = append(t.order, words)
	}
	key := int64(at.Sub(from) / t.each)
	s := t.found[key]
	if s == nil {
		s = &slot{at: at, shape: shape}
		t.found[key] = s
	}
	if slices.Index(shapes, shape) < slices.Index(shapes, s.shape) {
		s.shape, s.at = shape, at
	}
	if len(s.titles) < 3 {
		s.titles = append(s.titles, shown(at)+" "+words)
	} else {
		s.more++
	}
}

func (t *tally) marks(where func(time.Time) string) (list []mark) {
	for _, s := range t.found {
		title := strings.Join(s.titles, ", ")
		if s.more > 0 {
			title += fmt.Sprintf(" and %d more", s.more)
		}
		list = append(list, mark{where(s.at), s.shape, title})
	}
	slices.SortFunc(list, func(a, b mark) int { return strings.Compare(a.Title, b.Title) })
	return list
}

// words say how many passes of which outcome there are.
func (t *tally) words() string {
	if t.total == 0 {
		return "no passes"
	}
	parts := make([]string, len(t.order))
	for i, words := range t.order {
		parts[i] = fmt.Sprintf("%d %s", t.named[words], words)
	}
	return plural(t.total, "pass") + ", " + strings.Join(parts, ", ")
}
