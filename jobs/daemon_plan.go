package jobs

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
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

// planner writes what shares whose guarantees lapse by plan still need. Of each budget one
// record at a time is written, so that none replaces one that knows more.
type planner struct {
	writer string

	mu      sync.Mutex // guards all but the turns, also of budgets; no store is asked while it is locked
	budgets map[string]*planned
}

// planned is the writing of one budget's records.
type planned struct {
	turn    chan struct{} // taken by who writes, and by who uses learned
	learned map[string]learned
	next    *planWrite // that has not begun; nil: nobody asks for one
	counted []*Job     // by which the last record was counted; nil: it is not known
}

// planWrite is one record. It serves all who asked before it began.
type planWrite struct {
	done chan struct{} // closed once it was tried
	cut  bool          // it was not tried to the end, since who wrote had no more time
}

// learned is what the needs of a job are, until it has another record.
type learned struct {
	job   *Job
	last  []byte
	needs Needs
}

func newPlanner() *planner {
	return &planner{writer: rand.Text(), budgets: map[string]*planned{}}
}

// of is a budget's records.
func (p *planner) of(budget string) *planned {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.budgets[budget]
	if one == nil {
		one = &planned{turn: make(chan struct{}, 1)}
		p.budgets[budget] = one
	}
	return one
}

// counts reports whether the last record of a budget was counted by the list as it was last
// loaded.
func (p *planner) counts(budget string, list []*Job) bool {
	one := p.of(budget)
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(one.counted) == len(list) && len(list) > 0 && &one.counted[0] == &list[0]
}

// join is the record that serves who asks now.
func (p *planner) join(one *planned) *planWrite {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one.next == nil {
		one.next = &planWrite{done: make(chan struct{})}
	}
	return one.next
}

// begin has a record begin, by who has the turn; false: another has written it.
func (p *planner) begin(one *planned, w *planWrite) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one.next != w {
		return false
	}
	one.next = nil
	return true
}

// end notes by which jobs a record was counted; nil: it may not have been written.
func (p *planner) end(one *planned, w *planWrite, list []*Job, cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one.counted, w.cut = list, cut
	close(w.done)
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
	if claimed.Kind != Scheduled || claimed.Part > 1 || !r.planner.counts(j.Budget, r.list()) {
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

// planBudget writes what the shares of a budget still need, or waits for a record that another
// begins from now on. Without an answer the last record lasts until its end, and after that
// guarantees are whole.
func (r *Runner) planBudget(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, planWithin)
	defer cancel()
	one := r.planner.of(name)
	for {
		w := r.planner.join(one)
		select {
		case one.turn <- struct{}{}:
			if r.planner.begin(one, w) {
				list := r.list()
				err := r.writePlan(ctx, name, list, one)
				if err != nil {
					list = nil
					r.unplanned(name, err)
				}
				r.planner.end(one, w, list, err != nil && ctx.Err() != nil)
			}
			<-one.turn
		case <-w.done:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				r.unplanned(name, ctx.Err())
			}
			return
		}
		if <-w.done; !w.cut || ctx.Err() != nil {
			return
		}
	}
}

// unplanned logs that a record was not written.
func (r *Runner) unplanned(name string, err error) {
	r.log.Warn("what shares may still need could not be written; their guarantees stay whole, at the latest from the end of the last record", "budget", name, "error", err)
}

// writePlan is planBudget by a list of jobs, once it has the turn.
func (r *Runner) writePlan(ctx context.Context, name string, list []*Job, one *planned) error {
	b := r.budget(name)
	var ahead map[string]*jobAhead // is read once the instant from which needs are counted is known
	need := func(l limit.Limit, s limit.Share, until time.Time) (int64, string, bool) {
		if ahead == nil {
			ahead = r.readAhead(ctx, byPlan(b, list), one)
		}
		now := r.now()
		sum, names, known := needs.OfShare(&s, list, func(j *Job) string { return j.Name }, func(j *Job) (int64, bool) {
			a := ahead[j.Name]
			if j.Budget != name || a == nil || a.err != nil {
				return 0, false
			}
			return a.most(j, l, now, until)
		})
		return sum, digest(names), known
	}
	return b.WritePlan(ctx, r.planner.writer, planLasts, need)
}

// byPlan are those of a list that a share names whose guarantee lapses by plan.
func byPlan(b *budget.Budget, list []*Job) []*Job {
	limits := b.Spec().Limits
	return slices.DeleteFunc(slices.Clone(list), func(j *Job) bool {
		return j.Budget != b.Name() || !slices.ContainsFunc(limits, func(l limit.Limit) bool {
			return slices.ContainsFunc(l.Shares, func(s limit.Share) bool { return s.Plan && s.Has(j.Name) })
		})
	})
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

// readAhead reads what is known of jobs: their documents, and what they have learned since they
// were last read.
func (r *Runner) readAhead(ctx context.Context, list []*Job, one *planned) map[string]*jobAhead {
	ahead := map[string]*jobAhead{}
	names := make([]string, len(list))
	for i, j := range list {
		names[i] = j.Name
	}
	documents, err := r.docs.state.Jobs(ctx, names)
	if err != nil {
		return ahead
	}
	known := map[string]learned{}
	var anew []*Job
	for i, j := range list {
		s, err := readDocument[state](j.Name, documents[i])
		ahead[j.Name] = &jobAhead{state: s, err: err}
		if err != nil {
			continue
		}
		if before := one.learned[j.Name]; before.job == j && bytes.Equal(before.last, s.Last) {
			known[j.Name], ahead[j.Name].needs = before, before.needs
		} else {
			anew = append(anew, j)
		}
	}
	found, errs := readNeedsBy(ctx, r.docs.state, anew, needs.Most)
	for i, j := range anew {
		a := ahead[j.Name]
		if a.needs, a.err = found[i], errs[i]; a.err == nil {
			known[j.Name] = learned{j, a.state.Last, a.needs}
		}
	}
	one.learned = known
	return ahead
}

// most is what a job may still need of a limit until an instant: for the ticks until then,
// and those that nobody has accounted for yet; for what waits, was asked for or was deferred; and
// for passes under way, which may take all of theirs.
func (a *jobAhead) most(j *Job, l limit.Limit, now, until time.Time) (sum int64, known bool) {
	ahead := j.Ahead(a.needs, a.state.Until, now, until)
	ahead.Passes += int64(len(a.state.Waiting))
	for i := range a.state.Active {
		ahead.Add(a.state.Active[i].regions())
	}
	for _, asked := range a.state.Requests {
		ahead.Add(asked.Regions)
	}
	for _, left := range a.state.Deferred {
		ahead.Add(left.Regions)
	}
	return ahead.Most(j.Regions, l)
}

// Ahead are the passes of the ticks until an instant, and of those that nobody has accounted
// for since accounted (µs; 0: never). Other passes are to be added.
func (j *Job) Ahead(n Needs, accounted int64, now, until time.Time) needs.Ahead {
	from := overdueUpTo(now)
	if at := time.UnixMicro(accounted); accounted > 0 && (at.After(from) || j.CatchUp != CatchUpNone) {
		from = at
	}
	ticks, _, _ := j.Schedule.Between(from, until.Add(-time.Microsecond), 0)
	return needs.Ahead{Run: n.Run, Times: 1 + int64(j.Retries), Passes: int64(ticks)}
}
