package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// watch decides which holders of a claim or a slot are dead. An expired hold alone does
// not prove it. The store's clock jumps when a server's clock is set or another server
// takes over. While the store was out of reach, nobody could renew. To a machine that was
// suspended, all others seem dead, and so do its own passes. So watch takes a holder for
// dead only when this process has seen the hold expired and not renewed for longer than
// its patience, by its own monotonic clock, with the store in reach all the while.
type watch struct {
	patience time.Duration // more than the time between two renewals
	gap      time.Duration // the longest time between two sightings; a longer one voids what was seen before

	mu   sync.Mutex
	seen map[string]map[string]sighting // by document and holder
}

// sighting is when a hold was first and last seen expired.
type sighting struct {
	until       int64 // µs, of the hold
	first, last time.Time
}

// forget voids what was seen of a document that could not be changed: its holders could
// not renew either.
func (w *watch) forget(document string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.seen, document)
}

// dead returns which of a document's expired holders are dead; past has the end of each
// hold. wait is how long until the next of the others may be dead; 0 if there are no
// others.
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

// dead returns the lapsed claims of a job whose passes are dead. wait is how long until
// others of them may be; 0 if there are no others.
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

// unfencedAfter is how long a dead pass whose budget is not configured here blocks its
// job while the store of that budget's ledger is out of reach.
const unfencedAfter = time.Hour

// fence shuts out passes that are declared dead. From then on none of their calls is
// charged to the budget that they began with; that may differ from the job's budget here,
// or not be configured here at all. If such a pass still runs, it ends. fence returns the
// claims that may be recorded as lost, and what each has spent, which is final. A claim
// whose pass could not be shut out carries the error; that happens only if this
// configuration lacks its budget and waiting does not help.
func (r *Runner) fence(ctx context.Context, j *Job, dead []claim) (map[string]reaped, error) {
	reap := map[string]reaped{}
	for _, c := range dead {
		log := r.log.With("job", j.Name, "budget", c.Budget, "tick", formatTick(time.UnixMicro(c.Tick)))
		spends := r.budget(c.Budget)
		elsewhere := spends == nil
		if elsewhere { // to fence a budget of the same store, its name is enough
			spends = r.budget(j.Budget)
		}
		err := spends.FenceIn(ctx, c.Budget, j.Name, c.Fence)
		passes := errors.Is(err, budget.ErrUnavailable) && c.silent < unfencedAfter
		switch {
		case err == nil && elsewhere:
			log.Info("a pass that counts as dead was fenced off from its budget, which is not configured here")
		case err == nil:
		case elsewhere && !passes && ctx.Err() == nil:
			log.Error("a pass that counts as dead could not be fenced off from its budget, which is not configured here: if it still runs, its calls are charged", "error", err)
		default:
			log.Warn("a pass that counts as dead cannot be fenced off from its budget yet; its job waits for that", "error", err)
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

// reaped is what is known of a claim that may be recorded as lost.
type reaped struct {
	// unfenced is why its pass could not be fenced off from the budget; nil: it was.
	unfenced error
	// spent is what its runs spent according to the ledger, by region; nil: the ledger
	// could not be read.
	spent map[string]budget.SpentRow
}

// spentOf returns what a pass spent according to the ledger; the pass is shut out, so
// nothing is added.
func (j *Job) spentOf(ctx context.Context, from *budget.Budget, c claim, now time.Time, log *slog.Logger) map[string]budget.SpentRow {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	const skew = time.Minute // the clock of the pass's daemon may have been this far off
	spent, err := from.Spent(ctx, budget.ByRun, max(0, now.Sub(time.UnixMicro(c.Since)))+skew)
	if err != nil {
		log.Warn("the units that a lost pass spent after its last heartbeat are not known", "error", err)
		return nil
	}
	regions, found := j.Regions, map[string]budget.SpentRow{}
	if asked := c.regions(); asked != nil {
		regions = asked
	}
	for _, region := range regions {
		label := j.partLabel(time.UnixMicro(c.Tick), c.Part, region)
		for _, row := range spent.Rows {
			if row.Name == label {
				found[region] = row
			}
		}
	}
	return found
}

// addSpent completes the runs of a lost pass, from its last heartbeat and from what the
// ledger says was charged until the pass was shut out. If the pass died before its first
// heartbeat, its regions are in the order given.
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
		if c.Outside && run.Started.IsZero() { // what meter claims, it starts
			run.Started = InstantOf(c.Since)
		}
		begun := !run.Started.IsZero() || row.Calls > 0
		if row.Units > run.Units || int(row.Calls) > run.Calls {
			run.Spent = nil // it is older than the ledger's sums
		}
		run.Units, run.Calls = max(run.Units, row.Units), max(run.Calls, int(row.Calls))
		if run.Outcome != "" {
			continue
		}
		switch run.Unknown = begun && spent == nil; {
		case run.Unknown:
			run.Warning = fmt.Sprintf("the units that it spent after its daemon's last heartbeat are not known: quotactl ledger %s --by run shows them", c.Budget)
		case begun && j.Fetch == nil && !j.Meter && run.Calls == 0:
			run.Unknown, run.Warning = true, namesNoRun
		}
		if run.Outcome, run.Reason = Lost, ReasonCrashed; !begun {
			run.Outcome = Skipped
		}
	}
	record.conclude()
	record.Outcome, record.Reason = Lost, ReasonCrashed
}
