package plan_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/jobs"
)

// store is what the daemon and the planner share.
type store interface {
	driver.Store
	driver.JobStore
}

// Question is what a plan is asked at the start of a day.
type Question struct {
	Config       string    // the text of costs.toml
	Path         string    // the file that has it
	Start, Until time.Time // the plan is of ticks later than Start, and of what happens up to Until
	Store        store     // as it stands at Start: the ledger, the locks, the jobs' documents and records
}

// Outcome is what becomes of a pass, as far as a plan can tell.
type Outcome string

const (
	Complete   Outcome = "complete"    // every run succeeded, perhaps after the pass was deferred
	Cut        Outcome = "cut"         // a run began, and the units were gone before the last one had ended
	NotStarted Outcome = "not started" // the units were gone before the first run
	Deferred   Outcome = "deferred"    // it still waits for its units at the end
	Skipped    Outcome = "skipped"     // another pass of the job was under way
	Missed     Outcome = "missed"      // no daemon was running in time
	Other      Outcome = "other"       // a run was out of time, since it waited for units
	Unfinished Outcome = "unfinished"  // it was under way at the end
)

// Pass is what became of one tick of a job.
type Pass struct {
	Job     string
	Tick    time.Time
	Outcome Outcome
	// At is the instant of the first refusal that was not waited out, also if the pass was deferred and
	// then complete; zero: there was none.
	At    time.Time
	Limit string // that refused then
	Units int64  // that it took
	// Reason is the record's, such as limit, hold, next_tick, overlap or down. Parts is in how many parts it ran, 0 or
	// more than 1.
	Reason string
	Parts  int
	Ended  time.Time
}

// IsCut reports whether units were missing for the pass, and still are at the end.
func (p Pass) IsCut() bool {
	return p.Outcome == Cut || p.Outcome == NotStarted || p.Outcome == Deferred
}

func (p Pass) String() string {
	text := fmt.Sprintf("%s %s %s, %d units", p.Job, p.Tick.UTC().Format("01-02 15:04:05"), p.Outcome, p.Units)
	if p.Reason != "" {
		text += ", " + p.Reason
	}
	if !p.At.IsZero() {
		text += fmt.Sprintf(", refused at %s by %q", p.At.UTC().Format("01-02 15:04:05.000000"), p.Limit)
	}
	if p.Parts > 1 {
		text += fmt.Sprintf(", %d parts, ended %s", p.Parts, p.Ended.UTC().Format("01-02 15:04:05.000000"))
	}
	return text
}

// Left is what a limit had left just before a reset.
type Left struct {
	Budget, Limit string
	At            time.Time // of the reset
	Units         int64     // or calls, if the limit counts those
}

// Lived is what happened.
type Lived struct {
	Passes   []Pass // by tick and job
	Left     []Left // by instant, budget and limit
	Moves    []Move // by instant
	Charges  int64  // that the daemon made
	Requests int64  // that the sandbox counted
}

// firstCut is the instant of the first refusal among the passes that are cut; zero: none is.
func firstCut(passes []Pass) (first time.Time) {
	for _, p := range passes {
		if p.IsCut() && !p.At.IsZero() && (first.IsZero() || p.At.Before(first)) {
			first = p.At
		}
	}
	return first
}

// tick names a pass.
type tick struct {
	job string
	at  int64 // µs
}

func ticks(passes []Pass) map[tick]Pass {
	by := map[tick]Pass{}
	for _, p := range passes {
		by[tick{p.Job, p.Tick.UnixMicro()}] = p
	}
	return by
}

// differences compares what happened with what was planned: which passes are cut, and the instant of the first cut, to
// the second. Passes that were under way at the end are left out.
func differences(lived, planned []Pass) []string {
	var list []string
	l, p := ticks(lived), ticks(planned)
	for at, one := range l {
		other, known := p[at]
		switch {
		case one.Outcome == Unfinished || other.Outcome == Unfinished:
		case one.Outcome == Missed && !known: // it is of before the plan
		case !known:
			list = append(list, fmt.Sprintf("lived:   %s\nplanned: nothing", one))
		case one.IsCut() != other.IsCut():
			list = append(list, fmt.Sprintf("lived:   %s\nplanned: %s", one, other))
		}
	}
	for at, other := range p {
		if _, known := l[at]; !known && other.Outcome != Unfinished {
			list = append(list, fmt.Sprintf("lived:   nothing\nplanned: %s", other))
		}
	}
	slices.Sort(list)
	if a, b := firstCut(lived), firstCut(planned); a.Sub(b).Abs() >= time.Second {
		list = append(list, fmt.Sprintf(firstCutDiffers+" at %s, and was planned for %s", a.UTC().Format(time.RFC3339Nano), b.UTC().Format(time.RFC3339Nano)))
	}
	return list
}

// differencesFrom is differences for a plan that was made in the midst of the day: what had ended by then is left out, and
// so is when the first of what was under way is cut. Nothing says when a deferred pass was dropped.
func differencesFrom(at time.Time, lived, planned []Pass) (list []string) {
	dropped := map[tick]bool{}
	for _, one := range lived {
		dropped[tick{one.Job, one.Tick.UnixMicro()}] = one.Reason == jobs.ReasonNextTick && !one.Tick.After(at)
	}
	goesOn := func(p Pass) bool {
		return !dropped[tick{p.Job, p.Tick.UnixMicro()}] && (p.Tick.After(at) || p.Ended.After(at) || p.Outcome == Deferred || p.Outcome == Unfinished)
	}
	over := func(p Pass) bool { return !goesOn(p) }
	wasDropped := func(p Pass) bool { return dropped[tick{p.Job, p.Tick.UnixMicro()}] }
	before := func(p Pass) bool { return !p.Tick.After(at) }
	lived, planned = slices.DeleteFunc(slices.Clone(lived), over), slices.DeleteFunc(slices.Clone(planned), wasDropped)
	for _, text := range differences(lived, planned) {
		if !strings.HasPrefix(text, firstCutDiffers) {
			list = append(list, text)
		}
	}
	for _, text := range differences(slices.DeleteFunc(lived, before), slices.DeleteFunc(planned, before)) {
		if strings.HasPrefix(text, firstCutDiffers) {
			list = append(list, text)
		}
	}
	return list
}

const firstCutDiffers = "the first cut came"

// agreement sums up, over many days, how far the planned cuts are those that were lived.
type agreement struct{ both, lived, planned int }

// add counts the passes of a day.
func (a *agreement) add(lived, planned []Pass) {
	p := ticks(planned)
	for at, one := range ticks(lived) {
		other := p[at]
		if one.Outcome == Unfinished || other.Outcome == Unfinished {
			continue
		}
		if one.IsCut() && other.IsCut() {
			a.both++
		}
		if one.IsCut() {
			a.lived++
		}
		if other.IsCut() {
			a.planned++
		}
	}
}

// precision is how many of the planned cuts came, and recall how many of those that came were planned.
func (a *agreement) precision() float64 { return float64(a.both) / float64(max(1, a.planned)) }
func (a *agreement) recall() float64    { return float64(a.both) / float64(max(1, a.lived)) }

// mean is one number for the two: their harmonic mean.
func (a *agreement) mean() float64 { return 2 * float64(a.both) / float64(max(1, a.planned+a.lived)) }

// sortPasses orders passes by tick and job.
func sortPasses(list []Pass) {
	slices.SortFunc(list, func(a, b Pass) int { return cmp.Or(a.Tick.Compare(b.Tick), strings.Compare(a.Job, b.Job)) })
}
