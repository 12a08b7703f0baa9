package jobs

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/jobs/needs"
)

// How long a record of what shares still need lasts, and how often it is renewed.
const (
	planLasts  = 4 * time.Minute
	planEvery  = time.Minute
	planWithin = 10 * time.Second // how long the store may take for one
)

// planner writes what shares whose guarantees lapse by plan still need. One record at a time
// is written, so that none replaces one that knows more.
type planner struct {
	writer string
	turn   chan struct{} // taken by who writes

	mu     sync.Mutex        // guards counts; no store is asked while it is locked
	counts map[string]string // by budget, the jobs of the last record that was written
}

func newPlanner() *planner {
	return &planner{writer: rand.Text(), turn: make(chan struct{}, 1), counts: map[string]string{}}
}

// counted is of what jobs the last record of a budget was; empty: there is none.
func (p *planner) counted(budget string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts[budget]
}

// count notes of what jobs the last record of a budget is; empty: it is not known.
func (p *planner) count(budget, jobs string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[budget] = jobs
}

// isPlanned reports whether a guarantee of a budget lapses by plan.
func isPlanned(b *budget.Budget) bool {
	return b != nil && b.LapsesByPlan()
}

// planBefore writes what is needed before a pass begins, unless a record counts it: that of a
// scheduled tick by the same jobs does.
func (r *Runner) planBefore(ctx context.Context, j *Job, claimed claim) {
	b := r.budget(j.Budget)
	if !isPlanned(b) {
		return
	}
	if claimed.Kind != Scheduled || claimed.Part > 1 || r.planner.counted(j.Budget) != countsOf(r.list()) {
		r.planBudget(ctx, j.Budget)
	}
}

// planAll writes what is needed of all budgets.
func (r *Runner) planAll(ctx context.Context) {
	names := map[string]bool{}
	for _, j := range r.list() {
		names[j.Budget] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if isPlanned(r.budget(name)) {
			r.planBudget(ctx, name)
		}
	}
}

// planBudget writes what the shares of a budget still need. Without an answer the last record
// lasts until its end, and after that guarantees are whole.
func (r *Runner) planBudget(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, planWithin)
	defer cancel()
	select {
	case r.planner.turn <- struct{}{}:
		defer func() { <-r.planner.turn }()
	case <-ctx.Done():
		r.planner.count(name, "")
		return
	}
	list := r.list()
	ahead := map[string]*jobAhead{}
	need := func(l limit.Limit, s limit.Share, until time.Time) (int64, string, bool) {
		return r.mayNeed(ctx, list, name, ahead, l, s, until)
	}
	if err := r.budget(name).WritePlan(ctx, r.planner.writer, planLasts, need); err != nil {
		r.planner.count(name, "")
		r.log.Warn("what shares may still need could not be written; their guarantees stay whole, at the latest from the end of the last record", "budget", name, "error", err)
		return
	}
	r.planner.count(name, countsOf(list))
}

// countsOf names jobs and what their needs are counted by.
func countsOf(list []*Job) string {
	var of []string
	for _, j := range list {
		of = append(of, fmt.Sprint(j.Name, j.Budget, j.counts(), j.Regions, j.stated, j.bound, j.Retries))
	}
	slices.Sort(of)
	return digest(of)
}

// digest is a digest of texts, in 16 hexadecimal digits.
func digest(texts []string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\n")))
	return hex.EncodeToString(sum[:8])
}

// jobAhead is what is known of a job: its state, and what its runs may take.
type jobAhead struct {
	state *state
	needs Needs
	err   error
}

// mayNeed is a [budget.MayNeed] of a budget's shares, by the jobs of a list. It is unknown if
// one that the share names is not among them, or spends another budget here.
func (r *Runner) mayNeed(ctx context.Context, list []*Job, name string, known map[string]*jobAhead, l limit.Limit, s limit.Share, until time.Time) (sum int64, jobs string, ok bool) {
	var names []string
	ok = true
	for _, j := range list {
		if !s.Has(j.Name) {
			continue
		}
		names = append(names, j.Name)
		if j.Budget != name {
			ok = false
			continue
		}
		if known[j.Name] == nil {
			known[j.Name] = r.readAhead(ctx, j)
		}
		amount, counted := known[j.Name].most(j, l, r.now(), until, s.Guarantee)
		ok = ok && counted
		sum = min(sum+min(amount, limit.MaxUnits), limit.MaxUnits)
	}
	for _, pattern := range s.Jobs {
		if !strings.HasSuffix(pattern, "*") && !slices.Contains(names, pattern) {
			ok = false
		}
	}
	slices.Sort(names)
	return sum, digest(names), ok && len(names) > 0
}

// readAhead reads what is known of a job.
func (r *Runner) readAhead(ctx context.Context, j *Job) *jobAhead {
	found, err := r.docs.state.Job(ctx, j.Name)
	if err != nil {
		return &jobAhead{err: err}
	}
	s, err := readDocument[state](j.Name, found)
	if err != nil {
		return &jobAhead{err: err}
	}
	n, err := j.readNeedsBy(ctx, r.docs.state, needs.Most)
	return &jobAhead{s, n, err}
}

// most is what a job may still need of a limit until an instant: for the ticks until then,
// and those that nobody has accounted for yet; for what waits, was asked for or was deferred; and
// for passes under way, which may take all of theirs. It stops counting ticks at enough.
func (a *jobAhead) most(j *Job, l limit.Limit, now, until time.Time, enough int64) (sum int64, known bool) {
	if a.err != nil {
		return 0, false
	}
	ahead := needs.Ahead{Run: a.needs.Run, Times: 1 + int64(j.Retries), Passes: int64(len(a.state.Waiting))}
	part := func(regions []string) {
		if len(regions) == 0 {
			ahead.Passes++
			return
		}
		ahead.Parts = append(ahead.Parts, regions)
	}
	for i := range a.state.Active {
		part(a.state.Active[i].regions())
	}
	for _, asked := range a.state.Requests {
		part(asked.Regions)
	}
	for range a.state.Deferred {
		ahead.Passes++
	}
	amount := func(e needs.Estimate) (sum int64) {
		for _, one := range e.Amounts {
			switch {
			case !l.Covers(one.Operation):
			case l.Counts == limit.CountCalls:
				sum += min(one.Calls, limit.MaxUnits)
			default:
				sum += min(one.Units, limit.MaxUnits)
			}
		}
		return sum
	}
	from := now.Add(-onTime)
	if accounted := time.UnixMicro(a.state.Until); a.state.Until > 0 && (accounted.After(from) || j.CatchUp != CatchUpNone) {
		from = accounted
	}
	each, known := needs.Ahead{Run: ahead.Run, Times: ahead.Times, Passes: 1}.Most(j.Regions, amount)
	if !known {
		return 0, false
	}
	for tick := j.Next(from); each > 0 && !tick.IsZero() && tick.Before(until) && ahead.Passes <= enough/each; tick = j.Next(tick) {
		ahead.Passes++
	}
	return ahead.Most(j.Regions, amount)
}
