package page

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dustin/go-humanize"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/jobview"
	"github.com/quotactl/quotactl/internal/screen"
	"github.com/quotactl/quotactl/internal/view"
	"github.com/quotactl/quotactl/jobs"
	"github.com/quotactl/quotactl/jobs/needs"
)

// All calls of packages view and jobview are in this file: a page says the same sentences as the
// command line, and arranges them otherwise.

// lowPart is the part of a limit below which it is marked, as on a terminal.
const lowPart = screen.LowPart

func shown(at time.Time) string                              { return screen.Pipe().Time(at) }
func text(of string) string                                  { return view.Shown(of) }
func roughly(d time.Duration) string                         { return view.Roughly(d) }
func plural(n int, what string) string                       { return view.Plural(n, what) }
func kind(w limit.Window) string                             { return view.Kind(screen.Pipe(), w) }
func hidden(l budget.LimitStatus) bool                       { return view.Hidden(l) }
func keptText(l budget.LimitStatus) string                   { return view.KeptText(count, l) }
func freeOf(l budget.LimitStatus) string                     { return view.Free(l) }
func lockText(l budget.Lock) string                          { return view.Lock(screen.Pipe(), l) }
func closedText(l budget.Lock) string                        { return view.Closed(screen.Pipe(), l) }
func ifClosed(b budget.Status) string                        { return view.IfClosed(screen.Pipe(), b) }
func othersText(o budget.OtherShares) string                 { return view.Others(screen.Pipe(), o) }
func refusedText(b budget.Status) string                     { return line(view.Refused(screen.Pipe(), b)) }
func aheadText(b budget.Status) string                       { return line(view.Ahead(screen.Pipe(), b, time.Hour)) }
func byPlanText(f *answer.BudgetForecast) string             { return line(view.ByPlan(screen.Pipe(), f)) }
func limitNotes(l budget.LimitStatus, at time.Time) []string { return view.Notes(screen.Pipe(), l, at) }
func verdictText(p *answer.Plan) string                      { return line(view.PlanVerdict(screen.Pipe(), p)) }
func cutText(c *answer.PlanFirstCut, names bool) string      { return view.Cut(screen.Pipe(), c, names) }
func needsText(e needs.Estimate) string                      { return view.Needs(e) }
func jobByPlan(f *answer.JobForecast) string                 { return view.JobByPlan(screen.Pipe(), f) }
func lacksText(r answer.NextRun) string                      { return jobview.Lacks(screen.Pipe(), r) }
func beganText(kind jobs.Kind, note string) string           { return jobview.Began(kind, note) }
func unstarted(l []answer.Job, d []jobs.Daemon) bool         { return jobview.Unstarted(l, d) }
func heldText(h jobs.Hold) string                            { return jobview.Held(h) }
func fitsText(runs []answer.NextRun) string                  { return line(jobview.Fits(screen.Pipe(), runs)) }
func whyText(w budget.Why) string                            { return view.Why(screen.Pipe(), w, true) }

// jobNotes is all that is to be said of a job beside its numbers.
func jobNotes(v answer.Job, at time.Time) []string {
	list := append(jobview.Now(screen.Pipe(), v), view.Deferred(screen.Pipe(), v, at)...)
	return append(list, jobview.Waits(screen.Pipe(), v)...)
}

// line is a wrapped text on one line.
func line(wrapped string) string { return strings.Join(strings.Fields(wrapped), " ") }

// sentence is a string with a capital letter and a full stop.
func sentence(of string) string {
	of = strings.TrimSpace(of)
	first, size := utf8.DecodeRuneInString(of)
	if of == "" {
		return ""
	}
	of = string(unicode.ToUpper(first)) + of[size:]
	if strings.HasSuffix(of, ".") || strings.HasSuffix(of, "?") {
		return of
	}
	return of + "."
}

// count is a number for people, with a comma before each three digits.
func count(n int64) string { return humanize.Comma(n) }

// counts is a number of units or calls.
func countOf(n int64, what limit.Counts) string {
	unit := "unit"
	if what == limit.CountCalls {
		unit = "call"
	}
	if n != 1 {
		unit += "s"
	}
	return count(n) + " " + unit
}

// stamp is an instant for programs.
func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// ago is how long ago an instant was.
func ago(at, now time.Time) string {
	since := now.Sub(at)
	switch {
	case since < time.Second && since > -time.Second:
		return "now"
	case since < 0:
		return "in " + view.Roughly((-since).Round(time.Second))
	}
	return view.Roughly(since.Round(time.Second)) + " ago"
}

// bit is a part of a sentence: a text, or an instant.
type bit struct {
	Text string
	At   time.Time // zero: a text
}

var instants = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{6})?Z`) })

// prose divides a sentence at the instants that it names, so that a page marks them as such.
func prose(of string) (bits []bit) {
	of = text(of)
	end := 0
	for _, place := range instants().FindAllStringIndex(of, -1) {
		at, err := time.Parse(time.RFC3339, strings.Replace(of[place[0]:place[1]], " ", "T", 1))
		if err != nil {
			continue
		}
		if place[0] > end {
			bits = append(bits, bit{Text: of[end:place[0]]})
		}
		bits = append(bits, bit{At: at})
		end = place[1]
	}
	if end < len(of) {
		bits = append(bits, bit{Text: of[end:]})
	}
	return bits
}

// percent is a part of a whole, for an attribute of SVG.
func percent(part, whole float64) string {
	if whole <= 0 {
		return "0%"
	}
	return fmt.Sprintf("%.2f%%", 100*min(1, max(0, part/whole)))
}

// outcomeName is an outcome in words.
func outcomeName(of string) string { return strings.ReplaceAll(of, "_", " ") }

// clock is the time of day of an instant, in UTC.
func clock(at time.Time) string {
	at = at.UTC().Truncate(time.Second)
	return at.Format("15:04:05Z")
}

// lines is a string of several lines.
func lines(of string) string {
	list := strings.Split(of, "\n")
	for i := range list {
		list[i] = text(list[i])
	}
	return strings.Join(list, "\n")
}
