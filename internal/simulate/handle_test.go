package simulate

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
)

// store is what all daemons share.
type store interface {
	driver.Store
	driver.JobStore
}

// reach is whether the daemons reach the store.
type reach struct {
	state atomic.Int32
	// unanswered are the calls whose answers an outage kept, parted those that one
	// daemon's own way to the store kept.
	unanswered, parted atomic.Int64
}

// A store is reached, or it does what it is asked and its answers are lost, or it
// is asked nothing any more.
const (
	reached int32 = iota
	mute
	away
)

// patience is how long a daemon waits for an answer.
const patience = 250 * time.Millisecond

// muteFor is how long an outage begins with lost answers.
const muteFor = 2 * time.Second

// handle is a daemon's own way to the store, which ends with the daemon.
type handle struct {
	daemon *daemon
	store  store
	reach  *reach       // everybody's
	apart  *atomic.Bool // the daemon's alone
	dead   atomic.Bool
}

func errAway(what string) error {
	return fmt.Errorf("%s: %w: no answer in %s", what, budget.ErrUnavailable, patience)
}

// ask has the store answer, when it can be reached.
func ask[R any](ctx context.Context, h *handle, what string, do func() (R, error)) (R, error) {
	var none R
	h.daemon.still.hold()
	if ctx.Err() != nil {
		return none, fmt.Errorf("%s: %w: %w", what, budget.ErrUnavailable, ctx.Err())
	}
	state := h.reach.state.Load()
	switch {
	case h.dead.Load():
		return none, errAway(what)
	case h.apart.Load():
		h.reach.parted.Add(1)
	case state == reached:
		return do()
	case state == mute:
		h.reach.unanswered.Add(1)
		if _, err := do(); err != nil {
			return none, err
		}
	default:
		h.reach.unanswered.Add(1)
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-timer.C:
		return none, errAway(what)
	case <-ctx.Done():
		return none, fmt.Errorf("%s: %w: %w", what, budget.ErrUnavailable, ctx.Err())
	}
}

// unheard notes what decisions took whose answers are lost.
func (h *handle) unheard(b driver.Batch, made driver.Decisions) {
	m := h.daemon.machine
	for i, got := range made.Items {
		if got.Result != driver.Granted || got.Replayed || got.At == 0 {
			continue
		}
		item, at := &b.Items[i], time.UnixMicro(got.At)
		m.network.lose(keptAnswer, at, got.Units)
		if item.Labels.Job == m.month.important && len(item.Needs) == 0 {
			m.network.take(at, at.Add(time.Duration(item.Lease)*time.Microsecond), got.Units)
		}
	}
}

func (h *handle) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	ctx, late := h.daemon.still.begun(ctx, h.daemon.now)
	b.Now += late.Microseconds()
	b.Items = slices.Clone(b.Items)
	for i := range b.Items {
		if d := &b.Items[i].Deadline; !d.IsZero() {
			*d = d.Add(late)
		}
	}
	var made driver.Decisions
	done, err := ask(ctx, h, "decide", func() (_ driver.Decisions, err error) {
		made, err = h.daemon.machine.decide(h.daemon, b, func() (driver.Decisions, error) { return h.store.Decide(ctx, b) })
		return made, err
	})
	if err != nil {
		h.unheard(b, made)
	}
	return done, err
}

func (h *handle) Finish(ctx context.Context, f driver.Finishes) ([]driver.Finished, error) {
	ctx, late := h.daemon.still.begun(ctx, h.daemon.now)
	f.Now += late.Microseconds()
	return ask(ctx, h, "finish", func() ([]driver.Finished, error) { return h.store.Finish(ctx, f) })
}

func (h *handle) Look(ctx context.Context, l driver.Look) (driver.View, error) {
	ctx, late := h.daemon.still.begun(ctx, h.daemon.now)
	l.Now += late.Microseconds()
	return ask(ctx, h, "look", func() (driver.View, error) { return h.store.Look(ctx, l) })
}

func (h *handle) Spent(ctx context.Context, q driver.SpentQuery) (driver.Spent, error) {
	return ask(ctx, h, "spent", func() (driver.Spent, error) { return h.store.Spent(ctx, q) })
}

func (h *handle) History(ctx context.Context, q driver.HistoryQuery) (driver.History, error) {
	return ask(ctx, h, "history", func() (driver.History, error) { return h.store.History(ctx, q) })
}

func (h *handle) Budgets(ctx context.Context, upstream string, most int) ([]string, error) {
	return ask(ctx, h, "budgets", func() ([]string, error) { return h.store.Budgets(ctx, upstream, most) })
}

func (h *handle) Change(ctx context.Context, change driver.Change) (driver.Changed, error) {
	return ask(ctx, h, change.Doing(), func() (driver.Changed, error) { return h.store.Change(ctx, change) })
}

func (h *handle) Export(ctx context.Context, export driver.Export, to driver.LedgerWriter) error {
	return h.store.Export(ctx, export, to)
}

// Close closes a store of the daemon's own.
func (h *handle) Close() error { return h.store.Close() }
