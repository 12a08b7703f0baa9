package budget

import (
	"context"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// silentWait is how long a settlement for which nobody waits waits for a decision to go with.
const silentWait = 5 * time.Millisecond

// mostSilent is how many batches of such settlements may be on their way at once.
const mostSilent = 8

// silents are settlements for which nobody waits. They go with the next decision of this process,
// before it, so that a call that is charged and costs what it was charged takes one step of the
// store, not two.
type silents struct {
	mu     sync.Mutex   // guards both, and the batch
	batch  *silentBatch // that others may join; nil: none waits
	flying int          // how many batches are on their way
}

// silentBatch is at least one settlement, and at most MaxBatch.
type silentBatch struct {
	items  []driver.Finish
	ended  []time.Time   // when each call ended
	failed []func(error) // what to call where one is not recorded
	task   *later        // for which Flush and Close wait
	timer  *time.Timer   // sends it
}

// SettleSoon settles at the reserved units without waiting: the settlement goes with the next
// decision of this process on the budget, or by itself in a few milliseconds, and counts from now.
// Flush and Close wait for it. If it is not recorded, the reservation counts like a charge made when
// its lease ends, as after a crash, and failed is called with the reason.
//
// False: nothing was done, and the caller is to Settle, because a limit on open reservations counts
// the reservation, or too many settlements are on their way.
func (r *Reservation) SettleSoon(failed func(error)) bool {
	return r.Source == SourceNone || r.budget.settleSoon(r.Receipt, failed)
}

// SettleAfter settles at the reserved units once a span has passed, in the background: as for
// SettleSoon, Flush and Close wait for it, and failed is called if it is not recorded. False: too
// much is to be done in the background already, and the reservation stays open.
func (r *Reservation) SettleAfter(span time.Duration, failed func(error)) bool {
	if r.Source == SourceNone {
		return true
	}
	task, ok := r.budget.laters.enter(span)
	if !ok {
		return false
	}
	time.AfterFunc(span, func() {
		defer r.budget.laters.leave(task)
		if err := r.Settle(task.ctx, r.Units); err != nil {
			failed(err)
		}
	})
	return true
}

func (b *Budget) settleSoon(of Receipt, failed func(error)) bool {
	for i := range b.spec.Limits {
		if l := &b.spec.Limits[i]; l.Window.Kind == limit.Concurrent && l.Covers(of.Operation) {
			return false
		}
	}
	s := b.silents
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.batch == nil {
		task, ok := b.laters.enter(0)
		if !ok || s.flying >= mostSilent {
			b.laters.leave(task)
			return false
		}
		batch := &silentBatch{task: task}
		batch.timer = time.AfterFunc(silentWait, func() { b.sendSilent(b.takeSilent(batch)) })
		s.batch = batch
	}
	batch := s.batch
	batch.items = append(batch.items, driver.Finish{ID: of.ID, Units: of.Units})
	batch.ended, batch.failed = append(batch.ended, time.Now()), append(batch.failed, failed)
	batch.task.count.Add(1)
	if len(batch.items) == driver.MaxBatch {
		batch.timer.Reset(0)
	}
	return true
}

// takeSilent takes the settlements that wait, to send them: nil if there are none, or if they are
// others than those given.
func (b *Budget) takeSilent(only *silentBatch) *silentBatch {
	s := b.silents
	s.mu.Lock()
	defer s.mu.Unlock()
	batch := s.batch
	if batch == nil || only != nil && only != batch {
		return nil
	}
	batch.timer.Stop()
	s.batch = nil
	s.flying++
	now := time.Now()
	for i := range batch.items {
		batch.items[i].Age = max(0, now.Sub(batch.ended[i]).Microseconds())
	}
	return batch
}

// sendSilent has the store settle a batch, within its timeout; nil is none.
func (b *Budget) sendSilent(batch *silentBatch) {
	if batch == nil {
		return
	}
	var done []driver.Finished
	err := errStoreGone
	defer func() { b.silentDone(batch, done, err) }()
	ctx, cancel := context.WithTimeoutCause(batch.task.ctx, b.spec.Timeout, errTimeout)
	defer cancel()
	done, err = b.finishBatch(ctx, batch.items)
}

// silentDecided takes in the answers that came with a decision. Where they are missing the batch is
// sent by itself: finishing twice is finishing once.
func (b *Budget) silentDecided(batch *silentBatch, done []driver.Finished) {
	switch {
	case batch == nil:
	case len(done) < len(batch.items):
		go b.sendSilent(batch)
	default:
		b.silentDone(batch, done, nil)
	}
}

// silentDone ends a batch.
func (b *Budget) silentDone(batch *silentBatch, done []driver.Finished, err error) {
	for i, f := range batch.items {
		var one driver.Finished
		if err == nil {
			one = done[i]
		}
		if failed := b.finished("settle", f.ID, one, err); failed != nil {
			batch.failed[i](failed)
		}
	}
	b.silents.mu.Lock()
	b.silents.flying--
	b.silents.mu.Unlock()
	b.laters.leave(batch.task)
}
