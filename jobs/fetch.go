package jobs

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/internal/checkpoint"
	"github.com/quotactl/quotactl/jobs/needs"
)

// fetchRun is one run of a fetch job.
type fetchRun struct {
	run     *run
	output  *output
	metered *budgethttp.Transport
	spent   *spending

	asOf   time.Time    // the tick in the url: that of the run that this one resumes
	before int          // pages of earlier runs
	kept   *checkpoints // nil: the job keeps none
	known  []validator  // of the last complete run
	fresh  []validator  // of the pages so far
	// guessed: the next page's token is from a validator, not from a body.
	guessed bool
	holds   func(text string) bool // reports whether a text contains a secret
}

// longestLease is the longest that a request may take.
const longestLease = budget.MaxLease - time.Minute

// fetch fetches the region page by page and fills in what it charged and fetched. Nil
// means that the region is complete.
func (r *run) fetch() *ending {
	r.record.Attempts = 1
	f := &fetchRun{run: r, asOf: r.tick, spent: &spending{run: r, line: r.budget.Line()}, holds: r.secrets.finder(r.job)}
	ctx, cancel := context.WithTimeoutCause(r.hard, r.job.Timeout, errTimedOut)
	defer cancel()
	if _, err := r.secrets.of(r.job); err != nil { // checked before anything is charged
		return failed(ReasonSecret, err)
	}
	var err error
	f.metered, err = budgethttp.New(r.budget, budgethttp.Options{
		Base: r.options.Transport, Operation: r.job.Fetch.Operation,
		Labels: budget.Labels{Job: r.job.Name, Region: r.record.Region, Run: r.label}, Fence: r.held.claim.Fence, Log: r.lines.metered, Observer: f.spent,
		Lease: min(r.job.Timeout, longestLease), // a request ends with the run anyway
	})
	if err != nil {
		return failed(ReasonCharge, err)
	}
	folder, name := r.job.outputPlace(r.tick, r.record.Region)
	if err := r.job.checkOutputFolder(folder); err != nil {
		return failed(ReasonOutput, err)
	}
	if f.output, err = createOutput(folder, name, r.held.claim.Part); err != nil {
		return failed(ReasonOutput, err)
	}
	defer func() { _ = f.output.folder.Close() }() // closing a folder writes nothing
	f.output.flushFile = r.flush
	end := f.all(ctx)
	f.settled()
	r.record.spend(f.spent.read())
	if end == nil {
		end = f.complete(ctx)
	}
	if end == nil || r.record.Output != "" || end.outcome == Succeeded {
		return end
	}
	if r.record.Output, err = f.leave(); err != nil && end.err == nil {
		end = failed(ReasonOutput, err)
	}
	return end
}

// leave closes the file of an interrupted run and returns the name of the file that
// stays: the earlier run's, if this run has added nothing to it.
func (f *fetchRun) leave() (string, error) {
	if f.kept == nil || f.kept.stale == "" || f.run.record.Pages > 0 || f.output.size == 0 || f.output.file == nil { // a size of 0 means that no file was taken over
		return f.output.keep()
	}
	err := f.output.restart()
	_, closed := f.output.keep()
	return filepath.Join(f.output.folder.Name(), f.kept.stale+partialSuffix), errors.Join(err, closed)
}

// all fetches the pages that are left, after those of an interrupted run.
func (f *fetchRun) all(ctx context.Context) *ending {
	token, done, end := f.resume(ctx)
	if end != nil || done {
		return end
	}
	f.readValidators(ctx)
	end = f.pages(ctx, token)
	if f.refuses(end) {
		if end = f.startAnew(ctx, end); end == nil {
			end = f.pages(ctx, "")
		}
	}
	if end != nil {
		if lost := f.catchUp(ctx, finalWriteTimeout); lost != nil {
			end = lost
		}
	}
	return end
}

// complete gives the file its final name and removes the checkpoint, so that the next run
// starts over. If all pages are unchanged, it writes no file.
func (f *fetchRun) complete(ctx context.Context) *ending {
	var end *ending
	if f.output.size == 0 && f.run.record.Pages == 0 && f.run.record.Unchanged > 0 {
		if _, err := f.output.keep(); err != nil {
			return failed(ReasonOutput, err)
		}
		end = &ending{outcome: Succeeded, reason: ReasonUnchanged}
	} else if err := f.output.finish(); err != nil {
		return failed(ReasonOutput, err)
	} else {
		f.run.record.Output = f.output.final
	}
	values := map[string][]byte{}
	if f.kept != nil {
		values[checkpoint.Key(f.run.record.Region)] = nil
	}
	if f.run.job.Fetch.Conditional {
		values[validatorsKey(f.run.record.Region)] = f.toKeep()
	}
	if len(values) == 0 {
		return end
	}
	kept, lost := f.put(ctx, finalWriteTimeout, values)
	if lost != nil {
		return lost
	}
	if kept {
		f.discardStale()
	}
	return end
}

// number is the number of the next page, from 1 on.
func (f *fetchRun) number() int { return f.before + f.run.record.Pages + f.run.record.Unchanged + 1 }

// pages fetches from a page on until the last page, the cap on pages, or an ending.
func (f *fetchRun) pages(ctx context.Context, token string) *ending {
	seen := map[[sha256.Size]byte]bool{sha256.Sum256([]byte(token)): true} // hashes of the tokens so far; a token may be long
	for {
		if err := f.output.gone(); err != nil { // checked before more is charged for nothing
			return failed(ReasonOutput, err)
		}
		got, end := f.page(ctx, token)
		if end != nil {
			return end
		}
		if got.bare && f.number() == 1 && f.run.job.Fetch.MaxPages != 1 {
			f.run.record.Warning = fmt.Sprintf("page 1 has no %q, so it was taken for the only page: if the upstream has more, check next_page", f.run.job.Fetch.NextFrom)
			f.run.log.Warn("the first page does not say whether there is another: it was taken for the only page", "field", f.run.job.Fetch.NextFrom)
		}
		if got.unchanged {
			f.run.record.Unchanged++
		} else if err := f.output.write(got.lines); err != nil {
			return failed(ReasonOutput, err)
		} else {
			f.run.record.Pages++
		}
		f.guessed = got.unchanged
		f.remember(got.validator)
		f.publish()
		key := sha256.Sum256([]byte(got.next))
		if last := f.run.job.Fetch.MaxPages; last > 0 && f.number() > last {
			got.next = ""
		}
		if got.next != "" && seen[key] {
			return failed(ReasonBody, fmt.Errorf("page %d names as the next page one that was already fetched: check next_page, from = %q", f.number()-1, f.run.job.Fetch.NextFrom))
		}
		seen[key] = true
		token = got.next
		if end := f.advance(ctx, token); end != nil || token == "" {
			return end
		}
	}
}

// publish makes the run's progress known.
func (f *fetchRun) publish() {
	f.run.record.spend(f.spent.read())
	soFar := *f.run.record
	soFar.Log = f.run.lines.tail.lines()
	f.run.publish(soFar)
}

// maxThrottled is how often a throttled page is asked for again before that counts as the
// run's retries. Each attempt is charged.
const maxThrottled = 3

// page is a fetched page.
type page struct {
	lines     []byte // for the output
	next      string // the next page's token; empty: this is the last page
	bare      bool   // the body has no field that would name the next page
	unchanged bool   // since it was last fetched
	validator validator
}

// page fetches one page. If our own limits or the upstream refuse it for no longer than
// the job's MaxWait, it waits, within the run's timeout. A failure that may pass is tried
// again, as often as the job says.
func (f *fetchRun) page(ctx context.Context, token string) (*page, *ending) {
	var open time.Time  // how long to wait for requests under way
	recovering := false // the wait for a recovery was logged
	defer f.spent.line.Leave(false)
	for throttled := 0; ; {
		if f.run.soft.Err() != nil {
			return nil, cut(f.run.soft)
		}
		got, end := f.get(ctx, token)
		var refused *budget.RefusedError
		switch {
		case end == nil:
			return got, nil
		case end.again && throttled < maxThrottled:
			throttled++
			if end := f.run.pause(ctx, end.wait); end != nil { // wait here: in observe mode no lock refuses the next attempt
				return nil, end
			}
			continue
		case end.retry:
			if end := f.run.again(ctx, end); end != nil {
				return nil, end
			}
			continue
		case !errors.As(end.err, &refused):
			return nil, end
		}
		if open.IsZero() {
			open = time.Now().Add(f.run.job.MaxWait)
		}
		wait, waits := refusalWait(f.run.budget, refused, f.run.job.MaxWait, open)
		waits = waits && end.outcome == Exhausted
		if end.outcome == Exhausted {
			logRefusal(f.run.hard, f.run.log, refused, waits, &recovering)
		}
		if !waits {
			return nil, end
		}
		if end := f.run.waitInLine(ctx, f.spent.line, refused, wait); end != nil {
			return nil, end
		}
	}
}

// waitInLine waits until a refused call is to be made again, in the order of those that wait:
// behind others for as long as the job's MaxWait, unless the call alone would wait longer.
func (r *run) waitInLine(ctx context.Context, line *budget.Line, refused *budget.RefusedError, wait time.Duration) *ending {
	until := time.Now().Add(wait)
	ctx, cancel := either(ctx, r.soft)
	defer cancel()
	patient, stop := context.WithTimeout(ctx, max(wait, r.job.MaxWait)+leastRefusalWait)
	defer stop()
	if line.Wait(patient, refused, wait) == nil {
		return nil
	}
	return waitFor(ctx, time.Until(until))
}

// leastRefusalWait is the shortest wait for a request under way that holds the units
// until its lease ends.
const leastRefusalWait = 100 * time.Millisecond

// refusalWait is how long to wait before a refused call is tried again, and whether the
// wait is worth it. The wait is RetryAfter, if that is at most the longest; or a
// shorter one, until latest at most, while requests under way may end before their
// leases.
func refusalWait(from *budget.Budget, refused *budget.RefusedError, longest time.Duration, latest time.Time) (time.Duration, bool) {
	if errors.Is(refused, budget.ErrRecovering) { // however long: it lasts a minute at most, and nothing is spent
		return max(from.Soonest(refused), leastRefusalWait), true
	}
	if refused.RetryAfter <= longest {
		return refused.RetryAfter, refused.RetryAfter > 0
	}
	soonest := max(from.Soonest(refused), leastRefusalWait)
	return soonest, soonest < refused.RetryAfter && !time.Now().Add(soonest).After(latest)
}

// spending sums the units and calls of a run's requests, by operation.
type spending struct {
	run  *run
	line *budget.Line // of a page that was refused, until it is charged

	mu   sync.Mutex // guards took
	took []needs.Amount
}

// settled waits until the cost is known of requests whose responses were not read to
// their end.
func (f *fetchRun) settled() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.run.hard), 2*claimTimeout)
	defer cancel()
	if err := f.run.budget.Flush(ctx); err != nil {
		f.run.log.Warn("some of the run's costs are not known; they count as charged", "error", err)
	}
}

func (s *spending) read() []needs.Amount {
	s.mu.Lock()
	defer s.mu.Unlock()
	return needs.Together(s.took)
}

// add adds what a request took to its operation.
func (s *spending) add(operation string, units, calls int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.took, func(a needs.Amount) bool { return a.Operation == operation })
	if at < 0 {
		at = len(s.took)
		s.took = append(s.took, needs.Amount{Operation: operation})
	}
	s.took[at].Units += units
	s.took[at].Calls += calls
}

// Charged implements budgethttp.Observer.
func (s *spending) Charged(r budget.Receipt) {
	s.line.Leave(true)
	s.add(r.Operation, r.Units, 1)
	s.run.log.Debug("charged", "operation", r.Operation, "units", r.Units, "limit", r.Limit, "remaining", r.Remaining)
	s.run.held.claim.spends()
}

// Answered implements budgethttp.Observer.
func (s *spending) Answered(r budget.Receipt, took time.Duration) {
	s.run.options.Observe.UpstreamAnswered(s.run.job, r.Operation, took)
}

// Settled implements budgethttp.Observer.
func (s *spending) Settled(r budget.Receipt, units int64) {
	s.add(r.Operation, units-r.Units, 0)
	if units != r.Units {
		s.run.log.Debug("settled", "operation", r.Operation, "units", units, "charged", r.Units)
	}
}

// Told implements budgethttp.Observer: the transport logs it.
func (s *spending) Refused(budgethttp.Verdict) {}

// Drifted implements budgethttp.Observer.
func (s *spending) Drifted(d budget.Drift) {
	s.run.log.Warn("the upstream reports more use than was charged", "limit", d.Limit, "drift", d.Added, "until", d.Until)
}

// Unread implements budgethttp.Observer: the transport logs it.
func (s *spending) Unread(u budgethttp.Unread) { s.run.options.Observe.ResponseUnread(s.run.job, u) }
