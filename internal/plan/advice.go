package plan

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/jobs"
)

// Advice is a change of the configuration that makes more passes complete.
type Advice struct {
	Set      string // KEY=VALUE, as --set takes it
	Complete int    // how many passes are complete with it
	Change   *Plan
}

// The bounds of what is tried for an advice: changes, jobs that they are for, and passes that
// are lived in all.
const (
	mostChanges = 60
	mostAdvised = 3
	mostPasses  = 300_000
)

// Advise tries changes of the configuration by the same simulation: another hour or minute,
// another stagger, a share, fewer pages. It returns the one that makes most passes complete, of
// several the one that changes least; nil: none makes more complete, other than by putting passes
// off until after the plan. change returns the question with a change; one that the configuration
// does not allow is left out.
func (q *Question) Advise(ctx context.Context, p *Plan, change func(set string) (*Question, error)) (*Advice, error) {
	if !p.Short() {
		return nil, nil
	}
	before := q.Sums(p)
	list := q.changes(p)
	list = list[:min(len(list), mostChanges, max(1, mostPasses/max(1, len(p.Passes))))]
	var best *Advice
	for _, set := range list {
		other, err := change(set)
		if err != nil {
			continue
		}
		lived, err := other.Plan(ctx)
		if err != nil {
			return nil, err
		}
		if n := lived.Complete(); n > p.Complete() && !putsOff(before, other.Sums(lived)) && (best == nil || n > best.Complete) {
			best = &Advice{set, n, lived}
		}
	}
	return best, nil
}

// putsOff reports whether a job has fewer passes after a change.
func putsOff(before, after []JobPlan) bool {
	return slices.ContainsFunc(before, func(j JobPlan) bool {
		at := slices.IndexFunc(after, func(other JobPlan) bool { return other.Name == j.Name })
		return at < 0 || after[at].Passes < j.Passes
	})
}

// changes are what may help, those first that change least: for each kind of change, for the
// jobs that lack most, and for those that spend most of what they lack.
func (q *Question) changes(p *Plan) (list []string) {
	sums := q.Sums(p)
	lacks := slices.DeleteFunc(slices.Clone(sums), func(j JobPlan) bool { return j.First == nil })
	slices.SortStableFunc(lacks, func(a, b JobPlan) int {
		return cmp.Compare(b.Passes-b.Complete, a.Passes-a.Complete)
	})
	lacks = lacks[:min(len(lacks), mostAdvised)]
	spends := slices.DeleteFunc(slices.Clone(sums), func(j JobPlan) bool {
		return j.Units == 0 || !slices.ContainsFunc(lacks, func(other JobPlan) bool { return other.Budget == j.Budget })
	})
	slices.SortStableFunc(spends, func(a, b JobPlan) int { return cmp.Compare(b.Units, a.Units) })
	spends = spends[:min(len(spends), mostAdvised)]
	both := slices.Clone(lacks)
	for _, j := range spends {
		if !slices.ContainsFunc(both, func(other JobPlan) bool { return other.Name == j.Name }) {
			both = append(both, j)
		}
	}
	for _, j := range both {
		list = append(list, q.times(j.Name)...)
	}
	for _, j := range both {
		list = append(list, q.staggers(j.Name)...)
	}
	for _, j := range lacks {
		list = append(list, q.share(j)...)
	}
	for _, j := range both {
		list = append(list, q.pages(j.Name)...)
	}
	return list
}

func (q *Question) job(name string) *jobs.Job {
	return q.Jobs[slices.IndexFunc(q.Jobs, func(j Job) bool { return j.Name == name })].Job
}

// times are other hours of a schedule that names one hour, every third of them, and other
// minutes of one that names one minute.
func (q *Question) times(name string) (list []string) {
	const hours, minutes = 3, 15
	fields := strings.Fields(q.job(name).Schedule.String())
	if len(fields) != 5 {
		return nil
	}
	set := func(at, value int) {
		other := slices.Clone(fields)
		other[at] = strconv.Itoa(value)
		list = append(list, fmt.Sprintf("job.%s.schedule=%q", quoted(name), strings.Join(other, " ")))
	}
	minute, err := strconv.Atoi(fields[0])
	if err != nil {
		return nil
	}
	if hour, err := strconv.Atoi(fields[1]); err == nil {
		for by := hours; by < 24; by += hours {
			set(1, (hour+by)%24)
		}
		return list
	}
	for by := minutes; by < 60; by += minutes {
		set(0, (minute+by)%60)
	}
	return list
}

// staggers are half and double the stagger.
func (q *Question) staggers(name string) (list []string) {
	j := q.job(name)
	if len(j.Regions) < 2 || j.Stagger == 0 {
		return nil
	}
	for _, other := range []string{limit.SpanText(2 * j.Stagger), limit.SpanText(j.Stagger / 2)} {
		list = append(list, fmt.Sprintf("job.%s.stagger=%q", quoted(name), other))
	}
	return list
}

// share guarantees a job what its passes of a period need, if a limit that it lacked can be
// divided and no share has the job.
func (q *Question) share(j JobPlan) []string {
	at := slices.IndexFunc(q.Budgets, func(b Budget) bool { return b.Name == j.Budget })
	limits := q.Budgets[at].Limits
	lim := slices.IndexFunc(limits, func(l limit.Limit) bool { return l.Name == j.First.Limit && l.CanDivide() })
	if lim < 0 || limits[lim].ShareOf(j.Name) >= 0 || j.Passes == 0 || q.job(j.Name).Floor > 0 {
		return nil
	}
	l := limits[lim]
	of := driver.AmountOf(l, asNeeds(j.Needs.Amounts))
	span := q.Until.Sub(q.From).Microseconds()
	period := min(span, l.Window.Shortest())
	passes := (int64(j.Passes)*period + span - 1) / span
	units := of * max(1, passes)
	upstream, _, _ := strings.Cut(j.Budget, "/")
	if units <= 0 || units > l.Limit || strings.Contains(l.Name, ":") {
		return nil
	}
	return []string{fmt.Sprintf("upstream.%s.share.%s={ jobs = [%q], units = %d, limits = [%q] }", quoted(upstream), quoted(j.Name), j.Name, units, l.Name)}
}

// pages are half and a quarter of the pages of a fetch.
func (q *Question) pages(name string) (list []string) {
	fetch := q.job(name).Fetch
	if fetch == nil || fetch.NextParam == "" {
		return nil
	}
	for _, part := range []int{2, 4} {
		if n := fetch.MaxPages / part; n > 0 {
			list = append(list, fmt.Sprintf("job.%s.fetch.max_pages=%d", quoted(name), n))
		}
	}
	return list
}

// quoted is a name as a part of a key.
func quoted(name string) string {
	if strings.Contains(name, ".") {
		return strconv.Quote(name)
	}
	return name
}
