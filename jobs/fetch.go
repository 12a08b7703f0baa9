package jobs

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/internal/checkpoint"
)

// fetchRun is one run of a fetch job.
type fetchRun struct {
	run     *run
	output  *output
	metered *budgethttp.Transport
	spent   *spending

	asOf   time.Time    // the tick that the url has: an earlier run's, which this one goes on with
	before int          // pages of that run
	kept   *checkpoints // nil: none are kept
	known  []validator  // of the last complete run
	fresh  []validator  // of the pages so far
	// guessed: the next page's token is not from a body, but from a validator.
	guessed bool
	holds   func(text string) bool // a secret
}

// longestLease is the longest that a request may take.
const longestLease = budget.MaxLease - time.Minute

// fetch fetches the region, page by page, and fills in what it charged and
// fetched. Nil means that it is complete.
func (r *run) fetch() *ending {
	r.record.Attempts = 1
	f := &fetchRun{run: r, asOf: r.tick, spent: &spending{run: r}, holds: r.secrets.finder(r.job)}
	ctx, cancel := context.WithTimeoutCause(r.hard, r.job.Timeout, errTimedOut)
	defer cancel()
	if _, err := r.secrets.of(r.job); err != nil { // before anything is charged
		return failed(ReasonSecret, err)
	}
	var err error
	f.metered, err = budgethttp.New(r.budget, budgethttp.Options{
		Base: r.options.Transport, Operation: r.job.Fetch.Operation,
		Labels: budget.Labels{Job: r.job.Name, Region: r.record.Region, Run: r.label}, Fence: r.held.claim.Fence, Log: r.lines.metered, Observer: f.spent,
		Lease: min(r.job.Timeout, longestLease), // the run's end bounds a request anyway
	})
	if err != nil {
		return failed(ReasonCharge, err)
	}
	folder, name := r.job.outputPlace(r.tick, r.record.Region)
	if err := r.job.checkOutputFolder(folder); err != nil {
		return failed(ReasonOutput, err)
	}
	if f.output, err = createOutput(folder, name); err != nil {
		return failed(ReasonOutput, err)
	}
	defer func() { _ = f.output.folder.Close() }() // nothing is written by it alone
	f.output.flushFile = r.flush
	end := f.all(ctx)
	f.settled()
	r.record.Units, r.record.Calls = f.spent.read()
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

// leave closes the file of a run that was cut, and returns the name of what is kept:
// the earlier run's, where this one has added nothing to it.
func (f *fetchRun) leave() (string, error) {
	if f.kept == nil || f.kept.stale == "" || f.run.record.Pages > 0 || f.output.size == 0 || f.output.file == nil { // of a size of 0 there is none
		return f.output.keep()
	}
	err := f.output.restart()
	_, closed := f.output.keep()
	return filepath.Join(f.output.folder.Name(), f.kept.stale+partialSuffix), errors.Join(err, closed)
}

// all fetches the pages that are left: of an earlier run that was cut, or all.
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

// complete gives the file its name, and has the next run begin anew. Where all pages
// are unchanged there is no file.
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

// number is that of the page that comes next, from 1 on.
func (f *fetchRun) number() int { return f.before + f.run.record.Pages + f.run.record.Unchanged + 1 }

// pages fetches from a page on until the last one, the cap on pages, or an ending.
func (f *fetchRun) pages(ctx context.Context, token string) *ending {
	seen := map[[sha256.Size]byte]bool{sha256.Sum256([]byte(token)): true} // the tokens so far; a body may name a long one
	for {
		if err := f.output.gone(); err != nil { // before more is charged for nothing
			return failed(ReasonOutput, err)
		}
		got, end := f.page(ctx, token)
		if end != nil {
			return end
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
			return failed(ReasonBody, fmt.Errorf("page %d names a page that was fetched before as the next one: look at next_page, from = %q", f.number()-1, f.run.job.Fetch.NextFrom))
		}
		seen[key] = true
		token = got.next
		if end := f.advance(ctx, token); end != nil || token == "" {
			return end
		}
	}
}

// publish makes known how far the run has come.
func (f *fetchRun) publish() {
	f.run.record.Units, f.run.record.Calls = f.spent.read()
	soFar := *f.run.record
	soFar.Log = f.run.lines.tail.lines()
	f.run.publish(soFar)
}

// maxThrottled is how often a page is asked for again that the upstream throttles,
// before that takes the run's retries; each time is charged.
const maxThrottled = 3

// page is one page, fetched.
type page struct {
	lines     []byte // it adds to the output
	next      string // token; empty: it is the last
	unchanged bool   // it is as it was when it was fetched last
	validator validator
}

// page fetches one page. A refusal that lasts no longer than the job's MaxWait is
// waited out, within the run's timeout, whether our own limits say it or the
// upstream does. A failure that may pass is tried again, as often as the job says.
func (f *fetchRun) page(ctx context.Context, token string) (*page, *ending) {
	var open time.Time  // until when requests under way are waited for
	recovering := false // it is logged that a recovery is waited for
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
			if end := f.run.pause(ctx, end.wait); end != nil { // in observe mode no lock would refuse the next
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
		wait, waits := f.run.job.refusalWait(f.run.budget, refused, open)
		waits = waits && end.outcome == Exhausted
		if end.outcome == Exhausted {
			logRefusal(f.run.hard, f.run.log, refused, waits, &recovering)
		}
		if !waits {
			return nil, end
		}
		if end := f.run.pause(ctx, wait); end != nil {
			return nil, end
		}
	}
}

// leastRefusalWait is the shortest wait for a request under way to end, by whose lease a
// refusal goes.
const leastRefusalWait = 100 * time.Millisecond

// refusalWait is how long to wait before what was refused is asked for again, and
// whether that is worth while: RetryAfter, at most the job's MaxWait; or less, at
// most until latest, where requests under way may end before their leases.
func (j *Job) refusalWait(from *budget.Budget, refused *budget.RefusedError, latest time.Time) (time.Duration, bool) {
	if errors.Is(refused, budget.ErrRecovering) { // for a minute at most, whatever MaxWait is: nothing is spent
		return max(from.Soonest(refused), leastRefusalWait), true
	}
	if refused.RetryAfter <= j.MaxWait {
		return refused.RetryAfter, refused.RetryAfter > 0
	}
	soonest := max(from.Soonest(refused), leastRefusalWait)
	return soonest, soonest < refused.RetryAfter && !time.Now().Add(soonest).After(latest)
}

// spending sums what the requests of a run were charged, and cost.
type spending struct {
	run *run

	mu    sync.Mutex // guards all below
	units int64
	calls int
}

// settled waits until it is known what the run's requests cost whose responses were not
// read to their end.
func (f *fetchRun) settled() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.run.hard), 2*claimTimeout)
	defer cancel()
	if err := f.run.budget.Flush(ctx); err != nil {
		f.run.log.Warn("what the run spent is told as it was charged", "error", err)
	}
}

func (s *spending) read() (units int64, calls int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.units, s.calls
}

// Charged implements budgethttp.Observer.
func (s *spending) Charged(r budget.Receipt) {
	s.mu.Lock()
	s.units += r.Units
	s.calls++
	s.mu.Unlock()
	s.run.log.Debug("charged", "operation", r.Operation, "units", r.Units, "limit", r.Limit, "remaining", r.Remaining)
}

// Settled implements budgethttp.Observer.
func (s *spending) Settled(r budget.Receipt, units int64) {
	s.mu.Lock()
	s.units += units - r.Units
	s.mu.Unlock()
	if units != r.Units {
		s.run.log.Debug("settled", "operation", r.Operation, "units", units, "charged", r.Units)
	}
}

// Told implements budgethttp.Observer: the transport logs it.
func (s *spending) Told(budgethttp.Verdict) {}

// Drifted implements budgethttp.Observer.
func (s *spending) Drifted(d budget.Drift) {
	s.run.log.Warn("the upstream counts more than was charged", "limit", d.Limit, "drift", d.Added, "until", d.Until)
}

// Unread implements budgethttp.Observer: the transport logs it.
func (s *spending) Unread(u budgethttp.Unread) { s.run.options.Observe.ResponseUnread(s.run.job, u) }
