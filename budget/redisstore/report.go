package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// report is a driver.Report during as many script runs as it needs.
type report struct{ driver.Report }

// report takes in an upstream's report. It brings the totals up to date, like a decision
// without items.
func (s *Store) report(ctx context.Context, r driver.Report) (driver.Drift, error) {
	run := s.newBatch(ctx, driver.Batch{Budget: r.Budget, Now: r.Now, Limits: r.Limits}, time.Now())
	run.mode, run.report = reporting, &report{r}
	for {
		done, err := run.step(ctx)
		switch {
		case err != nil:
			return driver.Drift{}, err
		case done:
			return run.drifted(), nil
		case ctx.Err() != nil:
			return driver.Drift{}, fmt.Errorf("report on %s in Redis: %w: out of time", r.Budget, driver.ErrUnavailable)
		}
	}
}

// drifted converts the script's answer to a driver.Drift.
func (b *batch) drifted() driver.Drift {
	answer := driver.Drift{Now: b.decided.Now}
	for i, limit := range b.Limits {
		if limit.Name != b.report.Limit || i >= len(b.looks) {
			continue
		}
		answer.Added, answer.Total = numberAt(b.looks[i], 0), numberAt(b.looks[i], 1)
		if score := numberAt(b.looks[i], 2); score > 0 {
			answer.Until = limit.Window.Returns(score)
		}
	}
	return answer
}

// registry returns had with the limit's pseudo-operation, and the operations added.
func (r *report) registry(had registry, limits []limit.Limit) (registry, []string) {
	for _, l := range limits {
		if l.Name == r.Limit && l.Window.Kind != limit.Bucket && l.Window.Kind != limit.Concurrent {
			return had.withNames([]string{limit.DriftOperation(l.Name)})
		}
	}
	return had, nil
}

// args are the arguments for one limit; nil if the report is on another.
func (r *report) args(l limit.Limit, known registry) any {
	if l.Name != r.Limit {
		return nil
	}
	return reportArgs{r.At, r.Used, r.Seen, r.Reset, r.After, known.number(limit.DriftOperation(l.Name), ""), limit.DriftID(l.Name)}
}
