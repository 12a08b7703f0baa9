package open

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
)

// later is a store that was out of reach when it should have been opened. Every call
// tries again.
type later struct {
	open func(context.Context) (Backend, error)
	turn chan struct{} // full while a caller uses the fields below

	failed error     // the error of the first attempt to open it; nil: a call has returned it
	until  time.Time // until when a call may return failed
	store  Backend
	closed bool
}

// StoreOrLater opens a store. If it is out of reach, the first call that reaches it opens
// it. A call right after a failed opening gets that error, so it does not wait as long
// again.
func StoreOrLater(ctx context.Context, url string, settings config.Store) (Backend, error) {
	open := func(ctx context.Context) (Backend, error) { return Store(ctx, url, settings) }
	store, err := open(ctx)
	if errors.Is(err, budget.ErrUnavailable) {
		return &later{open: open, turn: make(chan struct{}, 1), failed: err, until: time.Now().Add(Timeout(url, settings))}, nil
	}
	return store, err
}

// get opens the store unless it is open. A caller waits for others only as long as its
// context allows.
func (l *later) get(ctx context.Context) (Backend, error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: it is being opened: %w", budget.ErrUnavailable, ctx.Err())
	}
	if l.closed {
		return nil, budget.ErrClosed
	}
	if failed := l.failed; failed != nil {
		l.failed = nil
		if time.Now().Before(l.until) {
			return nil, failed
		}
	}
	if l.store == nil {
		store, err := l.open(ctx)
		if err != nil {
			return nil, err
		}
		l.store = store
	}
	return l.store, nil
}

// with does something on the store, once it is open.
func with[T any](ctx context.Context, l *later, do func(Backend) (T, error)) (T, error) {
	store, err := l.get(ctx)
	if err != nil {
		var none T
		return none, err
	}
	return do(store)
}

func (l *later) Decide(ctx context.Context, batch driver.Batch) (driver.Decisions, error) {
	store, err := l.get(ctx)
	if err != nil { // the store was not asked
		return driver.Decisions{}, fmt.Errorf("%w; %w", err, budget.ErrNotCharged)
	}
	return store.Decide(ctx, batch)
}

func (l *later) Finish(ctx context.Context, f driver.Finishes) ([]driver.Finished, error) {
	return with(ctx, l, func(b Backend) ([]driver.Finished, error) { return b.Finish(ctx, f) })
}

func (l *later) Look(ctx context.Context, look driver.Look) (driver.View, error) {
	return with(ctx, l, func(b Backend) (driver.View, error) { return b.Look(ctx, look) })
}

func (l *later) Spent(ctx context.Context, query driver.SpentQuery) (driver.Spent, error) {
	return with(ctx, l, func(b Backend) (driver.Spent, error) { return b.Spent(ctx, query) })
}

func (l *later) History(ctx context.Context, query driver.HistoryQuery) (driver.History, error) {
	return with(ctx, l, func(b Backend) (driver.History, error) { return b.History(ctx, query) })
}

func (l *later) Budgets(ctx context.Context, upstream string, most int) ([]string, error) {
	return with(ctx, l, func(b Backend) ([]string, error) { return b.Budgets(ctx, upstream, most) })
}

func (l *later) Change(ctx context.Context, change driver.Change) (driver.Changed, error) {
	return with(ctx, l, func(b Backend) (driver.Changed, error) { return b.Change(ctx, change) })
}

func (l *later) Job(ctx context.Context, job string) (driver.JobDocument, error) {
	return with(ctx, l, func(b Backend) (driver.JobDocument, error) { return b.Job(ctx, job) })
}

func (l *later) Jobs(ctx context.Context, names []string) ([]driver.JobDocument, error) {
	return with(ctx, l, func(b Backend) ([]driver.JobDocument, error) { return b.Jobs(ctx, names) })
}

func (l *later) SwapJob(ctx context.Context, swap driver.JobSwap) (bool, error) {
	return with(ctx, l, func(b Backend) (bool, error) { return b.SwapJob(ctx, swap) })
}

func (l *later) JobValue(ctx context.Context, job, key string) ([]byte, error) {
	return with(ctx, l, func(b Backend) ([]byte, error) { return b.JobValue(ctx, job, key) })
}

func (l *later) JobHistory(ctx context.Context, query driver.JobHistoryQuery) ([]driver.JobRecord, error) {
	return with(ctx, l, func(b Backend) ([]driver.JobRecord, error) { return b.JobHistory(ctx, query) })
}

// Export implements driver.Store.
func (l *later) Export(ctx context.Context, export driver.Export, to driver.LedgerWriter) error {
	store, err := l.get(ctx)
	if err != nil {
		return err
	}
	return store.Export(ctx, export, to)
}

// Close closes the store if it is open.
func (l *later) Close() error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	l.closed = true
	if l.store == nil {
		return nil
	}
	return l.store.Close()
}

// Diagnose returns the store's findings, or why it cannot be opened.
func (l *later) Diagnose(ctx context.Context) []driver.Finding {
	store, err := l.get(ctx)
	if err != nil {
		return []driver.Finding{{Check: "connection", Level: driver.Fault, Says: err.Error()}}
	}
	return Diagnose(ctx, store)
}
