package jobs

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// watch finds out which holders of a claim or a slot are dead. The end of a hold alone
// does not prove it: the store's clock jumps when a server's clock is set or another
// server takes over; a store that was away let nobody renew; to a machine that was
// suspended all others seem dead, and its own passes. So watch takes a holder for dead
// once this process has seen its hold past its end, and not renewed, for longer than its
// patience, by its own monotonic clock, and with the store within reach all the while.
type watch struct {
	patience time.Duration // above the time between two renewals
	gap      time.Duration // the longest time between two sightings; what was seen before a longer one is void

	mu   sync.Mutex
	seen map[string]map[string]sighting // by document and holder
}

// sighting is when a hold was first and last seen past its end.
type sighting struct {
	until       int64 // µs, of the hold
	first, last time.Time
}

// forget voids what was seen of a document that could not be changed: who holds it
// could not renew that either.
func (w *watch) forget(document string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.seen, document)
}

// dead are those of a document's holders past their end, each with that, who are
// dead; wait is how long until the next of the others may be: 0 where there is none.
func (w *watch) dead(document string, past map[string]int64) (dead map[string]bool, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, now := w.seen[document], time.Now()
	delete(w.seen, document)
	if len(past) == 0 {
		return nil, 0
	}
	if w.seen == nil {
		w.seen = map[string]map[string]sighting{}
	}
	seen := map[string]sighting{}
	w.seen[document], dead = seen, map[string]bool{}
	for holder, until := range past {
		s := before[holder]
		if s.first.IsZero() || s.until != until || now.Sub(s.last) > w.gap {
			s = sighting{until: until, first: now}
		}
		s.last = now
		seen[holder] = s
		if left := w.patience - now.Sub(s.first); left <= 0 {
			dead[holder] = true
		} else if wait == 0 || left < wait {
			wait = left
		}
	}
	return dead, wait
}

// dead are those of the claims of a job that were not renewed in time whose passes are
// dead; wait is how long until others of them may be: 0 where there are none.
func (r *Runner) dead(j *Job, lapsed []claim) (dead []claim, wait time.Duration) {
	past := map[string]int64{}
	for _, c := range lapsed {
		past[c.Holder] = c.Until
	}
	found, wait := r.docs.watch.dead(j.Name, past)
	for _, c := range lapsed {
		if found[c.Holder] {
			dead = append(dead, c)
		}
	}
	return dead, wait
}

// unfencedAfter is how long a dead pass whose budget is not configured here holds its
// job up while the store of that budget's ledger is out of reach.
const unfencedAfter = time.Hour

// fence shuts out the passes of claims that are taken for dead: from then on none of
// their calls is charged to the budget that they began with, which may be another
// than the job's is here, or not be configured here at all. A pass that comes back to
// life ends by that. What is returned are the claims that may be recorded as lost,
// each with the error that kept it from being shut out, if any: only one whose budget
// this configuration has not, and that cannot be shut out by waiting. What they have
// spent is final then.
func (r *Runner) fence(ctx context.Context, j *Job, dead []claim) (map[string]reaped, error) {
	reap := map[string]reaped{}
	for _, c := range dead {
		log := r.log.With("job", j.Name, "budget", c.Budget, "tick", formatTick(time.UnixMicro(c.Tick)))
		spends := r.budget(c.Budget)
		elsewhere := spends == nil
		if elsewhere { // budgets of one store are fenced by their names alone
			spends = r.budget(j.Budget)
		}
		err := spends.FenceIn(ctx, c.Budget, j.Name, c.Fence)
		passes := errors.Is(err, budget.ErrUnavailable) && c.silent < unfencedAfter
		switch {
		case err == nil && elsewhere:
			log.Info("a pass that is taken for dead is shut out of its budget, which is not configured here")
		case err == nil:
		case elsewhere && !passes && ctx.Err() == nil:
			log.Error("a pass that is taken for dead is not shut out of its budget, which is not configured here: if it goes on, what it calls is charged there", "error", err)
		default:
			log.Warn("a pass that is taken for dead cannot be shut out of its budget yet; its job waits for that", "error", err)
			r.docs.watch.forget(j.Name)
			return reap, err
		}
		found := reaped{unfenced: err}
		if !elsewhere {
			found.spent = j.spentOf(ctx, spends, c, r.now(), log)
		}
		reap[c.Holder] = found
	}
	return reap, nil
}

// reaped is what is known of a claim that may be taken for dead.
type reaped struct {
	// unfenced is why its pass could not be shut out of the budget; nil: it is.
	unfenced error
	// spent is what the ledger says that its runs spent, by their regions; nil: it does
	// not say.
	spent map[string]budget.SpentRow
}

// spentOf is what the ledger says of a pass that is shut out: nothing more comes to it.
func (j *Job) spentOf(ctx context.Context, from *budget.Budget, c claim, now time.Time, log *slog.Logger) map[string]budget.SpentRow {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	const skew = time.Minute // by which the clock of the pass's daemon may have been off
	spent, err := from.Spent(ctx, budget.ByRun, max(0, now.Sub(time.UnixMicro(c.Since)))+skew)
	if err != nil {
		log.Warn("what a lost pass spent after its last heartbeat is not known", "error", err)
		return nil
	}
	regions, found := j.Regions, map[string]budget.SpentRow{}
	if asked := c.regions(); asked != nil {
		regions = asked
	}
	for _, region := range regions {
		label := j.runLabel(time.UnixMicro(c.Tick), region)
		for _, row := range spent.Rows {
			if row.Name == label {
				found[region] = row
			}
		}
	}
	return found
}

// addSpent ends the runs of a lost pass, as far as it is known of each: by the last
// heartbeat, and by what the ledger says was charged until the pass was shut out. Where
// the pass died before its first heartbeat its regions are in the order given.
func (j *Job) addSpent(record *Record, c *claim, order []string, spent map[string]budget.SpentRow) {
	if len(record.Runs) == 0 && spent != nil {
		if asked := c.regions(); asked != nil {
			order = asked
		}
		for _, region := range order {
			record.Runs = append(record.Runs, Run{Region: region})
		}
	}
	for i := range record.Runs {
		run := &record.Runs[i]
		row := spent[run.Region]
		begun := !run.Started.IsZero() || row.Calls > 0
		run.Units, run.Calls = max(run.Units, row.Units), max(run.Calls, int(row.Calls))
		switch {
		case run.Outcome != "":
		case begun:
			run.Outcome, run.Reason = Lost, ReasonCrashed
		default:
			run.Outcome, run.Reason = Skipped, ReasonCrashed
		}
	}
	record.conclude()
	record.Outcome, record.Reason = Lost, ReasonCrashed
}
