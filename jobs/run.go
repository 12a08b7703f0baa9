package jobs

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"

	"github.com/quotactl/quotactl/budget"
)

// fetching is one run under way.
type fetching struct {
	*pass
	run    *Run
	label  string
	log    *slog.Logger
	output *output
}

// run fetches one region, page by page, and fills in what it charged and
// fetched. Nil means that it is complete.
func (p *pass) run(run *Run) *ending {
	label := p.job.runLabel(p.tick, run.Region)
	f := &fetching{pass: p, run: run, label: label, log: p.log.With("region", run.Region, "run", label)}
	ctx, cancel := context.WithTimeoutCause(p.hard, p.job.Timeout, errTimedOut)
	defer cancel()
	if _, err := p.secret(p.job); err != nil { // before anything is charged
		return failed(ReasonSecret, err)
	}
	var err error
	if f.output, err = createOutput(p.job.outputPlace(p.tick, run.Region)); err != nil {
		return failed(ReasonOutput, err)
	}
	defer func() { _ = f.output.folder.Close() }() // nothing is written by it alone
	end := f.pages(ctx)
	if end == nil {
		if err = f.output.finish(); err == nil {
			run.Output = f.output.final
			return nil
		}
		end = failed(ReasonOutput, err)
	}
	if run.Output, err = f.output.keep(); err != nil && end.err == nil {
		end = failed(ReasonOutput, err)
	}
	return end
}

// pages fetches until the last page, the cap on pages, or an ending.
func (f *fetching) pages(ctx context.Context) *ending {
	token := ""
	seen := map[[sha256.Size]byte]bool{} // the tokens so far; a body may name a long one
	for {
		if f.soft.Err() != nil {
			return cut(f.soft)
		}
		if end := f.charge(ctx); end != nil {
			return end
		}
		body, end := f.get(ctx, token)
		if end != nil {
			return end
		}
		lines, err := f.job.Fetch.lines(body)
		if err != nil {
			return failed(ReasonBody, fmt.Errorf("page %d: %w", f.run.Pages+1, err))
		}
		next, err := f.job.Fetch.nextToken(body)
		if err != nil {
			return failed(ReasonBody, fmt.Errorf("page %d: %w", f.run.Pages+1, err))
		}
		if err := f.output.write(lines); err != nil {
			return failed(ReasonOutput, err)
		}
		f.run.Pages++
		if next == "" || f.run.Pages == f.job.Fetch.MaxPages {
			return nil
		}
		key := sha256.Sum256([]byte(next))
		if seen[key] {
			return failed(ReasonBody, fmt.Errorf("page %d names a page that was fetched before as the next one: look at next_page, from = %q", f.run.Pages, f.job.Fetch.NextFrom))
		}
		seen[key] = true
		token = next
	}
}

// charge takes one page's units. A refusal that lasts no longer than the job's
// MaxWait is waited out, within the run's timeout.
func (f *fetching) charge(ctx context.Context) *ending {
	call := budget.Call{
		Operation: f.job.Fetch.Operation,
		Floor:     f.job.Floor,
		Labels:    budget.Labels{Job: f.job.Name, Region: f.run.Region, Run: f.label},
	}
	for {
		receipt, err := f.budget.Charge(ctx, call)
		if err == nil {
			f.run.Units += receipt.Units
			f.run.Calls++
			f.log.Debug("charged", "operation", call.Operation, "units", receipt.Units, "limit", receipt.Limit, "remaining", receipt.Remaining)
			return nil
		}
		end := refusal(ctx, err)
		var refused *budget.RefusedError
		if !errors.As(err, &refused) {
			return end
		}
		waits := end.outcome == Exhausted && refused.RetryAfter > 0 && refused.RetryAfter <= f.job.MaxWait
		if end.outcome == Exhausted {
			f.logRefusal(f.log, refused, waits)
		}
		if !waits {
			return end
		}
		if end := f.wait(ctx, refused); end != nil {
			return end
		}
	}
}

// wait lets the wait for units pass; it ends early with the run, or with a
// drain, since it stands at a page's boundary.
func (f *fetching) wait(ctx context.Context, refused *budget.RefusedError) *ending {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(f.soft, func() { cancel(context.Cause(f.soft)) })()
	return sleep(ctx, refused.RetryAfter)
}
