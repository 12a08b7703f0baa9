package plan

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/jobs"
	"github.com/quotactl/quotactl/jobs/needs"
)

// Store is what a question is read from.
type Store interface {
	driver.Store
	driver.JobStore
}

// Reading says how to read a question.
type Reading struct {
	// Others are other limits, by budget: so far back as they count is read too, for
	// [Question.Other].
	Others map[string][]limit.Limit
	// Rough reads a large ledger by the hour, from its history: what returns is then known to
	// the hour, and reading takes as long as the history is, not the ledger.
	Rough bool
}

// mostExact is how many calls a window of a ledger may have that a rough reading reads exactly.
const mostExact = 20_000

// Read reads the question what jobs will do from an instant on: what their budgets' ledgers
// hold, what their passes are doing, and what their runs need. Budgets without a job among them
// are left out. For a budget that is charged meanwhile, it may or may not read charges after
// the instant. Errors are those of the store.
func Read(ctx context.Context, from Store, budgets []*budget.Budget, list []*jobs.Job, now time.Time, as Reading) (*Question, error) {
	q := &Question{From: now}
	views, err := jobs.Look(ctx, from, list)
	if err != nil {
		return nil, fmt.Errorf("read what the jobs are doing: %w", err)
	}
	expected, err := jobs.ReadNeeds(ctx, from, list)
	if err != nil {
		return nil, fmt.Errorf("read what the jobs need: %w", err)
	}
	for i, j := range list {
		one := Job{Job: j, Overview: views[i], Needs: expected[i]}
		for _, active := range views[i].Active {
			one.Progress = append(one.Progress, readRecord(active.Progress))
		}
		one.Call, one.Begins = took(readRecord(views[i].Last))
		q.Jobs = append(q.Jobs, one)
	}
	for _, b := range budgets {
		if !slices.ContainsFunc(list, func(j *jobs.Job) bool { return j.Budget == b.Name() }) {
			continue
		}
		working := passesOf(q.Jobs, b.Name())
		one, err := readBudget(ctx, from, b, now, as, working)
		if err != nil {
			return nil, err
		}
		if !one.Rough { // its rows say what each run has spent
			for _, w := range working {
				w.of.Spent = append(w.of.Spent, w.spent)
			}
		}
		q.Budgets = append(q.Budgets, one)
	}
	return q, nil
}

// mostAhead is how many runs a plan has at most that nobody asked for by itself.
const mostAhead = 200_000

// Ahead plans from an instant to another, from ledgers that are read roughly. Where jobs tick so
// often that there would be too many runs, the plan ends earlier: after half of the span, or half
// of that.
func Ahead(ctx context.Context, from Store, budgets []*budget.Budget, list []*jobs.Job, now, until time.Time) (*Question, *Plan, error) {
	for until.Sub(now) > time.Hour && runsUntil(list, now, until) > mostAhead {
		until = now.Add(until.Sub(now) / 2)
	}
	q, err := Read(ctx, from, budgets, list, now, Reading{Rough: true})
	if err != nil {
		return nil, nil, err
	}
	q.Until = until
	lived, err := q.Plan(ctx)
	return q, lived, err
}

// runsUntil is how many runs jobs have between two instants.
func runsUntil(list []*jobs.Job, now, until time.Time) (runs int) {
	for _, j := range list {
		ticks, _, _ := j.Schedule.Between(now, until, 1)
		runs += ticks * len(j.Regions)
	}
	return runs
}

// readRecord is a pass's record; nil if there is none, or another version wrote it.
func readRecord(text json.RawMessage) *jobs.Record {
	record := &jobs.Record{}
	if text == nil || json.Unmarshal(text, record) != nil {
		return nil
	}
	return record
}

// took is the median of how long a call took in the complete runs of a pass, and how late after
// its tick the pass began; 0: not known.
func took(pass *jobs.Record) (call, begins time.Duration) {
	const latest = 10 * time.Second // a later one waited for something
	if pass == nil {
		return 0, 0
	}
	if late := pass.Started.Sub(pass.Tick.Time); pass.Kind == jobs.Scheduled && late > 0 && late < latest {
		begins = late
	}
	var calls []time.Duration
	for _, run := range pass.Runs {
		if run.Outcome == jobs.Succeeded && run.Calls > 0 && run.Attempts <= 1 {
			calls = append(calls, run.Ended.Sub(run.Started.Time)/time.Duration(run.Calls))
		}
	}
	if len(calls) == 0 {
		return 0, begins
	}
	slices.Sort(calls)
	return max(0, calls[len(calls)/2]), begins
}

// newBudget is a budget without any charge.
func newBudget(name string, spec budget.Spec) Budget {
	one := Budget{Name: name, Levels: map[string]limit.Level{}, Observe: spec.Observe, Price: func(operation string) int64 {
		if cost, known := spec.Costs[operation]; known {
			return cost.Units
		}
		return spec.Unknown.Units
	}}
	for _, l := range spec.Limits {
		if !l.PerOperation {
			one.Limits = append(one.Limits, l)
			continue
		}
		for _, operation := range slices.Sorted(maps.Keys(spec.Costs)) {
			if l.Covers(operation) {
				one.Limits = append(one.Limits, l.For(operation))
			}
		}
	}
	return one
}

// readBudget reads a budget as it stands.
func readBudget(ctx context.Context, from driver.Store, b *budget.Budget, now time.Time, as Reading, working []*working) (Budget, error) {
	status, err := b.Status(ctx)
	if err != nil {
		return Budget{}, err
	}
	one := newBudget(b.Name(), b.Spec())
	one.Limits = nil
	counting := slices.DeleteFunc(slices.Clone(as.Others[one.Name]), func(l limit.Limit) bool { return l.Window.Kind == limit.Bucket })
	for _, l := range status.Limits {
		one.Limits = append(one.Limits, l.Limit)
		if l.Window.Kind == limit.Bucket {
			one.Levels[l.Name] = l.Window.Refill.LevelFrom(l.Used, status.At.UnixMicro(), l.NextReturn.UnixMicro())
			continue
		}
		counting = append(counting, l.Limit)
	}
	for _, lock := range status.Locks {
		one.Locks = append(one.Locks, driver.LockView{Limit: lock.Limit, Until: lock.Until.UnixMicro(), Since: lock.Since.UnixMicro(), Why: lock.Why})
	}
	if !status.Recovering.IsZero() {
		one.Locks = append(one.Locks, driver.LockView{Until: status.Recovering.UnixMicro(), Why: "the store has lost data"})
	}
	if status.Holds > 0 {
		view, err := from.Look(ctx, driver.Look{Budget: one.Name, Now: now.UnixMicro()})
		if err != nil {
			return Budget{}, fmt.Errorf("read what passes hold of %s: %w", one.Name, err)
		}
		one.Holds = view.Holds
	}
	if len(counting) == 0 && (len(working) == 0 || as.Rough) {
		for _, w := range working {
			w.spent = nil // their records say it, to the last heartbeat
		}
		return one, nil
	}
	at := status.At.UnixMicro()
	if as.Rough {
		large, err := one.readHours(ctx, from, status, now, counting, mostExact)
		if large || err != nil {
			return one, err
		}
	}
	read := newRows(working)
	if len(working) > 0 && !as.Rough { // whatever they were charged, also what only buckets count, or is free
		counting = append(counting, limit.Limit{Name: "under way", Counts: limit.CountCalls, Window: limit.RollingWindow(time.Duration(max(0, at-read.since)+1) * time.Microsecond)})
	}
	export := driver.Export{Budget: one.Name, Now: now.UnixMicro(), Counting: driver.Counting{Limits: counting, At: at}}
	if err := from.Export(ctx, export, read); err != nil {
		return Budget{}, fmt.Errorf("read the ledger of %s: %w", one.Name, err)
	}
	one.Rows = read.list
	return one, nil
}

// readHours reads a large ledger by the hour, as far back as limits count; large is false if it
// has no more calls than most, or if its history does not reach back far enough. Each hour's
// charges are taken to have been made at its end. What the hours do not explain of a limit's
// use is in rows that count in that limit alone: what is used beyond them, such as drift and what
// is reserved, as if it were charged now; what they have too much, such as the part of an hour
// before a reset, less in the oldest of them, though not in what a share has used.
func (b *Budget) readHours(ctx context.Context, from driver.Store, status budget.Status, now time.Time, counting []limit.Limit, most int64) (large bool, err error) {
	at, reach := status.At.UnixMicro(), int64(0)
	for _, l := range counting {
		reach = max(reach, at-l.Window.Cut(at))
	}
	since := driver.HourOf(max(0, at-reach))
	history, err := from.History(ctx, driver.HistoryQuery{Budget: b.Name, Now: now.UnixMicro(), Since: since, Hours: true, Operations: true, Jobs: true})
	if err != nil {
		return false, fmt.Errorf("read the history of %s: %w", b.Name, err)
	}
	calls := int64(0)
	for _, row := range history.Rows {
		calls += row.Calls
	}
	if history.Since > since || calls <= most {
		return false, nil
	}
	for _, row := range history.Rows {
		if !row.Pseudo() {
			b.Rows = append(b.Rows, Row{row.Operation, row.Job, row.Units, row.Calls, min(at, row.Hour+driver.HistoryHour), false, 0})
		}
	}
	trial := newLedger(b.Limits, at)
	for i := range b.Rows {
		trial.row(&b.Rows[i], b.Rows[i].Score)
	}
	for i, c := range trial.counters {
		if c.sorted(); c.limit.CanDivide() {
			seen := &status.Limits[i]
			b.Rows = append(b.Rows, c.corrected(seen.Used, seen.Drift+seen.Recovered, at)...)
		}
	}
	b.Rough = true
	return true, nil
}

// corrected are rows that make a limit's use what it is; beyond is what of it is in no hour.
func (c *counter) corrected(used, beyond, at int64) (list []Row) {
	add := func(amount, score int64) {
		row := Row{Operation: limit.DriftOperation(c.limit.Name), Units: amount, Score: score}
		if c.limit.Counts == limit.CountCalls {
			row.Units, row.Calls = 0, amount
		}
		if amount != 0 {
			list = append(list, row)
		}
	}
	used -= beyond
	add(beyond, at)
	for i := 0; used < c.used && i < len(c.queue); i++ {
		less := min(c.used-used, max(0, c.queue[i].amount))
		add(-less, c.queue[i].score)
		used += less
	}
	add(used-c.used, at)
	return list
}

// unknown reports whether nothing is known of what a job's runs need.
func (one *Job) unknown() bool {
	return slices.ContainsFunc(one.Needs.Regions, func(r jobs.RegionNeeds) bool { return r.Source == needs.Unknown })
}
