// Package plan says what will happen: it lives the schedules of all jobs in fake time, beside
// the ledgers as they stand, and says which passes will be complete, which is cut first, when,
// and by which limit. [Read] reads a question from a store, and [Question.Plan] answers it.
// Nothing is written, and no upstream is called.
//
// A plan knows the jobs of its configuration alone. What others spend after its start, and
// what fails and is tried again, is not in it.
package plan

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/jobs"
	"github.com/quotactl/quotactl/jobs/needs"
)

// DefaultSpan is how far a plan reaches unless told: what fails tomorrow is known today.
const DefaultSpan = 48 * time.Hour

// Question asks what the jobs of a configuration will do.
type Question struct {
	// From is the instant of the ledgers, and the plan's first. Until is its last.
	From, Until time.Time
	Budgets     []Budget
	Jobs        []Job // in the order of the configuration: those that tick together begin in it
	// High has runs whose needs were learned take what was enough for nine of ten. Otherwise
	// they take the mean: of many runs, some take more and others less.
	High bool
	// takes is what a run takes, in place of its needs; nil: those count.
	takes func(j *jobs.Job, region string, tick time.Time) []needs.Amount
}

// Budget is a budget as it stands.
type Budget struct {
	Name string
	// Limits are those in force: an automatic headroom is what it is now.
	Limits []limit.Limit
	// Price is what a call of an operation costs, in units.
	Price func(operation string) int64
	Rows  []Row // that count in a limit
	// Levels are those of buckets, by the limit's name.
	Levels map[string]limit.Level
	Locks  []driver.LockView
	Holds  []driver.Hold
	// Observe: a lock of the budget refuses nothing.
	Observe bool
	// Rough: what returns is known to the hour.
	Rough bool
}

// Job is a job as it stands.
type Job struct {
	*jobs.Job
	jobs.Overview
	Needs jobs.Needs
	// Call is how long a call takes. 0: not known; then all calls of a run count at its start.
	Call time.Duration
	// Begins is how long a daemon takes to begin or to record a pass of the job.
	Begins time.Duration
	// Notes is how long a daemon takes to note that a page was fetched, and that a run has
	// ended, where the job keeps checkpoints.
	Notes time.Duration
	// Progress are the records so far of the passes under way, in the order of Active; nil:
	// nothing is known of one.
	Progress []*jobs.Record
	// Spent is what the runs of the passes under way have spent by then, by region, in the order
	// of Active; nil: only Progress says it.
	Spent []map[string]RunSpent
}

// Plan is the answer to a question.
type Plan struct {
	From, Until time.Time
	Budgets     []BudgetPlan
	Passes      []*Pass // in the order in which they begin
}

// BudgetPlan is what happens to a budget.
type BudgetPlan struct {
	Name   string
	Limits []LimitPlan
}

// LimitPlan is what happens to a limit.
type LimitPlan struct {
	limit.Limit
	UsedNow int64
	// Least is the least that is left, beside what is held, and LeastAt when that is first so.
	Least   int64
	LeastAt time.Time
	// Resets are those of a calendar, as the last charge before them leaves it.
	Resets []Reset
	Series []Sample
}

// Sample is what a limit has used at an instant.
type Sample struct {
	At   time.Time
	Used int64
}

// Short reports whether a pass of the plan will be cut, or will not be started, for want of
// units.
func (p *Plan) Short() bool { return p.FirstCut("") != nil }

// FirstCut is the first pass of a job (empty: of any) that is cut or not started; nil: none is.
func (p *Plan) FirstCut(job string) (first *Pass) {
	for _, one := range p.Passes {
		if one.Wanting() && (job == "" || one.Job == job) && (first == nil || one.At.Before(first.At)) {
			first = one
		}
	}
	return first
}

// Wanting reports whether the pass lacks units.
func (p *Pass) Wanting() bool {
	return p.Outcome == Cut || p.Outcome == NotStarted || p.Outcome == Deferred || p.Outcome == Failed && !p.At.IsZero()
}

// samples is into how many parts a plan's span is divided for the series.
const samples = 96

// LastReset is the last of the calendars' next resets; zero: no limit has a calendar.
func (q *Question) LastReset() (last time.Time) {
	for i := range q.Budgets {
		for _, l := range q.Budgets[i].Limits {
			if l.Window.Kind != limit.CalendarKind {
				continue
			}
			if _, until := l.Window.Span(q.From.UnixMicro()); instant(until).After(last) {
				last = instant(until)
			}
		}
	}
	return last
}

// Plan lives the question's span. The error is the context's, or names a job whose budget is
// missing.
func (q *Question) Plan(ctx context.Context) (*Plan, error) {
	s := &simulation{until: q.Until.UnixMicro(), ledgers: map[string]*ledger{}}
	s.now = q.From.UnixMicro()
	s.from = s.now
	prices := map[string]func(string) int64{}
	calls := map[string]int64{}
	for i := range q.Jobs {
		calls[q.Jobs[i].Name] = q.Jobs[i].Call.Microseconds()
	}
	for i := range q.Budgets {
		b := &q.Budgets[i]
		s.ledgers[b.Name], prices[b.Name] = b.ledger(s.now, calls), b.Price
		for _, c := range s.ledgers[b.Name].counters {
			c.ends = s.until
		}
	}
	for i := range q.Jobs {
		one := &q.Jobs[i]
		l := s.ledgers[one.Budget]
		if l == nil {
			return nil, fmt.Errorf("plan job %s: its budget %s is not among those of the plan", one.Name, one.Budget)
		}
		j := one.inFakeTime(int64(i+1), l, prices[one.Budget])
		j.high, j.takes = q.High, q.takes
		s.jobs = append(s.jobs, j)
	}
	answer := &Plan{From: q.From, Until: q.Until}
	for i := range q.Budgets {
		answer.Budgets = append(answer.Budgets, s.watch(&q.Budgets[i]))
	}
	for i := range q.Budgets {
		s.keepRecords(s.ledgers[q.Budgets[i].Name])
	}
	for i, j := range s.jobs {
		s.resumeWork(j, &q.Jobs[i])
		j.accounted = q.From.UnixMicro()
		s.ticks(j, q.From)
	}
	s.endOtherHolds()
	if err := s.simulate(ctx); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	for i := range answer.Budgets {
		s.sum(&answer.Budgets[i])
	}
	answer.Passes = s.passes
	return answer, nil
}

// ledger is the budget in fake time; calls is how long the calls of a job take, in µs.
func (b *Budget) ledger(now int64, calls map[string]int64) *ledger {
	l := newLedger(b.Limits, now)
	for i := range b.Rows {
		row := &b.Rows[i]
		finish := row.Score
		if row.Began > 0 {
			finish = min(finish, max(now, row.Began+calls[row.Job]))
		}
		l.row(row, finish)
	}
	for _, h := range b.Holds {
		h.Left = slices.Clone(h.Left)
		l.holds = append(l.holds, &hold{job: h.Job, Hold: h})
	}
	for _, c := range l.counters {
		if c.limit.Window.Kind == limit.Bucket {
			c.level = b.Levels[c.limit.Name]
			if _, period := c.limit.Window.Refill.Rate(); c.level.Part >= period { // the refill is another one
				c.level.Part = 0
			}
			c.used = c.level.Used
		}
		c.sorted()
	}
	for _, lock := range b.Locks {
		if lock.Limit != "" || !b.Observe {
			l.locks = append(l.locks, lock)
		}
	}
	return l
}

// inFakeTime is the job as it begins.
func (one *Job) inFakeTime(place int64, l *ledger, prices func(string) int64) *job {
	j := &job{
		Job: one.Job, prices: prices, place: place, ledger: l, needs: one.Needs, call: one.Call.Microseconds(), begins: one.Begins.Microseconds(), notes: one.Notes.Microseconds(),
		paused: one.Pause != nil, first: append([]string(nil), one.First...), nextRegion: one.NextRegion, rest: map[string]needsLeft{}, complete: map[string]int{},
	}
	for _, r := range one.Needs.Regions {
		j.complete[r.Region] = r.Complete
	}
	for _, c := range l.counters {
		if share := c.limit.ShareOf(j.Name); share >= 0 {
			j.guarantee = max(j.guarantee, c.limit.Guarantees()[share])
		}
	}
	return j
}

// watch has what each limit of a budget has used noted at intervals.
func (s *simulation) watch(b *Budget) BudgetPlan {
	l, answer := s.ledgers[b.Name], BudgetPlan{Name: b.Name}
	for _, c := range l.counters {
		answer.Limits = append(answer.Limits, LimitPlan{Limit: c.limit, UsedNow: c.used})
	}
	every := max((s.until-s.now)/samples, 1e6)
	var sample func()
	sample = func() {
		l.advance(s.now)
		for i, c := range l.counters {
			answer.Limits[i].Series = append(answer.Limits[i].Series, Sample{instant(s.now), c.used})
		}
		if s.now+every <= s.until {
			s.add(s.now+every, samplesFirst, sample)
		}
	}
	s.add(s.now, samplesFirst, sample)
	return answer
}

// sum adds what is known of the limits only at the end.
func (s *simulation) sum(answer *BudgetPlan) {
	l := s.ledgers[answer.Name]
	l.advance(max(s.now, s.until))
	for i, c := range l.counters {
		one := &answer.Limits[i]
		one.Least, one.LeastAt = c.least, instant(c.leastAt)
		for _, r := range c.resets {
			if r.At <= s.until {
				one.Resets = append(one.Resets, r)
			}
		}
	}
}
