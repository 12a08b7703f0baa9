package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/open"
)

// meteredStore counts the answers of a store. It also logs locks, drift, and the charges
// that only observe mode let through.
type meteredStore struct {
	open.Backend
	metrics *metrics
	log     *slog.Logger
}

// Decide implements driver.Store.
func (s meteredStore) Decide(ctx context.Context, batch driver.Batch) (driver.Decisions, error) {
	began := time.Now()
	decisions, err := s.Backend.Decide(ctx, batch)
	s.metrics.decided(batch, decisions, err)
	if err == nil && len(batch.Items) > 0 && !slices.ContainsFunc(decisions.Items, asked) {
		return decisions, nil // it says nothing of the store
	}
	s.timed("decide", began)
	s.answered(ctx, err)
	for i, d := range decisions.Items {
		if item := batch.Items[i]; err == nil && d.Observed != "" && !item.DryRun {
			s.log.Warn("would have been refused without observe mode", "budget", batch.Budget, "operation", item.Operation, "units", item.Units,
				"limit", d.Observed, "job", item.Labels.Job, "region", item.Labels.Region, "run", item.Labels.Run)
		}
	}
	return decisions, err
}

// Patience is that of the host's store.
func (s meteredStore) Patience() time.Duration {
	if host, ok := s.Backend.(interface{ Patience() time.Duration }); ok {
		return host.Patience()
	}
	return 0
}

// asked reports whether the store was asked for a decision.
func asked(d driver.Decision) bool { return !d.Remembered }

// Change implements driver.Store. It counts locks and reports. The other changes are made
// by people, or by a host that records a loss.
func (s meteredStore) Change(ctx context.Context, change driver.Change) (driver.Changed, error) {
	began, call := time.Now(), "lock"
	changed, err := s.Backend.Change(ctx, change)
	switch c := change.(type) {
	case driver.Lock:
		if locked, _ := changed.(driver.Locked); err == nil && locked.Until > 0 && !locked.Stood {
			s.log.Warn("locked", "budget", c.Budget, "limit", c.Limit, "until", time.UnixMicro(locked.Until).UTC(), "why", locked.Why)
		}
	case driver.Report:
		call = "report"
		if drift, _ := changed.(driver.Drift); err == nil && drift.Added > 0 {
			s.metrics.drifted(c, drift)
			s.log.Warn("the upstream reports more use than was charged", "budget", c.Budget, "limit", c.Limit, "drift", drift.Added)
		}
	default:
		return changed, err
	}
	s.timed(call, began)
	s.answered(ctx, err)
	return changed, err
}

// Finish implements driver.Store.
func (s meteredStore) Finish(ctx context.Context, f driver.Finishes) ([]driver.Finished, error) {
	defer s.timed("finish", time.Now())
	finished, err := s.Backend.Finish(ctx, f)
	s.answered(ctx, err)
	return finished, err
}

// Look implements driver.Store.
func (s meteredStore) Look(ctx context.Context, look driver.Look) (driver.View, error) {
	defer s.timed("look", time.Now())
	view, err := s.Backend.Look(ctx, look)
	s.answered(ctx, err)
	return view, err
}

func (s meteredStore) timed(call string, began time.Time) {
	s.metrics.store.WithLabelValues(call).Observe(time.Since(began).Seconds())
}

// errOutOfReach is the error of a call that this host decided without the store.
var errOutOfReach = fmt.Errorf("%w: this host's allowance decided what it could", budget.ErrUnavailable)

// Aside is that of the store.
func (s meteredStore) Aside() string { return open.Aside(s.Backend) }

// outOfReach reports whether this host treats the store as out of reach and decides
// without it.
func (s meteredStore) outOfReach() bool {
	host, ok := s.Backend.(interface{ OutOfReach() (time.Time, bool) })
	if !ok {
		return false
	}
	_, out := host.OutOfReach()
	return out
}

// answered notes whether the store is within reach. A call that its caller cancelled says
// nothing about the store.
func (s meteredStore) answered(ctx context.Context, err error) {
	if err == nil && s.outOfReach() {
		err = errOutOfReach
	}
	switch {
	case errors.Is(err, budget.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		s.metrics.breaker.Set(1)
		s.metrics.pulse.heard(err)
	case ctx.Err() == nil || err == nil:
		s.metrics.breaker.Set(0)
		s.metrics.pulse.heard(nil)
	}
}
