package budget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// batcher decides the charges of a process in batches. A charge that finds the store
// idle is sent at once; charges that arrive while a batch is under way form the next
// one. No charge waits for a batch to fill.
type batcher struct {
	decide func(context.Context, []driver.Item) (driver.Decisions, []limit.Limit, error)

	mu     sync.Mutex // guards queue and flying
	queue  []*pending
	flying bool
}

// pending is one charge on its way to the store.
type pending struct {
	item    driver.Item
	until   time.Time // when the caller gives up, by time.Now
	taken   bool      // sent to the store; guarded by batcher.mu
	group   *pending  // the first charge of its group, which is decided in one step; nil: no group
	done    chan struct{}
	decided decided
	err     error
}

// decided is a decision, with the store's clock and the name of the limit that the
// decision names.
type decided struct {
	driver.Decision
	storeNow int64
	limit    string
	seen     *seen
}

// answerTime is how long past its timeout a call still waits for the answer, because a
// host decides from its own allowance only after the store has timed out.
const answerTime = 40 * time.Millisecond

// errStoreGone is the result if the store ended the goroutine that made the decision.
var errStoreGone = errors.New("the store ended without a decision")

// do decides one item within timeout. If the caller gives up before the item is sent,
// it is never sent (ErrNotCharged); after that the outcome is unknown.
func (b *batcher) do(ctx context.Context, item driver.Item, timeout time.Duration) (decided, error) {
	if err := ctx.Err(); err != nil {
		return decided{}, fmt.Errorf("%w: %w", ErrNotCharged, err)
	}
	p := newPending(item, timeout)
	b.mu.Lock()
	if !b.flying {
		b.flying, p.taken = true, true
		b.mu.Unlock()
		defer b.handOver() // even if the store panics
		b.fly(ctx, []*pending{p})
		return p.decided, p.err
	}
	b.queue = append(b.queue, p)
	b.mu.Unlock()
	return b.await(ctx, p)
}

func newPending(item driver.Item, timeout time.Duration) *pending {
	return &pending{item: item, until: time.Now().Add(timeout), done: make(chan struct{}), err: errStoreGone}
}

// join queues up to MaxBatch charges that are to be decided in one step, in their
// order. Each caller then awaits its own.
func (b *batcher) join(group []*pending) {
	for _, p := range group {
		p.group = group[0]
	}
	b.mu.Lock()
	b.queue = append(b.queue, group...)
	idle := !b.flying
	b.flying = true
	b.mu.Unlock()
	if idle {
		b.handOver()
	}
}

// await waits for a decision that is queued or under way, until its caller gives up.
func (b *batcher) await(ctx context.Context, p *pending) (decided, error) {
	timer := time.NewTimer(time.Until(p.until) + answerTime)
	defer timer.Stop()
	end := context.DeadlineExceeded
	select {
	case <-p.done:
		return p.decided, p.err
	case <-timer.C:
	case <-ctx.Done():
		end = ctx.Err()
	}
	return b.giveUp(p, end)
}

// giveUp takes p off the queue. If p was sent, it may have been decided just now: giveUp
// then returns the decision.
func (b *batcher) giveUp(p *pending, end error) (decided, error) {
	b.mu.Lock()
	taken := p.taken
	if !taken {
		b.drop(p)
	}
	b.mu.Unlock()
	select {
	case <-p.done:
		return p.decided, p.err
	default:
	}
	if !taken {
		end = fmt.Errorf("%w: %w", ErrNotCharged, end)
	}
	return decided{}, end
}

// handOver starts a goroutine for the queued charges, or marks the batcher idle.
func (b *batcher) handOver() {
	if batch := b.next(); len(batch) > 0 {
		go b.flyOn(batch)
	}
}

// flyOn decides batch after batch until the queue is empty. It stays in one goroutine
// because that goroutine's stack has grown already.
func (b *batcher) flyOn(batch []*pending) {
	defer func() {
		if len(batch) > 0 { // the store ended this goroutine: another takes the rest
			b.handOver()
		}
	}()
	for ; len(batch) > 0; batch = b.next() {
		b.flyAlone(batch)
	}
}

// flyAlone decides a batch independently of its callers' contexts, until the latest of
// their timeouts.
func (b *batcher) flyAlone(batch []*pending) {
	last := slices.MaxFunc(batch, func(p, q *pending) int { return p.until.Compare(q.until) })
	ctx, cancel := context.WithDeadlineCause(context.Background(), last.until, errTimeout)
	defer cancel()
	b.fly(ctx, batch)
}

// next takes up to MaxBatch charges from the queue and does not split a group. If the
// queue is empty, it marks the batcher idle.
func (b *batcher) next() []*pending {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(b.queue), driver.MaxBatch)
	if n == 0 {
		b.flying = false
		return nil
	}
	for n < len(b.queue) && b.queue[n].group != nil && b.queue[n].group == b.queue[n-1].group {
		n--
	}
	batch := slices.Clone(b.queue[:n])
	b.queue = slices.Clone(b.queue[n:])
	for _, p := range batch {
		p.taken = true
	}
	return batch
}

// fly decides one batch and reports to each caller, even if the store ends the
// goroutine.
func (b *batcher) fly(ctx context.Context, batch []*pending) {
	defer func() {
		for _, p := range batch {
			close(p.done)
		}
	}()
	items := make([]driver.Item, len(batch))
	for i, p := range batch {
		items[i] = p.item
	}
	decisions, limits, err := b.decide(ctx, items)
	all := &seen{limits, decisions.Used}
	for i, p := range batch {
		p.err = err
		if err != nil {
			continue
		}
		p.decided = decided{Decision: decisions.Items[i], storeNow: decisions.Now, seen: all}
		if at := p.decided.Limit; at >= 0 && at < len(limits) {
			p.decided.limit = limits[at].Name
		}
	}
}

// drop removes p from the queue. b.mu is held.
func (b *batcher) drop(p *pending) {
	b.queue = slices.DeleteFunc(b.queue, func(q *pending) bool { return q == p })
}
